"""The exported folder computes in ``transformers`` what our decoder computes."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from llmexp.config.mistakes import UserError
from llmexp.corpus.records import read_records
from llmexp.data.shards import Shards
from llmexp.export.huggingface import export_huggingface
from llmexp.model.decoder import Decoder
from llmexp.model.io import load
from llmexp.prove.child import run
from llmexp.prove.cut import Ready
from llmexp.prove.result import Comparison, Proof, compare_tensors
from llmexp.rollout.engine import generate
from llmexp.rollout.prompts import prompt_ids
from llmexp.rollout.sampling import Sampling
from llmexp.tokenizer.tokenizer import Tokenizer
from llmexp.track.progress import Progress

TOLERANCE = 1e-4
"""Of float32 logits up to 1, else times the largest: two orders of summation differ by rounding."""
TEXTS = 4
TOKENS = 64
"""Tokens of a text that are compared."""
WRITTEN = 32
"""Tokens that are written greedily after the first half of a text."""


def require_transformers() -> None:
    """Look, before anything is trained, whether there is something to compare with.

    Raises:
        UserError: ``transformers`` is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UserError(
            "this proof compares with the package `transformers`, which is not installed: "
            "pip install transformers"
        )


def prove_export(ready: Ready, progress: Progress, *, quiet: bool = False) -> Proof:
    """Train, export, open the export in ``transformers``, and compare logits and greedy text.

    Raises:
        UserError: ``transformers`` is not installed, or the data hold no text.
        ModelFolderError: no family of Hugging Face expresses the model.
    """
    require_transformers()
    steps = ready.spec.trainer.max_steps
    progress.line(f"training {steps} steps")
    job = ready.again("trained")
    run(job, ready.world, quiet=quiet)
    tokenizer, exported = Tokenizer.load(job.out), ready.folder / "exported"
    exported.mkdir()
    model, spec = load(job.out)
    export_huggingface(model, spec, job.out, exported, {}, end_ids=sorted(tokenizer.end_ids))
    texts = _texts(ready, tokenizer, min(TOKENS, spec.max_seq_len // 2))
    progress.line("comparing with transformers")
    comparisons = compare_export(model, tokenizer, exported, texts, context_length=spec.max_seq_len)
    import transformers

    notes = [
        f"after {steps} steps of training, in float32 on the CPU",
        f"transformers {transformers.__version__}; {len(texts)} texts of the training data",
    ]
    return Proof("export", ready.job.name, comparisons, notes)


def _texts(ready: Ready, tokenizer: Tokenizer, longest: int) -> list[list[int]]:
    """Token ids of a few texts that the stage learns from, of two tokens at least."""
    if "shards" in ready.job.inputs:
        shards = Shards(_path(ready, "shards"), "train")
        found = [list(map(int, shards.tokens(doc, 0, longest))) for doc in range(min(len(shards), 64))]
    else:
        records = read_records(_path(ready, "prompts"), "train")
        found = [
            prompt_ids(tokenizer, record)[:longest] for record, _ in zip(records, range(TEXTS), strict=False)
        ]
    texts = [text for text in found if len(text) > 1][:TEXTS]
    if not texts:
        raise UserError(f"the data of stage '{ready.job.name}' hold no text of two tokens")
    return texts


def _path(ready: Ready, need: str) -> Path:
    found = ready.job.inputs[need]
    assert not isinstance(found, dict)
    return found.path


@torch.no_grad()
def compare_export(
    model: Decoder,
    tokenizer: Tokenizer,
    exported: Path,
    texts: Sequence[Sequence[int]],
    *,
    context_length: int,
) -> list[Comparison]:
    """Logits of ``texts`` (token ids) and greedy continuations, ours against ``transformers``'."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    theirs = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32).eval()
    their_tokenizer = AutoTokenizer.from_pretrained(exported)
    logits = Comparison("logits of every token", TOLERANCE)
    written = Comparison("ids of the greedy text")
    decoded = Comparison("characters of the greedy text")
    for number, text in enumerate(texts):
        ids = torch.tensor([text])
        expected = model(ids)[0, :, : tokenizer.vocab_size]
        logits.tolerance = max(logits.tolerance, TOLERANCE * float(expected.abs().max()))
        compare_tensors(
            "token and id", expected, theirs(ids).logits[0], logits.tolerance, f"text {number}", logits
        )
        prompt = text[: max(1, len(text) // 2)]
        room = min(WRITTEN, context_length - len(prompt))
        ours = _greedy(model, tokenizer, prompt, room, context_length)
        others = _their_greedy(theirs, prompt, room)
        _compare_ids(f"text {number}", ours, others, written)
        our_text, their_text = tokenizer.decode(ours), _text(their_tokenizer, others)
        codes = list(map(ord, our_text)), list(map(ord, their_text))
        _compare_ids(f"text {number}, character", codes[0], codes[1], decoded)
    return [logits, written, decoded]


def _greedy(
    model: Decoder, tokenizer: Tokenizer, prompt: Sequence[int], room: int, context_length: int
) -> list[int]:
    made = generate(
        model,
        [prompt],
        Sampling(temperature=0, max_new_tokens=room),
        [0],
        tokenizer.end_ids,
        context_length=context_length,
        vocab_size=tokenizer.vocab_size,
    )
    ids: list[int] = made.ids[0].tolist()
    return ids


def _their_greedy(model: Any, prompt: Sequence[int], room: int) -> list[int]:
    ids = torch.tensor([list(prompt)])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=room)
    found: list[int] = made[0, len(prompt) :].tolist()
    return found


def _text(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _compare_ids(where: str, ours: list[int], theirs: list[int], into: Comparison) -> None:
    for place in range(max(len(ours), len(theirs))):
        one, other = (side[place] if place < len(side) else None for side in (ours, theirs))
        into.add(f"{where}, {place}", one, other)
