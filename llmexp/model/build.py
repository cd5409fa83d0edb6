"""From the plain values of a model's spec to a decoder with weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from llmexp.config.spec import settings
from llmexp.model.config import ModelSpec, resolve_vocabulary
from llmexp.model.decoder import Block, Decoder
from llmexp.model.initial import initialise
from llmexp.nn.attention import Attention
from llmexp.nn.feed_forward import GELU, SwiGLU
from llmexp.nn.norm import layer_norm, rms_norm
from llmexp.nn.position import LearnedPosition, Llama3Scaling, Position, RotaryPosition

Norm = Callable[[], nn.Module]


def build_model(
    *,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int | None,
    head_dim: int | None,
    ffn_dim: int,
    vocab_size: int | None,
    max_seq_len: int,
    norm: str,
    norm_eps: float,
    position: str,
    rope_theta: float,
    rope_scaling: str,
    rope_factor: float,
    rope_low_freq_factor: float,
    rope_high_freq_factor: float,
    rope_original_max_seq_len: int,
    feed_forward: str,
    biases: str,
    tie_embeddings: bool,
    dropout: float,
    init_std: float,
    init_from: str | None,
    seed: int,
    tokenizer_vocab_size: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Decoder:
    """What ``ModelSpec.build`` calls: the decoder, with weights from ``seed`` or from ``init_from``.

    At run time are given the ``seed``, the tokenizer's size (needed where ``vocab_size`` is null)
    and where the weights lie. torch's own random state is neither read nor changed.

    Raises:
        ValueError: no vocabulary, fewer rows than tokens, or ``init_from`` holds another architecture.
    """
    values = dict(locals())
    spec = ModelSpec(**{f.name: values[f.name] for f in settings(ModelSpec)})
    if init_from is not None:
        from llmexp.model.io import start_from

        return start_from(init_from, spec, tokenizer_vocab_size, device=device, dtype=dtype)
    spec.vocab_size = resolve_vocabulary(vocab_size, tokenizer_vocab_size)
    model = empty_decoder(spec, device=device, dtype=dtype)
    initialise(model, seed=seed, std=init_std)
    return model


def empty_decoder(
    spec: ModelSpec, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Decoder:
    """The decoder with memory for its weights but no values in it (none at all on ``meta``)."""
    norm = _norm(spec)
    with torch.device("meta"):
        vocabulary = resolve_vocabulary(spec.vocab_size, None)
        head = None if spec.tie_embeddings else nn.Linear(spec.d_model, vocabulary, bias=False)
        model = Decoder(
            embed=nn.Embedding(vocabulary, spec.d_model),
            position=_position(spec),
            blocks=[_block(spec, norm) for _ in range(spec.n_layers)],
            norm=norm(),
            head=head,
            dropout=spec.dropout,
        )
    model.to(dtype)
    return model.to_empty(device=device) if str(device) != "meta" else model


def _block(spec: ModelSpec, norm: Norm) -> Block:
    attention = Attention(
        spec.d_model,
        n_heads=spec.n_heads,
        n_kv_heads=spec.key_heads,
        head_dim=spec.width_of_head,
        bias=spec.biases == "all",
        dropout=spec.dropout,
    )
    return Block(
        attention=attention,
        feed_forward=_feed_forward(spec),
        attention_norm=norm(),
        feed_forward_norm=norm(),
        dropout=spec.dropout,
    )


def _norm(spec: ModelSpec) -> Norm:
    if spec.norm == "rms_norm":
        return functools.partial(rms_norm, spec.d_model, eps=spec.norm_eps)
    return functools.partial(layer_norm, spec.d_model, eps=spec.norm_eps, bias=spec.biases == "all")


def _position(spec: ModelSpec) -> Position:
    if spec.position == "none":
        return Position()
    if spec.position == "learned":
        return LearnedPosition(spec.max_seq_len, spec.d_model)
    scaling = Llama3Scaling(
        factor=spec.rope_factor,
        low_freq_factor=spec.rope_low_freq_factor,
        high_freq_factor=spec.rope_high_freq_factor,
        original_max_seq_len=spec.rope_original_max_seq_len,
    )
    return RotaryPosition(
        spec.width_of_head, theta=spec.rope_theta, scaling=scaling if spec.rope_scaling == "llama3" else None
    )


def _feed_forward(spec: ModelSpec) -> nn.Module:
    sizes: dict[str, Any] = {"d_model": spec.d_model, "ffn_dim": spec.ffn_dim, "bias": spec.biases == "all"}
    if spec.feed_forward == "swiglu":
        return SwiGLU(**sizes)
    return GELU(**sizes, approximate="tanh" if spec.feed_forward == "gelu_tanh" else "none")
