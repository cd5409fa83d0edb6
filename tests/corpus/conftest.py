"""Corpora made once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from corpus_options import option

from llmexp.corpus.collect import collect
from llmexp.corpus.curation.curate import curate


@pytest.fixture(scope="session")
def stdlib(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The standard library as a collected corpus, and its statistics."""
    out = tmp_path_factory.mktemp("stdlib") / "collected"
    return out, collect(option("data", "python_stdlib"), out)


@pytest.fixture(scope="session")
def curated(
    stdlib: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The standard library curated by one process, and its statistics."""
    out = tmp_path_factory.mktemp("stdlib") / "curated"
    return out, curate(option("curation", "prose_and_code"), stdlib[0], out, workers=1)
