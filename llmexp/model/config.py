"""The spec of a decoder, and the counts that follow from it. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from llmexp.config.spec import Mistake, Spec, setting


@dataclasses.dataclass(kw_only=True)
class ModelSpec(Spec):
    """A decoder: sizes, and which part stands at each place."""

    builds: ClassVar[str] = "llmexp.model.build:build_model"

    d_model: int = setting("Width of the residual stream.", gt=0)
    n_layers: int = setting("Number of blocks.", gt=0)
    n_heads: int = setting("Number of query heads.", gt=0)
    n_kv_heads: int | None = setting("Number of key and value heads; null: n_heads.", default=None, gt=0)
    head_dim: int | None = setting("Width of one head; null: d_model / n_heads.", default=None, gt=0)
    ffn_dim: int = setting("Width of the feed-forward's hidden layer.", gt=0)
    vocab_size: int | None = setting(
        "Rows of the embedding; null: the tokenizer's size. May exceed it (padding).", default=None, gt=0
    )
    max_seq_len: int = setting("Longest sequence that positions cover.", gt=0, unit="tokens")
    norm: str = setting("Normalisation.", default="rms_norm", choices=("rms_norm", "layer_norm"))
    norm_eps: float = setting("Added to the variance before its root is taken.", default=1e-5, gt=0)
    position: str = setting("Position information.", default="rope", choices=("rope", "learned", "none"))
    rope_theta: float = setting("Base of the rotary wavelengths.", default=10000.0, gt=1)
    rope_scaling: str = setting(
        "How rotary wavelengths are stretched beyond the first training length.",
        default="none",
        choices=("none", "llama3"),
    )
    rope_factor: float = setting("Stretch of the long wavelengths.", default=8.0, ge=1)
    rope_low_freq_factor: float = setting(
        "Wavelengths above rope_original_max_seq_len / this are stretched in full.", default=1.0, gt=0
    )
    rope_high_freq_factor: float = setting(
        "Wavelengths below rope_original_max_seq_len / this stay.", default=4.0, gt=0
    )
    rope_original_max_seq_len: int = setting(
        "Context length before the stretch.", default=8192, gt=0, unit="tokens"
    )
    feed_forward: str = setting(
        "Feed-forward part.", default="swiglu", choices=("swiglu", "gelu", "gelu_tanh")
    )
    biases: str = setting(
        "Which linear layers and LayerNorms have a bias (the head never has).",
        default="none",
        choices=("none", "all"),
    )
    tie_embeddings: bool = setting("Whether the head is the embedding.", default=False)
    dropout: float = setting(
        "Share of elements dropped from embeddings, attention weights and residual branches.",
        default=0.0,
        ge=0,
        lt=1,
    )
    init_std: float = setting("Standard deviation of the initial weights.", default=0.02, gt=0)
    init_from: str | None = setting(
        "Artifact, run, folder of a model or name on the Hub to take weights from; null: random. It counts "
        "by its content.",
        default=None,
        result=False,
    )

    @property
    def key_heads(self) -> int:
        """Number of key and value heads, resolved."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def width_of_head(self) -> int:
        """Width of one head, resolved."""
        return self.d_model // self.n_heads if self.head_dim is None else self.head_dim

    def with_vocabulary(self, tokenizer_vocab_size: int) -> ModelSpec:
        """This spec with its vocabulary filled in from a tokenizer's size.

        Raises:
            ValueError: the vocabulary is given and smaller than the tokenizer's.
        """
        rows = resolve_vocabulary(self.vocab_size, tokenizer_vocab_size)
        return dataclasses.replace(self, vocab_size=rows)

    def check(self) -> Iterator[Mistake]:
        """Heads divide the width, key heads the heads; rotary fields fit together."""
        yield from self._check_heads()
        if self.position != "rope" and self.rope_scaling != "none":
            yield Mistake(
                "rope_scaling",
                f"rope_scaling={self.rope_scaling} has no effect with position={self.position}",
                "set position=rope, or rope_scaling=none",
            )
        if self.rope_scaling != "none":
            yield from self._check_rope_scaling()

    def _check_heads(self) -> Iterator[Mistake]:
        if self.head_dim is None and self.d_model % self.n_heads:
            yield Mistake(
                "n_heads",
                f"n_heads={self.n_heads} does not divide d_model={self.d_model}",
                f"use {_nearest_divisor(self.d_model, self.n_heads)}, or give head_dim",
            )
            return
        if self.n_heads % self.key_heads:
            yield Mistake(
                "n_kv_heads",
                f"n_kv_heads={self.key_heads} does not divide n_heads={self.n_heads}",
                f"use {_nearest_divisor(self.n_heads, self.key_heads)}",
            )
        if self.position == "rope" and self.width_of_head % 2:
            yield Mistake(
                "head_dim" if self.head_dim is not None else "n_heads",
                f"heads are {self.width_of_head} wide; rotary positions turn pairs and need an even width",
                f"use head_dim={self.width_of_head + 1}, or position=learned",
            )

    def _check_rope_scaling(self) -> Iterator[Mistake]:
        if self.rope_low_freq_factor >= self.rope_high_freq_factor:
            yield Mistake(
                "rope_low_freq_factor",
                f"rope_low_freq_factor={self.rope_low_freq_factor} is not below "
                f"rope_high_freq_factor={self.rope_high_freq_factor}",
                "Llama 3.1 uses 1 and 4",
            )


def resolve_vocabulary(vocab_size: int | None, tokenizer_vocab_size: int | None) -> int:
    """Rows of the embedding: ``vocab_size`` if given, else the tokenizer's.

    Raises:
        ValueError: neither is given, or there are fewer rows than tokens.
    """
    if vocab_size is None:
        if tokenizer_vocab_size is None:
            raise ValueError("vocab_size is null and no tokenizer's size was given: set model.vocab_size")
        return tokenizer_vocab_size
    if tokenizer_vocab_size is not None and vocab_size < tokenizer_vocab_size:
        raise ValueError(
            f"vocab_size={vocab_size} has fewer rows than the tokenizer has tokens ({tokenizer_vocab_size}): "
            f"set model.vocab_size={tokenizer_vocab_size} or more, or null"
        )
    return vocab_size


def n_params(spec: ModelSpec) -> int:
    """Number of parameters, a tied matrix counted once.

    Raises:
        ValueError: the vocabulary is still null (see :meth:`ModelSpec.with_vocabulary`).
    """
    d, bias = spec.d_model, spec.biases == "all"
    norm = d * (2 if bias and spec.norm == "layer_norm" else 1)
    positions = spec.max_seq_len * d if spec.position == "learned" else 0
    embeddings = resolve_vocabulary(spec.vocab_size, None) * d * (1 if spec.tie_embeddings else 2)
    block = _block_matrices(spec) + (_block_biases(spec) if bias else 0) + 2 * norm
    return embeddings + positions + spec.n_layers * block + norm


def n_active_params(spec: ModelSpec) -> int:
    """Parameters that take part in one token's forward pass: all of them in a dense decoder."""
    return n_params(spec)


def flops_per_token(spec: ModelSpec, seq_len: int) -> int:
    """Floating-point operations of forward and backward pass for one trained token.

    6 for each weight of a matrix that a token is multiplied with (the head, tied or not; not the
    embedding, which is a look-up), and 12 · n_layers · n_heads · head_dim · seq_len for attention:
    PaLM's count (arXiv:2204.02311, appendix B), with the whole square of attention and no
    recomputation. Norms, activations and softmax are left out.
    """
    vocabulary = resolve_vocabulary(spec.vocab_size, None)
    weights = spec.n_layers * _block_matrices(spec) + vocabulary * spec.d_model
    return 6 * weights + 12 * spec.n_layers * spec.n_heads * spec.width_of_head * seq_len


def _block_matrices(spec: ModelSpec) -> int:
    queries, keys = spec.n_heads * spec.width_of_head, spec.key_heads * spec.width_of_head
    attention = spec.d_model * (2 * queries + 2 * keys)
    return attention + _ffn_matrices(spec) * spec.d_model * spec.ffn_dim


def _block_biases(spec: ModelSpec) -> int:
    queries, keys = spec.n_heads * spec.width_of_head, spec.key_heads * spec.width_of_head
    attention = queries + 2 * keys + spec.d_model
    return attention + (_ffn_matrices(spec) - 1) * spec.ffn_dim + spec.d_model


def _ffn_matrices(spec: ModelSpec) -> int:
    return 3 if spec.feed_forward == "swiglu" else 2


def _nearest_divisor(number: int, wish: int) -> int:
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return min(divisors, key=lambda d: (abs(d - wish), d))
