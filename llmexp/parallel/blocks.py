"""What is done to a model's blocks before training, in a fixed order: recompute, then compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llmexp.model.decoder import Decoder


@contextmanager
def prepared(model: Decoder, *, recompute: bool, compile_blocks: bool) -> Iterator[None]:
    """While the context lasts, ``model`` (with ``blocks`` and ``recompute``) trains in this way.

    Parameters keep their names and their memory, and the model is as before when it ends. Blocks
    are compiled one by one: they are alike, so one compilation serves them all.
    """
    before = model.recompute
    model.recompute = recompute
    compiled = list(model.blocks) if compile_blocks else []
    for block in compiled:
        block.compile()
    try:
        yield
    finally:
        model.recompute = before
        for block in compiled:
            block._compiled_call_impl = None
