"""datatrove's filters as curation steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from llmexp.config.spec import target
from llmexp.corpus.curation.steps import Removed, Step
from llmexp.corpus.records import Record, text_of

_FILTERS = "datatrove.pipeline.filters"
_CLASSES = {
    "gopher_repetition": f"{_FILTERS}.gopher_repetition_filter:GopherRepetitionFilter",
    "fineweb_quality": f"{_FILTERS}.fineweb_quality_filter:FineWebQualityFilter",
    "c4_quality": f"{_FILTERS}.c4_filters:C4QualityFilter",
}


@dataclass(kw_only=True)
class DatatroveFilter(Step):
    """One of datatrove's filters with its own thresholds, on the text of a record.

    Its word splitter is spaCy's: about 0.4 MB/s a core, and two seconds to start.
    """

    filter: str
    _filter: Any = field(init=False, default=None)

    def apply(self, record: Record, counts: Counter[str]) -> Record:
        """Removes with datatrove's reason; C4's filter also drops lines, counted as ``shortened``."""
        from datatrove.data import Document

        if self._filter is None:
            self._filter = target(_CLASSES[self.filter])()
        text = text_of(record)
        document = Document(text=text, id=str(record["id"]))
        verdict = self._filter.filter(document)
        kept, why = verdict if isinstance(verdict, tuple) else (verdict, self.filter)
        if not kept:
            raise Removed(str(why).replace("_", " "))
        if "text" in record and document.text != text:
            counts["shortened"] += 1
            return {**record, "text": document.text}
        return record
