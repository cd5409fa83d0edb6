"""The spec of an export."""

from __future__ import annotations

import dataclasses

from llmexp.config.spec import Spec, setting


@dataclasses.dataclass(kw_only=True)
class ExportSpec(Spec):
    """A folder in the format of Hugging Face."""

    dtype: str = setting(
        "Number format of the weights.", default="float32", choices=("float32", "bfloat16", "float16")
    )
    max_shard_bytes: int = setting(
        "Largest weight file; more weights are spread over several.",
        default=5_000_000_000,
        gt=0,
        unit="bytes",
    )
