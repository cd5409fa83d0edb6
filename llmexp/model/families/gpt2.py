"""GPT-2: learned positions, LayerNorm, GELU, biases everywhere; linear layers stored as (in, out)."""

from __future__ import annotations

from typing import Any

from llmexp.model.config import ModelSpec
from llmexp.model.families.base import ConfigReader, Entry, Family

_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}


def spec_from(config: ConfigReader) -> ModelSpec:
    """Our spec of a GPT-2 ``config.json``; defaults are those of ``transformers``."""
    config.only("scale_attn_weights", True)
    config.only("scale_attn_by_inverse_layer_idx", False)
    config.only("add_cross_attention", False)
    # It chooses the order of a scaling for mixed precision; the function is the same.
    config.skip("reorder_and_upcast_attn")
    # Settings of other heads and of text generation, found in the published files.
    config.skip("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels")
    config.skip("summary_first_dropout", "task_specific_params", "n_ctx")
    activation = config.take("activation_function", "gelu_new")
    if activation not in _ACTIVATIONS:
        config.refuse("activation_function", activation)
    d_model = config.need("n_embd")
    dropout = config.take("resid_pdrop", 0.1)
    for other in ("embd_pdrop", "attn_pdrop"):
        share = config.take(other, 0.1)
        if share != dropout:
            config.refuse(other, share)
    spec = ModelSpec(
        d_model=d_model,
        n_layers=config.need("n_layer"),
        n_heads=config.need("n_head"),
        ffn_dim=config.take("n_inner", 4 * d_model),
        vocab_size=config.need("vocab_size"),
        max_seq_len=config.take("n_positions", 1024),
        norm="layer_norm",
        norm_eps=config.take("layer_norm_epsilon", 1e-5),
        position="learned",
        feed_forward=_ACTIVATIONS[activation],
        biases="all",
        tie_embeddings=config.take("tie_word_embeddings", True),
        dropout=dropout,
        init_std=config.take("initializer_range", 0.02),
    )
    config.finish()
    return spec


def config_from(spec: ModelSpec) -> dict[str, Any]:
    """The ``config.json`` of ``spec``."""
    return {
        "n_embd": spec.d_model,
        "n_layer": spec.n_layers,
        "n_head": spec.n_heads,
        "n_inner": spec.ffn_dim,
        "vocab_size": spec.vocab_size,
        "n_positions": spec.max_seq_len,
        "layer_norm_epsilon": spec.norm_eps,
        "activation_function": "gelu_new" if spec.feed_forward == "gelu_tanh" else "gelu",
        "resid_pdrop": spec.dropout,
        "embd_pdrop": spec.dropout,
        "attn_pdrop": spec.dropout,
        "tie_word_embeddings": spec.tie_embeddings,
        "initializer_range": spec.init_std,
    }


_BLOCK = {
    "ln_1": ("attention_norm",),
    "attn.c_attn": ("attention.q", "attention.k", "attention.v"),
    "attn.c_proj": ("attention.out",),
    "ln_2": ("feed_forward_norm",),
    "mlp.c_fc": ("feed_forward.up",),
    "mlp.c_proj": ("feed_forward.down",),
}


def entries(spec: ModelSpec) -> list[Entry]:
    """Their tensors and ours; queries, keys and values are one tensor there."""
    table = [
        Entry("transformer.wte.weight", ("embed.weight",)),
        Entry("transformer.wpe.weight", ("position.weight",)),
    ]
    for layer in range(spec.n_layers):
        for theirs, ours in _BLOCK.items():
            for kind in ("weight", "bias"):
                names = tuple(f"blocks.{layer}.{name}.{kind}" for name in ours)
                transposed = kind == "weight" and not theirs.startswith("ln_")
                table.append(Entry(f"transformer.h.{layer}.{theirs}.{kind}", names, transposed))
    table += [Entry(f"transformer.ln_f.{kind}", (f"norm.{kind}",)) for kind in ("weight", "bias")]
    if not spec.tie_embeddings:
        table.append(Entry("lm_head.weight", ("head.weight",)))
    return table


FAMILY = Family(
    architecture="GPT2LMHeadModel",
    prefix="transformer.",
    spec_from=spec_from,
    config_from=config_from,
    entries=entries,
    ignored=(".attn.bias", ".attn.masked_bias"),
)
