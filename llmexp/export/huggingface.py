"""A Hugging Face folder: weights, config, tokenizer, generation settings and a model card."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from llmexp.export.card import render_card
from llmexp.model.config import ModelSpec, n_params
from llmexp.model.decoder import Decoder
from llmexp.model.families.base import Family, ModelFolderError, family_for
from llmexp.model.io import foreign_tensors
from llmexp.tokenizer.folder import copy_tokenizer

_SPECIAL = {"bos": "bos_token", "eos": "eos_token", "pad": "pad_token"}


def export_huggingface(
    model: Decoder,
    spec: ModelSpec,
    tokenizer_folder: Path,
    out: Path,
    card: dict[str, Any],
    *,
    dtype: str = "float32",
    max_shard_bytes: int = 5_000_000_000,
    end_ids: list[int] | None = None,
) -> dict[str, Any]:
    """Write ``model`` into the folder ``out`` as ``transformers`` reads it; returns counts for a manifest.

    Rows of the embedding beyond the tokenizer's last id (padding) are cut off, so that the
    config, the weights and the tokenizer agree on the size. A tied matrix is stored once, with
    ``tie_word_embeddings: true``; untied ones are both stored, also when they happen to be equal.
    ``end_ids`` are the tokens at which generation ends, by default the tokenizer's end token;
    ``dtype`` is torch's name of a floating type; ``card`` is rendered by
    :func:`llmexp.export.card.render_card`.

    Raises:
        ModelFolderError: fewer rows than tokens, or no family expresses the model.
    """
    rows = _tokenizer_size(tokenizer_folder)
    stored_rows = model.head_weight.shape[0]
    if rows > stored_rows:
        raise ModelFolderError(
            f"the tokenizer at {tokenizer_folder} has {rows} tokens, the model has rows for "
            f"{stored_rows}: it was trained with another tokenizer; give the one of its data"
        )
    trimmed = dataclasses.replace(spec, vocab_size=rows)
    model_type, kind = family_for(trimmed)
    special = _special_ids(tokenizer_folder)
    tensors = _trimmed(foreign_tensors(model, trimmed, kind), kind, trimmed)
    stored = _write_weights(tensors, out, getattr(torch, dtype), max_shard_bytes)
    config = {"architectures": [kind.architecture], "model_type": model_type, "dtype": dtype}
    _write_json(out / "config.json", config | _with_suffix(special) | kind.config_from(trimmed))
    generation = _with_suffix(special) | {"eos_token_id": end_ids or special["eos"], "do_sample": False}
    _write_json(out / "generation_config.json", {k: v for k, v in generation.items() if v is not None})
    copy_tokenizer(tokenizer_folder, out)
    (out / "README.md").write_text(render_card(card, n_params=n_params(trimmed), dtype=dtype))
    return {
        "n_params": n_params(trimmed),
        "vocab_size": rows,
        "trimmed_rows": stored_rows - rows,
        **stored,
    }


def _trimmed(
    tensors: Iterator[tuple[str, torch.Tensor]], kind: Family, spec: ModelSpec
) -> Iterator[tuple[str, torch.Tensor]]:
    by_vocabulary = {
        entry.theirs for entry in kind.entries(spec) if entry.ours[0] in ("embed.weight", "head.weight")
    }
    for name, tensor in tensors:
        yield name, tensor[: spec.vocab_size] if name in by_vocabulary else tensor


def _write_weights(
    tensors: Iterator[tuple[str, torch.Tensor]], out: Path, dtype: torch.dtype, max_bytes: int
) -> dict[str, int]:
    shards: list[list[str]] = []
    pending: dict[str, torch.Tensor] = {}
    size = total = 0

    def flush() -> None:
        save_file(pending, out / f"shard-{len(shards)}", metadata={"format": "pt"})
        shards.append(list(pending))
        pending.clear()

    for name, tensor in tensors:
        # A copy of its own: safetensors refuses names that share memory.
        value = tensor.detach().to("cpu", dtype, copy=True).contiguous()
        if pending and size + value.nbytes > max_bytes:
            flush()
            size = 0
        pending[name] = value
        size, total = size + value.nbytes, total + value.nbytes
    flush()
    _name_shards(out, shards, total)
    return {"bytes": total, "files": len(shards)}


def _name_shards(out: Path, shards: list[list[str]], total: int) -> None:
    if len(shards) == 1:
        (out / "shard-0").rename(out / "model.safetensors")
        return
    places: dict[str, str] = {}
    for number, names in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (out / f"shard-{number}").rename(out / file)
        places |= dict.fromkeys(names, file)
    _write_json(
        out / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": places}
    )


def _tokenizer_size(folder: Path) -> int:
    """Rows that the tokenizer needs: its highest id and one."""
    return max(_vocabulary(folder).values()) + 1


def _vocabulary(folder: Path) -> dict[str, int]:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelFolderError(f"{folder}: no tokenizer.json")
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True)


def _special_ids(folder: Path) -> dict[str, int | None]:
    """Ids of the begin, end and padding token as tokenizer_config.json names them."""
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    vocabulary = _vocabulary(folder)
    ids: dict[str, int | None] = {}
    for short, key in _SPECIAL.items():
        token = settings.get(key)
        text = token.get("content") if isinstance(token, dict) else token
        ids[short] = vocabulary.get(text) if text is not None else None
    return ids


def _with_suffix(special: dict[str, int | None]) -> dict[str, Any]:
    return {f"{name}_token_id": value for name, value in special.items()}


def _write_json(file: Path, data: dict[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
