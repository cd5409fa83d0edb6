"""Plans: closed forms against what torch really keeps, counts and what is said to be unknown."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from llmexp.data.config import LoaderSpec
from llmexp.model.config import ModelSpec, flops_per_token, n_params
from llmexp.parallel.config import ParallelSpec
from llmexp.plan.config import DeviceKind, HardwareSpec
from llmexp.plan.detect import _cpu, detected, fp32_lanes, known_devices, multiplies_bf16, of_one_rank
from llmexp.plan.estimate import muon_flops, plan
from llmexp.plan.memory import activation_bytes, adamw_bytes, memory_parts, muon_bytes
from llmexp.store.machine import control_group_limits
from llmexp.train.config import AdamWSpec, MuonSpec, Precision, Recompute, TrainerSpec

ROOT = Path(__file__).parents[2]
NAMES = {
    *("auto", "cpu", "a100_40", "a100_80", "h100_sxm", "h100_sxm_96gb_500w", "h100_pcie", "h800", "h200"),
    *("b200", "gb200_nvl72", "rubin_nvl144", "mi300x", "l40s", "rtx4090", "tpu_v5p"),
}
DEVICE = HardwareSpec(
    kind=DeviceKind.cuda,
    peak_flops_fp32=1e13,
    peak_flops_bf16=1e14,
    memory_bytes=8 * 2**30,
    memory_bandwidth=1e12,
    price_per_device_hour=2.0,
)


def option(name: str) -> ModelSpec:
    data = yaml.safe_load((ROOT / "conf" / "model" / f"{name}.yaml").read_text())
    return ModelSpec(**{key: value for key, value in data.items() if key != "_target_"})


def make_plan(model: str = "small", hardware: HardwareSpec = DEVICE, **changes: object):
    trainer = {"max_steps": 100, "global_batch": 16, "micro_batch": 8, "precision": Precision.bf16}
    groups = {
        "loader": LoaderSpec(seq_len=256),
        "optimizer": changes.pop("optimizer", AdamWSpec()),
        "parallel": changes.pop("parallel", ParallelSpec()),
        "tokenizer_vocab_size": changes.pop("tokenizer_vocab_size", None),
    }
    return plan(option(model), hardware=hardware, trainer=TrainerSpec(**{**trainer, **changes}), **groups)


def kept_bytes(spec: ModelSpec, precision: str, recompute: bool, seq_len: int = 64) -> tuple[int, int]:
    """What autograd keeps for the backward pass of the hidden states, without weights; and the tokens."""
    model = spec.build(seed=0)
    model.recompute = recompute
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    shapes = {tuple(p.shape) for p in model.parameters()} | {tuple(p.shape)[::-1] for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        copy_of_weight = tensor.dtype is torch.bfloat16 and tuple(tensor.shape) in shapes
        if tensor.untyped_storage().data_ptr() not in weights and not copy_of_weight:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.zeros(3, seq_len, dtype=torch.int64)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"),
    ):
        hidden = model.hidden(ids)
    assert hidden.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()), ids.numel()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("changes", [{}, {"n_kv_heads": 2}, {"norm": "layer_norm", "feed_forward": "gelu"}])
def test_activations_are_what_autograd_keeps_within_five_percent(changes, precision):
    spec = dataclasses.replace(option("small"), n_layers=3, **changes)
    kept, tokens = kept_bytes(spec, precision, recompute=False)
    assert activation_bytes(spec, tokens, precision, recompute=False) == pytest.approx(kept, rel=0.05)


def test_recomputed_blocks_keep_their_inputs():
    spec = option("small")
    kept, tokens = kept_bytes(spec, "fp32", recompute=True)
    block = activation_bytes(dataclasses.replace(spec, n_layers=1), tokens, "fp32", recompute=True)
    block -= tokens * spec.d_model * 4
    expected = activation_bytes(spec, tokens, "fp32", recompute=True)
    assert kept < expected < kept + 1.1 * block


MEASURE = """
import torch
from llmexp.model.config import ModelSpec
from llmexp.objective.cross_entropy import summed_cross_entropy
rows, seq_len = 4, 256
torch.set_num_threads(1)
ids = torch.randint(0, 8192, (rows, seq_len))
positions, doc_ids = torch.arange(seq_len).expand(rows, -1), torch.zeros(rows, seq_len)
def peak():
    # Of this address space alone; ru_maxrss would begin at the parent's.
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
def step(model, optimizer, n):
    hidden = model.hidden(ids[:, :n], positions[:, :n], doc_ids[:, :n])
    mask = torch.ones(hidden.shape[:2], dtype=torch.bool)
    summed_cross_entropy(hidden, model.head_weight, ids[:, :n], mask).backward()
    optimizer.step()
tiny = dict(d_model=32, n_layers=1, n_heads=2, ffn_dim=32, vocab_size=8192, max_seq_len=256)
warm = ModelSpec(**tiny).build(seed=0)
step(warm, torch.optim.AdamW(warm.parameters()), 8)
before = peak()
small = dict(d_model=384, n_layers=6, n_heads=6, ffn_dim=1024, vocab_size=8192, max_seq_len=1024)
model = ModelSpec(**small).build(seed=0)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    step(model, optimizer, seq_len)
print(peak() - before)
"""


def test_the_peak_is_within_a_quarter_of_measured_growth_on_a_cpu():
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    spec = option("small")
    parts = memory_parts(
        spec,
        tokens=4 * 256,
        seq_len=256,
        precision="fp32",
        recompute=False,
        optimizer_bytes=adamw_bytes(spec),
    )
    assert 1 / 1.25 < sum(parts.values()) / int(done.stdout) < 1.25


def test_optimizer_bytes_are_those_of_the_real_states():
    from llmexp.train.optimizers import adamw, muon

    spec = option("debug").with_vocabulary(50)
    values = AdamWSpec().values()
    for make, keywords, expected in (
        (adamw, values, adamw_bytes(spec)),
        (muon, MuonSpec().values(), muon_bytes(spec)),
    ):
        model = spec.build(seed=0)
        optimizer = make(parameters=dict(model.named_parameters()), **keywords)
        model(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
        optimizer.step()
        found = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
        parts = getattr(optimizer, "parts", [])
        found += [t for p in parts for s in p.state.values() for t in s.values() if torch.is_tensor(t)]
        unique = {t.data_ptr(): t.nbytes for t in found if t.dim() > 0}
        assert sum(unique.values()) == expected


def test_the_plan_has_its_stable_keys_and_integers():
    data = json.loads(json.dumps(make_plan().as_json()))
    spec = option("small")
    assert data["n_params"] == data["n_active_params"] == n_params(spec)
    assert data["flops_per_token"] == flops_per_token(spec, 256)
    assert data["memory_bytes"]["peak"] == sum(data["memory_bytes"]["parts"].values())
    for key in ("step_seconds", "tokens_per_second_per_device", "mfu", "device_hours"):
        assert data[key] > 0
    assert data["cost"] == {"amount": pytest.approx(2 * data["device_hours"]), "currency": "USD"}


def test_time_mfu_and_hours_agree_with_each_other():
    made = make_plan(parallel=ParallelSpec(dp_replicate=2))
    tokens = 8 * 256
    assert made.tokens_per_second_per_device == pytest.approx(tokens / made.step_seconds)
    assert made.mfu == pytest.approx(made.flops_per_token * made.tokens_per_second_per_device / 1e14)
    assert 0 < made.mfu < DEVICE.reached
    assert made.device_hours == pytest.approx(2 * 100 * made.step_seconds / 3600)


@given(micro=st.integers(1, 64), seq_len=st.sampled_from([64, 256, 1024]))
@hypothesis_settings(max_examples=20, deadline=None)
def test_memory_grows_with_the_micro_batch_and_recomputing_needs_less(micro, seq_len):
    def peak(rows: int, recompute: bool) -> int:
        parts = memory_parts(
            option("small"),
            tokens=rows * seq_len,
            seq_len=seq_len,
            precision="bf16",
            recompute=recompute,
            optimizer_bytes=0,
        )
        return sum(parts.values())

    assert peak(micro, False) < peak(micro + 1, False)
    assert peak(micro, True) < peak(micro, False)


def test_a_null_micro_batch_becomes_the_largest_that_fits():
    assert make_plan(micro_batch=None).micro_batch == 16
    needed = make_plan(micro_batch=4).memory_bytes["peak"]
    small = dataclasses.replace(DEVICE, memory_bytes=needed * 10 // 9 + 9)
    tight = make_plan(micro_batch=None, hardware=small)
    assert tight.micro_batch == 4
    assert tight.fits


def test_ranks_on_a_cpu_share_its_peaks():
    host = dataclasses.replace(DEVICE, kind=DeviceKind.cpu, memory_bandwidth=None)
    alone = make_plan(hardware=host, global_batch=64, micro_batch=4)
    four = make_plan(hardware=host, global_batch=64, micro_batch=4, parallel=ParallelSpec(dp_replicate=4))
    assert four.step_seconds == pytest.approx(alone.step_seconds)
    assert four.mfu == pytest.approx(alone.mfu)


def test_a_run_that_stays_on_the_cpu_is_planned_for_it():
    auto = known_devices()["auto"]
    found = of_one_rank(auto, 1, on_cpu=True)
    assert found == detected(dataclasses.replace(auto, kind=DeviceKind.cpu))
    h100 = known_devices()["h100_sxm"]
    assert of_one_rank(h100, 4, on_cpu=False) == h100


@pytest.mark.parametrize(
    "vendor, family, flags, lanes",
    [
        ("AuthenticAMD", "26", "avx2 avx512f", 16),
        ("AuthenticAMD", "25", "avx2 avx512f", 8),
        ("GenuineIntel", "6", "avx2 avx512f", 16),
        ("GenuineIntel", "6", "avx2", 8),
        ("AuthenticAMD", "unknown", "avx2 avx512f", 8),
        ("", "", "", 4),
    ],
)
def test_a_cpu_multiplies_as_many_numbers_at_once_as_its_kind_does(vendor, family, flags, lanes):
    assert fp32_lanes({"vendor_id": vendor, "cpu family": family, "flags": flags}) == lanes


def test_ranks_on_a_cpu_share_its_memory():
    needed = make_plan(micro_batch=4).memory_bytes["peak"]
    host = dataclasses.replace(DEVICE, kind=DeviceKind.cpu, memory_bytes=4 * needed * 10 // 9 + 99)
    alone, four = (
        make_plan(micro_batch=None, global_batch=16 * n, hardware=host, parallel=ParallelSpec(dp_replicate=n))
        for n in (1, 4)
    )
    assert (alone.micro_batch, four.micro_batch) == (16, 4)
    assert four.fits
    assert 4 * four.memory_bytes["peak"] <= alone.memory_limit_bytes
    assert any("4 ranks share" in note for note in four.notes)
    gpus = make_plan(
        micro_batch=None,
        global_batch=64,
        hardware=dataclasses.replace(host, kind=DeviceKind.cuda),
        parallel=ParallelSpec(dp_replicate=4),
    )
    assert gpus.micro_batch == 16


def test_a_model_that_does_not_fit_is_said_not_to():
    assert not make_plan("llama3_8b", micro_batch=1).fits


def test_an_unknown_peak_leaves_time_open_and_says_why():
    made = make_plan(hardware=dataclasses.replace(DEVICE, peak_flops_bf16=None))
    assert made.step_seconds is made.mfu is made.device_hours is None
    assert any("peak is unknown" in note for note in made.notes)


def test_a_budget_of_seconds_gives_its_hours():
    assert make_plan(max_steps=None, max_seconds=7200.0).device_hours == 2.0


def test_recomputation_and_muon_take_more_time():
    plain = make_plan().step_seconds
    assert make_plan(activation_checkpointing=Recompute.block).step_seconds > plain
    assert make_plan(optimizer=MuonSpec()).step_seconds > plain


def test_muons_operations_are_those_of_its_products():
    spec = dataclasses.replace(option("debug"), n_layers=1, n_kv_heads=4)
    from torch.utils.flop_counter import FlopCounterMode

    from llmexp.train.optimizers import muon

    model = spec.with_vocabulary(50).build(seed=0)
    blocks = {name: p for name, p in model.named_parameters() if name.startswith("blocks") and p.dim() == 2}
    for parameter in blocks.values():
        parameter.grad = torch.randn_like(parameter)
    optimizer = muon(parameters=blocks, **MuonSpec().values())
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    assert counter.get_total_flops() == pytest.approx(muon_flops(spec, 5), rel=0.01)


def test_a_null_vocabulary_takes_the_tokenizers_and_without_one_is_a_mistake():
    assert make_plan("tiny", tokenizer_vocab_size=4096).n_params == 2_410_176
    with pytest.raises(ValueError, match="vocab_size"):
        make_plan("tiny")


def test_every_hardware_option_is_there_and_names_its_source():
    assert known_devices().keys() == NAMES
    for name in sorted(NAMES):
        text = (ROOT / "conf" / "hardware" / f"{name}.yaml").read_text()
        known = known_devices()[name]
        assert text.startswith("# ")
        assert known.price_per_device_hour is None
        if known.kind in (DeviceKind.auto, DeviceKind.cpu):
            assert known.peak_flops_bf16 is None
        else:
            assert "source: " in text.lower()
            assert known.peak_flops_bf16
            assert known.memory_bytes
            assert known.memory_bandwidth


def test_no_two_devices_answer_to_the_same_name():
    names = [name for device in known_devices().values() for name in device.device_names]
    assert len(set(names)) == len(names)


def test_what_does_not_fit_says_what_its_time_stands_for():
    small = make_plan(hardware=dataclasses.replace(DEVICE, memory_bytes=2**20))
    assert small.fits is False
    assert any("does not fit" in note for note in small.notes)
    assert not any("does not fit" in note for note in make_plan().notes)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_this_machine_is_described(name):
    found = detected(known_devices()[name])
    assert found.kind is not DeviceKind.auto
    assert found.memory_bytes > 2**28
    assert found.peak_flops_fp32 > 1e9
    assert known_devices()[name].peak_flops("fp32") == found.peak_flops_fp32


@pytest.mark.parametrize(
    "line, files, expected",
    [
        (
            "0::/job/step",
            {"job/step/memory.max": "max", "job/memory.max": "2000", "memory.max": "9000"},
            2000,
        ),
        ("0::/", {"memory.max": "max"}, None),
        ("4:cpu,memory:/job", {"memory/job/memory.limit_in_bytes": "3000"}, 3000),
        # In a container the file of the host's group is found at the top.
        ("4:memory:/docker/1f", {"memory/memory.limit_in_bytes": "4000"}, 4000),
        ("4:cpuset:/job", {"memory/job/memory.limit_in_bytes": "3000"}, None),
    ],
)
def test_the_limit_of_a_control_group_is_found(tmp_path, line, files, expected):
    for name, text in {
        "proc/self/cgroup": line,
        **{f"sys/fs/cgroup/{k}": v for k, v in files.items()},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert min(control_group_limits(tmp_path), default=None) == expected


@pytest.mark.parametrize("limits", [[], [2**20]])
def test_a_host_has_no_more_memory_than_its_control_group(monkeypatch, limits):
    monkeypatch.setattr("llmexp.store.machine.control_group_limits", lambda _: iter(limits))
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert _cpu.__wrapped__().memory_bytes == min([host, *limits])


def test_what_the_config_says_wins_over_what_is_found():
    given = {"peak_flops_fp32": 1e12, "price_per_device_hour": 3.0, "assumed_mfu": 0.25}
    found = detected(dataclasses.replace(known_devices()["auto"], **given))
    assert {name: getattr(found, name) for name in given} == given


def test_whether_the_cpu_multiplies_bf16_is_what_torch_finds():
    assert multiplies_bf16() == torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.mark.skipif(multiplies_bf16(), reason="this CPU has bf16 products")
def test_a_cpu_without_bf16_products_gets_no_estimate_but_the_advice():
    found = make_plan(hardware=known_devices()["cpu"])
    assert found.step_seconds is None
    assert any("trainer.precision=fp32" in note for note in found.notes)


def test_planning_for_a_named_device_imports_no_torch():
    code = (
        "import sys, llmexp.plan.estimate; from llmexp.plan.detect import known_devices as k, detected;"
        "detected(k()['h100_sxm']); detected(k()['cpu']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_the_plan_knows_how_many_logits_the_loss_holds():
    from llmexp.objective import cross_entropy
    from llmexp.plan import memory

    assert memory.LOGITS_AT_ONCE == cross_entropy.LOGITS_AT_ONCE
    spec = dataclasses.replace(option("tiny"), vocab_size=1024)
    at_once = memory.LOGITS_AT_ONCE // 1024
    assert memory.logit_bytes(spec, at_once, "fp32") == memory.logit_bytes(spec, 10 * at_once, "fp32")
