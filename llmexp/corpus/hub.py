"""Datasets of the Hugging Face Hub, or local folders in the same format, as streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from llmexp.corpus.faults import BadData, Faults
from llmexp.corpus.readers import Unusable, clean, messages_of
from llmexp.corpus.records import Record
from llmexp.corpus.source import SplitSource


@dataclass(kw_only=True)
class HubDataset(SplitSource):
    """One split of a dataset, streamed: nothing is downloaded ahead."""

    path: str
    name: str | None
    hub_split: str
    revision: str | None
    text_field: str
    messages_field: str | None
    kind: str
    max_document_bytes: int
    max_bad_records: int
    _faults: Faults = field(init=False)

    def __post_init__(self) -> None:
        self._faults = Faults(max_bad_records=self.max_bad_records)

    @property
    def faults(self) -> Faults:
        """What was wrong so far."""
        return self._faults

    def records(self) -> Iterator[Record]:
        """The rows of the split in the dataset's order.

        Raises:
            BadData: the dataset cannot be had, lacks the column, or has no usable row.
        """
        wanted = self.messages_field or self.text_field
        label = self.name or os.path.basename(self.path.rstrip("/")) or self.path
        good = 0
        for number, row in enumerate(self._rows(), start=1):
            if wanted not in row:
                raise BadData(
                    f"data.path={self.path} has no column {wanted!r}, but {', '.join(list(row)[:20])}. "
                    f"Set data.{'messages_field' if self.messages_field else 'text_field'}"
                )
            try:
                body = self._body(row)
            except Unusable as error:
                self._faults.bad_record(f"{label}/{self.hub_split}", number, str(error))
                continue
            good += 1
            yield {"id": f"{label}/{self.hub_split}:{number}", "source": label, "kind": self.kind, **body}
        if not good:
            raise BadData(f"data.path={self.path} holds nothing readable in its split {self.hub_split!r}")

    def _body(self, row: dict[str, Any]) -> Record:
        if self.messages_field is None:
            return {"text": clean(row[self.text_field], self.max_document_bytes, self._faults)}
        messages = messages_of(row[self.messages_field], self.max_document_bytes, self._faults)
        reserved = {self.messages_field, "id", "source", "kind", "text"}
        plain = (str, int, float, bool, list, dict)
        return {
            "messages": messages,
            **{k: v for k, v in row.items() if k not in reserved and isinstance(v, plain)},
        }

    def _rows(self) -> Iterator[dict[str, Any]]:
        import datasets
        from datasets.exceptions import DatasetGenerationError

        local = os.path.expanduser(self.path)
        path = local if os.path.isdir(local) else self.path
        # What a missing dataset, configuration, split or network raises, and a damaged file in it.
        faults = (OSError, ValueError, ImportError, DatasetGenerationError)
        try:
            yield from datasets.load_dataset(
                path, self.name, split=self.hub_split, revision=self.revision, streaming=True
            )
        except faults as error:
            raise BadData(f"data.path={self.path} cannot be read: {error}") from error


def resolved_revision(path: str, revision: str | None) -> str:
    """The commit that ``revision`` of a Hub dataset means now; asks the Hub.

    Raises:
        BadData: there is no such dataset or revision, or no network.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        commit = HfApi().dataset_info(path, revision=revision).sha
    except (HfHubHTTPError, OSError) as error:
        raise BadData(f"data.path={path} cannot be looked up on the Hub: {error}") from error
    if commit is None:
        raise BadData(f"the Hub names no commit of {path}")
    return commit
