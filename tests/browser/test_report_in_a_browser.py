"""The report of a real run, as a browser shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class Watched:
    """A page, and all that it asked for or complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))


@pytest.fixture(params=["light", "dark"])
def report(request: pytest.FixtureRequest, browser: Browser, quickstart: Path) -> Iterator[Watched]:
    """The report at the size of a phone held upright, in each colour scheme."""
    (file,) = quickstart.glob("outputs/runs/*/*/report.html")
    page = browser.new_page(color_scheme=request.param, viewport={"width": 390, "height": 844})
    watched = Watched(page)
    page.goto(file.as_uri())
    yield watched
    page.close()


def test_every_picture_is_drawn_and_nothing_is_fetched_or_complained_about(report: Watched):
    sizes = report.page.evaluate("Array.from(document.images, i => [i.complete, i.naturalWidth])")
    assert len(sizes) >= 4
    assert all(complete and width > 0 for complete, width in sizes)
    assert [url for url in report.requests if not url.startswith(("file:", "data:"))] == []
    assert report.complaints == []


def test_the_page_is_no_wider_than_a_phone(report: Watched):
    width = report.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390


def test_every_stage_has_its_row_in_the_tables(report: Watched):
    text = report.page.inner_text("body")
    for row in ("initial weights", "after pretrain", "after sft", "after grpo", "unigram entropy", "xz -9"):
        assert row in text


def test_text_is_dark_on_light_or_light_on_dark(report: Watched):
    sums = """() => ['color', 'backgroundColor'].map(what => getComputedStyle(document.body)[what]
        .match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))"""
    ink, paper = report.page.evaluate(sums)
    assert abs(ink - paper) > 3 * 120


def test_details_open_at_a_click(report: Watched):
    details = report.page.locator("details").first
    hidden = details.locator(":scope > *:not(summary)").first
    assert not hidden.is_visible()
    details.locator("summary").click()
    assert hidden.is_visible()
