"""The HTML report."""

import base64
import dataclasses
import hashlib
import math
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from llmexp.report.data import ReportData, StageRow
from llmexp.report.page import pictures, render, write_figures, write_report

HOSTILE = (
    """</title></style></pre><script>alert(1)</script><img src=x onerror="alert(2)">"""
    """'"&{{ 7*7 }}$\\frac\x00\x1b"""
)


class Tags(HTMLParser):
    """Start tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def hostile(value):
    """The same data with every text replaced or ended by a hostile one; numbers stay."""
    if isinstance(value, dict):
        return {hostile_key(k): hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v) for v in value]
    return HOSTILE if isinstance(value, str) else value


def hostile_key(key: str) -> str:
    fixed = {"table", "baselines", "calibration", "heldout", "samples", "problems", "completions", "right"}
    fixed |= {
        "kind",
        "prompt",
        "answer",
        "documents",
        "tokens",
        "bytes",
        "low",
        "high",
        "count",
        "confidence",
    }
    fixed |= {"accuracy", "loss", "perplexity", "bits_per_byte", "ece", "exact_match"}
    fixed |= {"unigram_bits_per_byte", "xz_bits_per_byte", "train/loss", "val/loss", "rl/reward"}
    return key if key in fixed else key + HOSTILE


def hostile_data(data: ReportData) -> ReportData:
    stages = [
        dataclasses.replace(
            row,
            name=row.name + HOSTILE,
            stage=HOSTILE,
            kind=HOSTILE,
            status=HOSTILE,
            summary=hostile(row.summary),
            config=hostile(row.config),
        )
        for row in data.stages
    ]
    return ReportData(
        title=HOSTILE,
        command=HOSTILE,
        status=HOSTILE,
        created=HOSTILE,
        run_id=HOSTILE,
        stages=stages,
        evaluation=hostile(data.evaluation),
        environment={HOSTILE: HOSTILE},
        notes=[HOSTILE],
    )


@pytest.fixture(scope="session")
def hostile_page(untouched: ReportData) -> str:
    return render(hostile_data(untouched))


def test_hostile_text_adds_no_element_and_no_handler(hostile_page: str):
    allowed = (
        "html head meta title style body main header section footer h1 h2 h3 h4 p span code pre div ul li "
        "table thead tbody tr th td figure figcaption picture source img details summary"
    )
    tags = Tags(hostile_page).tags
    assert {tag for tag, _ in tags} <= set(allowed.split())
    assert not [a for _, attrs in tags for a in attrs if a.startswith("on")]
    assert all(attrs["src"].startswith("data:image/svg+xml;base64,") for tag, attrs in tags if tag == "img")


def test_hostile_text_is_shown_as_it_is(hostile_page: str):
    shown = HOSTILE.replace("\x00", "\u2400").replace("\x1b", "\u241b")
    assert Tags(hostile_page).text.count(shown) >= 10


def test_no_figure_of_hostile_names_holds_a_script_or_breaks(hostile_page: str):
    for uri in re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", hostile_page):
        root = ElementTree.fromstring(base64.b64decode(uri))
        assert not [e for e in root.iter() if e.tag.endswith("script")]


def test_the_page_asks_the_network_for_nothing(page: str):
    for tag, attrs in Tags(page).tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form")
        for name in ("src", "href", "srcset", "action", "data", "poster", "background"):
            assert (attrs.get(name) or "data:").startswith("data:")


def test_the_page_names_no_address_outside_its_figures(page: str):
    assert not re.search(r"https?:|url\(|@import", page)


def test_no_figure_names_an_address_that_a_browser_would_load(data: ReportData):
    for picture in pictures(data):
        assert not re.search(r"""(href|src)=["'](?!#)|@import|url\((?!#)""", picture.light + picture.dark)


def test_the_policy_allows_the_style_of_the_page_and_images_in_it_alone(page: str):
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(
        attrs["content"]
        for tag, attrs in Tags(page).tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith(f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'")
    assert not [attrs for _, attrs in Tags(page).tags if "style" in attrs]


@pytest.mark.parametrize(
    "shown",
    [
        "1.556",
        "2.719",
        "1.633",
        "27.40",
        "56.5 %",
        "+46.5 pts",
        "321",
        "71,234",
        "218,233",
        "7 min 21 s",
        "llmexp experiment=quickstart",
        "bbbbbbbbbb",
        "lr: 0.0123",
        "CPU, 2 cores",
        "What is 34 + 57?",
        "cached",
    ],
)
def test_the_page_shows(page: str, shown: str):
    assert shown in Tags(page).text


def test_figures_have_a_light_and_a_dark_form(data: ReportData):
    for picture in pictures(data):
        assert picture.light != picture.dark


def test_the_same_data_give_the_same_page(data: ReportData, page: str):
    assert render(data) == page


def test_a_run_without_anything_has_a_page():
    assert "No model of this run was evaluated" in render(ReportData(title="empty"))


@pytest.mark.parametrize("part", ["table", "baselines", "calibration", "heldout", "problems", "samples"])
def test_an_evaluation_without_a_part_has_a_page(data: ReportData, part: str):
    del data.evaluation[part]
    assert "quickstart" in render(data)


def test_a_model_without_a_metric_has_a_dash(data: ReportData):
    del data.evaluation["table"]["initial"]["exact_match"]
    assert "–" in render(data)


def test_a_failed_stage_without_an_artifact_is_named(data: ReportData):
    data.stages.append(StageRow(name="export", stage="export", status="failed"))
    data.notes.append("export failed: disk full")
    text = Tags(render(data)).text
    assert "export failed: disk full" in text


def test_infinite_and_missing_figures_are_told_as_such(data: ReportData):
    data.evaluation["table"]["grpo"] |= {"loss": "inf", "perplexity": "inf", "bits_per_byte": "inf"}
    data.evaluation["table"]["pretrain"]["perplexity"] = "nan"
    text = Tags(render(data)).text
    assert "∞" in text
    assert "not a number" in text


def test_losses_that_were_not_finite_leave_a_curve_and_are_counted(data: ReportData):
    data.stages[1].curves["train/loss"][5][1] = math.nan
    (drawn,) = [p for p in pictures(data) if p.name == "loss_pretrain"]
    assert "1 not finite" in drawn.light


def test_writing_leaves_the_page_and_no_partial_file(data: ReportData, page: str, tmp_path):
    path = write_report(data, tmp_path / "deep" / "report.html")
    assert path.read_text(encoding="utf-8") == page
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_figures_are_written_under_plain_names(data: ReportData, tmp_path):
    data.stages[1].name = "../up"
    names = {path.name for path in write_figures(data, tmp_path / "figures")}
    assert "loss____up.svg" in names
    assert {p.parent for p in tmp_path.rglob("*.svg")} == {tmp_path / "figures"}
