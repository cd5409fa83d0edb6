"""K02: shorter prompts in a batch give wrong text."""

import json
from itertools import permutations
from pathlib import Path

import pytest
import torch

from llmexp.model.config import ModelSpec
from llmexp.rollout.engine import generate
from llmexp.rollout.sampling import Sampling

PROMPTS = [
    list(json.loads(line)["prompt"].encode())
    for line in (Path(__file__).parent / "inputs/k02_prompts.jsonl").read_text().splitlines()
]
GREEDY = Sampling(temperature=0, max_new_tokens=12)
FAMILIES = {
    "llama": {"n_kv_heads": 2},
    "gpt2": {"position": "learned", "norm": "layer_norm", "feed_forward": "gelu_tanh", "biases": "all"},
}


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    sizes = {"d_model": 32, "n_layers": 2, "n_heads": 4, "ffn_dim": 64, "vocab_size": 256, "max_seq_len": 128}
    decoder = ModelSpec(**sizes, **FAMILIES[request.param]).build(seed=1)
    with torch.no_grad():  # sharper than an untrained model, so that texts differ from prompt to prompt
        for parameter in decoder.parameters():
            parameter.mul_(3)
    return decoder


def without_cache(model: torch.nn.Module, prompt: list[int], n: int) -> tuple[list[int], torch.Tensor]:
    """The likeliest continuation by full forward passes, and its log-probabilities."""
    ids, found = list(prompt), []
    with torch.no_grad():
        for _ in range(n):
            logprobs = model(torch.tensor([ids]))[0, -1].log_softmax(-1)
            ids.append(int(logprobs.argmax()))
            found.append(logprobs[ids[-1]])
    return ids[len(prompt) :], torch.stack(found)


def test_a_batch_in_any_order_gives_what_each_prompt_gives_alone(model: torch.nn.Module) -> None:
    alone = [without_cache(model, prompt, 12) for prompt in PROMPTS]
    for order in permutations(range(3)):
        batch = generate(model, [PROMPTS[i] for i in order], GREEDY, [0, 0, 0], [])
        assert batch.ids.tolist() == [alone[i][0] for i in order]
        assert torch.allclose(batch.logprobs, torch.stack([alone[i][1] for i in order]), atol=1e-4)


def test_a_row_that_stopped_emits_only_padding(model: torch.nn.Module) -> None:
    whole = generate(model, PROMPTS, GREEDY, [0, 0, 0], [])
    stop = int(whole.ids[0, 4])  # known to occur, in the middle of the first row
    batch = generate(model, PROMPTS, GREEDY, [0, 0, 0], [stop], pad_id=stop)
    assert bool((batch.ids[~batch.mask] == stop).all())
    for row in range(3):
        ids = batch.ids[row, : batch.lengths[row]].tolist()
        assert ids == whole.ids[row, : len(ids)].tolist()
        assert stop not in ids[:-1]
