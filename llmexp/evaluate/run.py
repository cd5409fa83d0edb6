"""Measures models side by side: before and after each stage of training, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from llmexp.evaluate import result as results
from llmexp.evaluate.config import EvaluationSpec
from llmexp.evaluate.documents import HeldOut, TextFigures, measure_text
from llmexp.evaluate.generations import Writer, chat_samples, exact_match, question, text_samples
from llmexp.evaluate.heldout import score_documents
from llmexp.evaluate.scores import NothingToScore, TokenScores, bits_per_byte, perplexity
from llmexp.model.config import ModelSpec
from llmexp.model.folder import read_spec
from llmexp.model.io import load
from llmexp.parallel.mesh import device_kind
from llmexp.rollout.measure import is_right
from llmexp.rollout.sampling import Sampling
from llmexp.tokenizer.tokenizer import Tokenizer
from llmexp.track.progress import Interrupted, Progress, Task
from llmexp.track.tracker import Tracker


@dataclass(frozen=True)
class Material:
    """What every model is measured on."""

    tokenizer: Tokenizer
    seq_len: int
    heldout: HeldOut | None
    text: TextFigures | None
    chats: HeldOut | None
    problems: Sequence[dict[str, Any]]
    """Held-out prompts with ``messages`` and ``answer``."""


def evaluate(
    *,
    models: Mapping[str, Path],
    spec: EvaluationSpec,
    out: Path,
    shards: Path | None = None,
    chats: Path | None = None,
    problems: Sequence[dict[str, Any]] = (),
    seed: int = 0,
    progress: Progress,
    tracker: Tracker,
    should_stop: Callable[[], bool],
) -> dict[str, Any]:
    """Measure ``models`` (name to folder, in the order of training); write ``evaluation.json`` into ``out``.

    ``shards`` and ``chats`` are shards whose held-out split is scored; ``problems`` held-out
    records with ``messages`` and ``answer``. What is not given is not measured. Every model is
    measured on the same tokens. Returns what was written (see :mod:`llmexp.evaluate.result`).

    Raises:
        NothingToScore: nothing was given to measure, or it has no token that counts.
        ValueError: see :func:`prepare`.
        FloatingPointError: a model's logits are not finite, so that it cannot write; it is named.
        Interrupted: ``should_stop`` said so; nothing was written or logged.
    """
    material = prepare(models, shards=shards, chats=chats, problems=problems, spec=spec)
    result = _empty(material)
    for name, model, model_spec in _models(models, spec, seed):
        steps = _size(material)
        with progress.task(f"evaluate {name}", total=steps, unit="tokens and problems") as task:
            done = _done(task, should_stop)
            writer = Writer(model, material.tokenizer, model_spec.max_seq_len)
            try:
                result["table"][name] = _figures(writer, name, material, spec, result, done)
                _add_samples(writer, name, material, spec, seed, result)
            except FloatingPointError as error:
                raise FloatingPointError(f"the model {name} is broken: {error}") from error
    results.write(result, out)
    for place, values in results.tracked(result):
        tracker.metrics(values, place)
    return result


def prepare(
    models: Mapping[str, Path],
    *,
    spec: EvaluationSpec,
    shards: Path | None,
    chats: Path | None,
    problems: Sequence[dict[str, Any]],
) -> Material:
    """Open the data that all models are measured on, and check that they can be compared on it.

    Raises:
        NothingToScore: nothing was given to measure, or it has no token that counts.
        ValueError: no model, two tokenizers, no chat template for problems, or a model named like
            the untrained one.
    """
    if not models:
        raise ValueError("there is no model to evaluate; give one, for example inputs.models=RUN")
    if spec.include_initial and results.INITIAL in models:
        raise ValueError(
            f"a model is named '{results.INITIAL}', which is the row before training; "
            "rename its stage, or set evaluation.include_initial=false"
        )
    tokenizer = _one_tokenizer(models)
    chosen = list(problems)[: spec.exact_match_problems]
    if chosen and not tokenizer.chat_template:
        raise ValueError(
            "problems are asked through a chat template, and the models' tokenizer has none; "
            "give it one (tokenizer.chat_template), or set evaluation.exact_match_problems=0"
        )
    if shards is None and chats is None and not chosen:
        raise NothingToScore("there is nothing to measure: no held-out shards, no chats and no problems")
    limits = {"max_documents": spec.max_documents, "max_tokens": spec.max_tokens}
    heldout = None if shards is None else HeldOut(shards, **limits)
    heldout_chats = None if chats is None else HeldOut(chats, **limits)
    for data in (heldout, heldout_chats):
        if data is not None and data.shards.header.tokenizer != tokenizer.fingerprint:
            raise ValueError(
                f"{data.path} was tokenized with another tokenizer ({data.shards.header.tokenizer[:8]}) than "
                f"the models' ({tokenizer.fingerprint[:8]}): tokenize it with the tokenizer of the models"
            )
    return Material(
        tokenizer=tokenizer,
        seq_len=min(spec.seq_len, *(read_spec(path).max_seq_len for path in models.values())),
        heldout=heldout,
        text=None if heldout is None else measure_text(heldout, tokenizer),
        chats=heldout_chats,
        problems=chosen,
    )


def _one_tokenizer(models: Mapping[str, Path]) -> Tokenizer:
    """The tokenizer that all models share: figures per token of two are not comparable."""
    loaded = {name: Tokenizer.load(path) for name, path in models.items()}
    prints = {name: tokenizer.fingerprint for name, tokenizer in loaded.items()}
    if len(set(prints.values())) > 1:
        told = ", ".join(f"{name} {print_[:8]}" for name, print_ in prints.items())
        raise ValueError(f"the models have different tokenizers ({told}); evaluate them one by one")
    return next(iter(loaded.values()))


def _models(
    models: Mapping[str, Path], spec: EvaluationSpec, seed: int
) -> Iterator[tuple[str, Any, ModelSpec]]:
    """Name, decoder in fp32 and its spec, one at a time; the untrained one first."""
    device = torch.device(device_kind(spec.device))
    if spec.include_initial:
        model_spec = read_spec(next(iter(models.values())))
        yield results.INITIAL, model_spec.build(seed=seed, device=device), model_spec
    for name, path in models.items():
        model, model_spec = load(path, device=device)
        yield name, model, model_spec


def _empty(material: Material) -> dict[str, Any]:
    """The result before any model was measured."""
    result: dict[str, Any] = {"table": {}, "baselines": {}, "calibration": {}, "samples": []}
    if material.text:
        result["baselines"] = {
            "unigram_bits_per_byte": material.text.unigram_bits_per_byte,
            "xz_bits_per_byte": material.text.xz_bits_per_byte,
        }
        result["heldout"] = {
            "documents": material.text.n_documents,
            "tokens": material.text.n_tokens,
            "bytes": material.text.n_bytes,
            "seq_len": material.seq_len,
        }
    if material.chats:
        result["chats"] = {"documents": len(material.chats), "tokens": material.chats.n_targets()}
    if material.problems:
        result["problems"] = len(material.problems)
    return result


def _size(material: Material) -> int:
    """How much there is to do for one model."""
    tokens = material.text.n_tokens if material.text else 0
    chats = material.chats.n_targets() if material.chats else 0
    return tokens + chats + len(material.problems)


def _done(task: Task, should_stop: Callable[[], bool]) -> Callable[[int], None]:
    def done(n: int) -> None:
        task.advance(n)
        if should_stop():
            raise Interrupted("the evaluation stopped; the same command evaluates again from the start")

    return done


def _figures(
    writer: Writer,
    name: str,
    material: Material,
    spec: EvaluationSpec,
    result: dict[str, Any],
    done: Callable[[int], None],
) -> dict[str, float]:
    """The row of one model; its reliability diagram goes into ``result``."""

    def score(documents: HeldOut) -> TokenScores:
        return score_documents(
            writer.model,
            documents,
            seq_len=material.seq_len,
            n_bins=spec.ece_bins,
            overlap=min(spec.overlap, material.seq_len - 1),
            micro_batch=spec.micro_batch,
            device=next(writer.model.parameters()).device,
            done=done,
        )

    row: dict[str, float] = {}
    if material.heldout and material.text:
        scores = score(material.heldout)
        row["loss"] = scores.loss()
        row["perplexity"] = perplexity(scores.loss())
        row["bits_per_byte"] = bits_per_byte(scores.nats, material.text.n_bytes)
        row["ece"] = scores.ece()
        row["accuracy"] = scores.accuracy()
        result["calibration"][name] = scores.calibration()
    if material.chats:
        row["assistant_loss"] = score(material.chats).loss()
    if material.problems:
        row["exact_match"] = exact_match(
            writer, material.problems, max_new_tokens=spec.exact_match_max_new_tokens, done=done
        )
    return row


def _add_samples(
    writer: Writer, name: str, material: Material, spec: EvaluationSpec, seed: int, result: dict[str, Any]
) -> None:
    """What one model makes of the sample prompts, beside what the others did."""
    samples = result["samples"]
    beginnings = spec.sample_prompts[: spec.samples]
    shown = material.problems[: spec.samples]
    if not samples:
        samples += [{"kind": "text", "prompt": prompt, "completions": {}} for prompt in beginnings]
        samples += [
            {
                "kind": "chat",
                "prompt": question(record),
                "answer": str(record["answer"]),
                "completions": {},
                "right": {},
            }
            for record in shown
        ]
    sampling = Sampling(temperature=spec.sample_temperature, max_new_tokens=spec.sample_max_new_tokens)
    texts = text_samples(writer, beginnings, sampling, seed)
    texts += chat_samples(writer, shown, spec.exact_match_max_new_tokens)
    for sample, text in zip(samples, texts, strict=True):
        sample["completions"][name] = text
    for sample, record in zip(samples[len(beginnings) :], shown, strict=True):
        sample["right"][name] = is_right(record, sample["completions"][name])
