"""Memory of one device while it trains, in closed form. Imports no torch.

The count goes through the decoder's own operations and adds up what each keeps for its backward
pass, as Korthikanti et al. 2022 (arXiv:2205.05198, section 4) do for GPT; attention is fused and
keeps no scores. It holds without dropout and without torch.compile, which keep more and less.
"""

from __future__ import annotations

from llmexp.model.config import ModelSpec, n_params, resolve_vocabulary

MASTER = 4
"""Bytes of a weight, of its gradient and of a number of the residual stream: fp32."""

COMPUTE = {"fp32": 4, "bf16": 2}
"""Bytes of a number in matrix products."""

LOGITS_AT_ONCE = 1 << 26
"""Logits that the cross entropy holds whole (llmexp.objective.cross_entropy); more are chunked."""


def memory_parts(
    spec: ModelSpec, *, tokens: int, seq_len: int, precision: str, recompute: bool, optimizer_bytes: int
) -> dict[str, int]:
    """Bytes by part for a micro-batch of ``tokens`` tokens in sequences of ``seq_len``.

    All parts are there at once at the start of the backward pass of a step's last micro-batch
    (of the gradients, when there is just one micro-batch, only what it has made so far): their
    sum is the peak, and a bound where gradients come as activations go.
    """
    parameters = n_params(spec)
    parts = {
        "weights": MASTER * parameters,
        "gradients": MASTER * parameters,
        "optimizer": optimizer_bytes,
        "activations": activation_bytes(spec, tokens, precision, recompute),
        "attention_mask": tokens * seq_len * COMPUTE[precision],
        "logits": logit_bytes(spec, tokens, precision),
    }
    if precision != "fp32":
        # Autocast keeps each matrix a second time in the dtype of the products.
        parts["weight_copies"] = COMPUTE[precision] * _matrices(spec)
    return parts


def activation_bytes(spec: ModelSpec, tokens: int, precision: str, recompute: bool) -> int:
    """What the blocks and the final norm keep for the backward pass.

    With ``recompute`` each block keeps its input, and one block at a time all of it.
    """
    compute = COMPUTE[precision]
    block = _block_bytes_per_token(spec, compute)
    kept = spec.n_layers * spec.d_model * MASTER + block if recompute else spec.n_layers * block
    return tokens * (kept + _norm_bytes_per_token(spec, compute))


def logit_bytes(spec: ModelSpec, tokens: int, precision: str) -> int:
    """The logits' log-softmax and two gradients in fp32, and the logits in the dtype of products."""
    logits = min(tokens * resolve_vocabulary(spec.vocab_size, None), LOGITS_AT_ONCE)
    return logits * (3 * MASTER + (COMPUTE[precision] if precision != "fp32" else 0))


def adamw_bytes(spec: ModelSpec) -> int:
    """Two running means a parameter, in fp32."""
    return 2 * MASTER * n_params(spec)


def muon_bytes(spec: ModelSpec) -> int:
    """One running mean for a matrix of a block, AdamW's two for every other parameter."""
    return 2 * MASTER * n_params(spec) - MASTER * sum(m * n for m, n in block_matrices(spec))


def block_matrices(spec: ModelSpec) -> list[tuple[int, int]]:
    """(out, in) of every matrix in the blocks."""
    queries, keys = spec.n_heads * spec.width_of_head, spec.key_heads * spec.width_of_head
    d, f = spec.d_model, spec.ffn_dim
    ffn = [(f, d), (f, d), (d, f)] if spec.feed_forward == "swiglu" else [(f, d), (d, f)]
    return [(queries, d), (keys, d), (keys, d), (d, queries), *ffn] * spec.n_layers


def _block_bytes_per_token(spec: ModelSpec, compute: int) -> int:
    heads = spec.n_heads + spec.key_heads
    # Rotated queries, keys, values, and the mixed values; and the softmax's normaliser a head.
    attention = 2 * heads * spec.width_of_head * compute + spec.n_heads * MASTER
    # SwiGLU keeps gate, silu(gate), up and their product; GELU its input and output.
    ffn = (4 if spec.feed_forward == "swiglu" else 2) * spec.ffn_dim * compute
    return 2 * _norm_bytes_per_token(spec, compute) + attention + ffn


def _norm_bytes_per_token(spec: ModelSpec, compute: int) -> int:
    # Its input, its output as the next product reads it, and for RMSNorm the normalised input.
    kept = 2 if spec.norm == "rms_norm" else 1
    return spec.d_model * (kept * MASTER + compute) + (1 if spec.norm == "rms_norm" else 2) * MASTER


def _matrices(spec: ModelSpec) -> int:
    head = resolve_vocabulary(spec.vocab_size, None) * spec.d_model
    return head + sum(m * n for m, n in block_matrices(spec))
