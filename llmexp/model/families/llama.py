"""Llama 1 to 3.3: RMSNorm, rotary positions, SwiGLU, grouped heads."""

from __future__ import annotations

from typing import Any

from llmexp.model.config import ModelSpec
from llmexp.model.families.base import ConfigReader, Entry, Family

_SCALING_KEYS = {
    "factor": "rope_factor",
    "low_freq_factor": "rope_low_freq_factor",
    "high_freq_factor": "rope_high_freq_factor",
    "original_max_position_embeddings": "rope_original_max_seq_len",
}


def spec_from(config: ConfigReader) -> ModelSpec:
    """Our spec of a Llama ``config.json``; defaults are those of ``transformers``."""
    config.only("hidden_act", "silu")
    config.only("attention_dropout", 0.0)
    # It splits matrices to imitate how Llama 1 was trained; the result is the same up to rounding.
    config.skip("pretraining_tp")
    bias = config.take("attention_bias", False)
    mlp_bias = config.take("mlp_bias", False)
    if mlp_bias != bias:
        config.refuse("mlp_bias", mlp_bias)
    n_heads = config.need("num_attention_heads")
    spec = ModelSpec(
        d_model=config.need("hidden_size"),
        n_layers=config.need("num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=config.take("num_key_value_heads", n_heads),
        head_dim=config.take("head_dim"),
        ffn_dim=config.need("intermediate_size"),
        vocab_size=config.need("vocab_size"),
        max_seq_len=config.take("max_position_embeddings", 2048),
        norm="rms_norm",
        norm_eps=config.take("rms_norm_eps", 1e-6),
        position="rope",
        feed_forward="swiglu",
        biases="all" if bias else "none",
        tie_embeddings=config.take("tie_word_embeddings", False),
        init_std=config.take("initializer_range", 0.02),
        **_rope(config),
    )
    config.finish()
    return spec


def _rope(config: ConfigReader) -> dict[str, Any]:
    # transformers 5 writes one dict rope_parameters; version 4 wrote rope_theta and rope_scaling.
    scaling = dict(config.take("rope_scaling", {}))
    scaling = dict(config.take("rope_parameters", scaling))
    theta = config.take("rope_theta", 10000.0)
    reader = ConfigReader(scaling, "config.json, rope_parameters")
    values: dict[str, Any] = {"rope_theta": float(reader.take("rope_theta", theta))}
    kind = reader.take("rope_type", reader.take("type", "default"))
    reader.skip("type")
    reader.only("partial_rotary_factor", 1.0)
    if kind == "llama3":
        values |= {ours: reader.need(theirs) for theirs, ours in _SCALING_KEYS.items()}
        values["rope_scaling"] = "llama3"
    elif kind != "default":
        reader.refuse("rope_type", kind)
    reader.finish()
    return values


def config_from(spec: ModelSpec) -> dict[str, Any]:
    """The ``config.json`` of ``spec``, with rotary settings in the form of both major versions."""
    rope: dict[str, Any] = {"rope_theta": spec.rope_theta, "rope_type": "default"}
    scaling = None
    if spec.rope_scaling == "llama3":
        scaling = {theirs: getattr(spec, ours) for theirs, ours in _SCALING_KEYS.items()}
        scaling["rope_type"] = "llama3"
        rope |= scaling
    return {
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.n_layers,
        "num_attention_heads": spec.n_heads,
        "num_key_value_heads": spec.key_heads,
        "head_dim": spec.width_of_head,
        "intermediate_size": spec.ffn_dim,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_seq_len,
        "hidden_act": "silu",
        "rms_norm_eps": spec.norm_eps,
        "attention_bias": spec.biases == "all",
        "mlp_bias": spec.biases == "all",
        "attention_dropout": 0.0,
        "tie_word_embeddings": spec.tie_embeddings,
        "initializer_range": spec.init_std,
        "rope_parameters": rope,
        "rope_theta": spec.rope_theta,
        "rope_scaling": scaling,
    }


_BLOCK = {
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "attention.q",
    "self_attn.k_proj": "attention.k",
    "self_attn.v_proj": "attention.v",
    "self_attn.o_proj": "attention.out",
    "post_attention_layernorm": "feed_forward_norm",
    "mlp.gate_proj": "feed_forward.gate",
    "mlp.up_proj": "feed_forward.up",
    "mlp.down_proj": "feed_forward.down",
}


def entries(spec: ModelSpec) -> list[Entry]:
    """Their tensors and ours. Rotary pairs lie in the same order on both sides."""
    table = [Entry("model.embed_tokens.weight", ("embed.weight",))]
    for layer in range(spec.n_layers):
        for theirs, ours in _BLOCK.items():
            biased = spec.biases == "all" and "norm" not in theirs
            for kind in ("weight", "bias") if biased else ("weight",):
                table.append(
                    Entry(f"model.layers.{layer}.{theirs}.{kind}", (f"blocks.{layer}.{ours}.{kind}",))
                )
    table.append(Entry("model.norm.weight", ("norm.weight",)))
    if not spec.tie_embeddings:
        table.append(Entry("lm_head.weight", ("head.weight",)))
    return table


FAMILY = Family(
    architecture="LlamaForCausalLM",
    prefix="model.",
    spec_from=spec_from,
    config_from=config_from,
    entries=entries,
    ignored=("rotary_emb.inv_freq",),
)
