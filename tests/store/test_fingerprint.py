"""Fingerprints and content hashes: what counts, and what does not."""

import dataclasses
import os
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmexp.config.spec import Spec, as_data, setting
from llmexp.store.fingerprint import (
    ContentHasher,
    code_version,
    fingerprint,
    package_source_hash,
    user_sources,
)

values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
configs = st.recursive(
    values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
config_dicts = st.dictionaries(st.text(), configs, max_size=5)


def of(config=None, **changes):
    identity = {
        "kind": "model",
        "stage": "pretrain",
        "version": 1,
        "config": config or {},
        "inputs": {},
        "source": {},
    }
    return fingerprint(**(identity | changes))


def shuffled(value, chance):
    if isinstance(value, dict):
        items = [(key, shuffled(inner, chance)) for key, inner in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [shuffled(inner, chance) for inner in value] if isinstance(value, list) else value


@dataclasses.dataclass(kw_only=True)
class InnerSpec(Spec):
    """A nested spec."""

    lr: float = setting("Rate.", default=0.1)
    workers: int = setting("Processes.", default=1, result=False)


@dataclasses.dataclass(kw_only=True)
class OuterSpec(Spec):
    """A spec with values that count and values that do not."""

    name: str = setting("Name.", default="a")
    steps: int = setting("Steps.", default=1)
    device: str = setting("Device.", default="cpu", result=False)
    inner: InnerSpec = dataclasses.field(default_factory=InnerSpec)


outer = st.builds(
    OuterSpec,
    name=st.text(),
    steps=st.integers(),
    device=st.text(),
    inner=st.builds(InnerSpec, lr=st.floats(allow_nan=False), workers=st.integers()),
)


@given(config_dicts, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_count(config, chance):
    assert of(config) == of(shuffled(config, chance))


@given(config_dicts, config_dicts)
def test_different_configs_have_different_fingerprints(one, other):
    # repr tells 1 from 1.0 and True, as the fingerprint does; sorting makes it blind to order.
    assert (of(one) == of(other)) == (repr(ordered(one)) == repr(ordered(other)))


def ordered(value):
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    return [ordered(inner) for inner in value] if isinstance(value, list) else value


@given(outer, st.text(), st.integers())
def test_values_that_cannot_change_the_result_do_not_count(spec, device, workers):
    other = dataclasses.replace(spec, device=device, inner=dataclasses.replace(spec.inner, workers=workers))
    assert of(as_data(spec, result_only=True)) == of(as_data(other, result_only=True))


@given(outer, st.data())
def test_any_change_of_a_result_value_changes_it(spec, data):
    which = data.draw(st.sampled_from(["name", "steps", "lr"]))
    if which == "lr":
        lr = data.draw(st.floats(allow_nan=False).filter(lambda x: repr(x) != repr(spec.inner.lr)))
        other = dataclasses.replace(spec, inner=dataclasses.replace(spec.inner, lr=lr))
    else:
        kinds = {"name": st.text(), "steps": st.integers()}
        other = dataclasses.replace(
            spec, **{which: data.draw(kinds[which].filter(lambda x: x != getattr(spec, which)))}
        )
    assert of(as_data(spec, result_only=True)) != of(as_data(other, result_only=True))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "corpus"},
        {"stage": "sft"},
        {"version": 2},
        {"inputs": {"corpus": "a" * 32}},
        {"inputs": {"corpus": ["a" * 32]}},
        {"source": {"data": "a" * 64}},
    ],
    ids=str,
)
def test_kind_stage_version_inputs_and_sources_count(change):
    assert of() != of(**change)


def test_a_fingerprint_is_32_hex_characters_and_the_same_in_every_release():
    # Every store that exists rests on this value.
    assert of({"lr": 3e-4, "names": ["ä", None, True]}) == "46feea78e35374b94e8b6cf43e5f4f18"


@pytest.mark.parametrize("config", [{1: "x"}, {"a": {None: 1}}, {"a": object()}], ids=str)
def test_what_has_no_json_form_is_refused(config):
    with pytest.raises(TypeError):
        of(config)


def fill(folder, names, chance):
    chance.shuffle(names)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    return folder


NAMES = ["a.txt", "b.txt", "sub/a.txt", "sub/deep/c.txt", "ünïcode name.txt"]


@settings(max_examples=20)
@given(st.randoms(use_true_random=False))
def test_neither_a_folders_place_nor_the_order_of_its_making_counts(tmp_path_factory, chance):
    one, other = (fill(tmp_path_factory.mktemp("folder"), [*NAMES], chance) for _ in range(2))
    hasher = ContentHasher(None)
    assert hasher.content_hash(one) == hasher.content_hash(other)
    assert hasher.content_hash(f"{one}/**/*.txt") == hasher.content_hash(str(other / "**/*.txt"))


def test_names_and_contents_count(tmp_path):
    folder = fill(tmp_path / "data", [*NAMES], random.Random(0))
    hasher = ContentHasher(None)
    seen = {hasher.content_hash(folder)}
    (folder / "a.txt").write_text("other")
    seen.add(hasher.content_hash(folder))
    (folder / "a.txt").rename(folder / "z.txt")
    seen.add(hasher.content_hash(folder))
    (folder / "empty").touch()
    seen.add(hasher.content_hash(folder))
    assert len(seen) == 4


def test_the_order_of_several_paths_counts(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    hasher = ContentHasher(None)
    one, other = tmp_path / "a", tmp_path / "b"
    assert hasher.content_hash([one, other]) != hasher.content_hash([other, one])


def test_a_hash_is_remembered_by_path_size_and_time(tmp_path):
    source = tmp_path / "data"
    source.write_text("one")
    os.utime(source, (1e9, 1e9))
    hasher = ContentHasher(tmp_path / "memory")
    first = hasher.content_hash(source)
    source.write_text("two")
    os.utime(source, (1e9, 1e9))
    assert hasher.content_hash(source) == first  # same size and time: not read again
    os.utime(source, (1e9 + 1, 1e9 + 1))
    assert hasher.content_hash(source) != first


def test_a_file_written_just_now_is_not_remembered(tmp_path):
    source = tmp_path / "data"
    hasher = ContentHasher(tmp_path / "memory")
    hashes = set()
    for text in ("one", "two", "six"):
        source.write_text(text)
        os.utime(source, None)
        hashes.add(hasher.content_hash(source))
    assert len(hashes) == 3


def test_a_torn_memory_is_ignored(tmp_path):
    source = tmp_path / "data"
    source.write_text("one")
    os.utime(source, (1e9, 1e9))
    hasher = ContentHasher(tmp_path / "memory")
    first = hasher.content_hash(source)
    (memory,) = (tmp_path / "memory").iterdir()
    memory.write_text('{"files": {"da')
    assert hasher.content_hash(source) == first


def test_folders_that_link_in_a_circle_end(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text").write_text("x")
    before = ContentHasher(None).content_hash(tmp_path / "data")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data")
    assert ContentHasher(None).content_hash(tmp_path / "data") == before


@pytest.mark.parametrize("path", ["nowhere", "nowhere/*.txt"])
def test_a_path_that_names_nothing_is_told(tmp_path, path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ContentHasher(None).content_hash(tmp_path / path)


def make_package(folder, body):
    package = folder / "their_models"
    (package / "__pycache__").mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "config.py").write_text(body)
    (package / "__pycache__" / "config.cpython-311.pyc").write_text(body * 2)


def test_a_users_package_is_hashed_by_its_source_without_importing_it(tmp_path, monkeypatch):
    hashes = []
    for number, body in enumerate(["x = 1", "x = 1", "x = 2"]):
        folder = tmp_path / str(number)
        make_package(folder, body)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            hashes.append(user_sources({"model": [{"_target_": "their_models.config.ModelSpec"}]}))
    assert hashes[0].keys() == {"package their_models"}
    assert hashes[0] == hashes[1] != hashes[2]
    assert "their_models" not in sys.modules


def test_our_own_specs_need_no_source_hash():
    assert (
        user_sources({"_target_": "llmexp.store.config.PathsSpec", "x": [{"_target_": "llmexp.a.B"}]}) == {}
    )


@pytest.mark.parametrize("name", ["no_such_package.module", "sys"])
def test_a_package_without_source_is_told(name):
    with pytest.raises(ModuleNotFoundError):
        package_source_hash(name)


def test_the_code_version_names_the_source():
    assert code_version().endswith(package_source_hash("llmexp")[:12])
