"""The paths group: where the store is."""

from pathlib import Path

from omegaconf import OmegaConf

from llmexp.config.spec import as_data
from llmexp.store.config import PathsSpec

CONF = Path(__file__).parents[2] / "conf" / "paths"


def test_the_store_lies_below_outputs_wherever_that_is():
    tree = OmegaConf.create({"paths": OmegaConf.load(CONF / "default.yaml")})
    assert tree.paths.store == ["outputs/store"]
    tree.paths.outputs = "/elsewhere"
    assert tree.paths.store == ["/elsewhere/store"]


def test_paths_do_not_count_in_a_fingerprint():
    assert as_data(PathsSpec(outputs="/a"), result_only=True) == as_data(
        PathsSpec(store=["b"]), result_only=True
    )


def test_a_store_named_twice_or_none_is_a_mistake():
    assert [m.path for m in PathsSpec(store=["a", "b", "a"]).check()] == ["store"]
    assert [m.problem for m in PathsSpec(store=[]).check()] == ["is empty: there is nowhere to write"]
    assert [*PathsSpec().check()] == []
