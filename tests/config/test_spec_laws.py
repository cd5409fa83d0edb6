"""What holds for every spec."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import types
import typing
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llmexp
from llmexp.config.spec import MISSING, Spec, as_data, target
from llmexp.config.spec import settings as fields_of
from llmexp.config.typed import field_types, spec_from

CONFIG_MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(llmexp.__path__, "llmexp.")
    if module.name.endswith(".config") and not module.ispkg and module.name != "llmexp.cli.config"
)


def specs() -> list[type[Spec]]:
    """Every spec of every config module."""
    found = []
    for name in CONFIG_MODULES:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and issubclass(value, Spec) and value.__module__ == name:
                found.append(value)
    return found


def holds_specs(spec: type[Spec]) -> bool:
    """Whether a field is a spec, or holds some."""
    return any("Spec" in str(kind) for kind in field_types(spec).values())


SPECS = [spec for spec in specs() if not inspect.isabstract(spec)]
BUILDERS = [spec for spec in SPECS if spec.builds]


def values(kind: Any, metadata: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, within its bounds."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    bounds = metadata.get("bounds", {})
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(one, metadata) for one in args])
    if kind is type(None):
        return st.none()
    if kind is bool:
        return st.booleans()
    if kind is int:
        low = bounds.get("ge") if bounds.get("ge") is not None else (bounds.get("gt") or -1) + 1
        return st.integers(int(low), int(low) + 1000)
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind is str:
        return st.sampled_from(metadata["choices"]) if metadata.get("choices") else st.text()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if origin is list:
        return st.lists(values(args[0], metadata), max_size=3)
    if origin is dict:
        return st.dictionaries(st.text(), values(args[1], metadata), max_size=2)
    return st.text()


def instances(spec: type[Spec]) -> st.SearchStrategy[Any]:
    """Specs with random values."""
    kinds = field_types(spec)
    return st.builds(spec, **{f.name: values(kinds[f.name], f.metadata) for f in fields_of(spec)})


def test_there_are_specs_in_every_package_that_has_settings():
    assert len(SPECS) > 40
    assert len(CONFIG_MODULES) >= 14


@pytest.mark.parametrize("spec", [s for s in SPECS if not holds_specs(s)], ids=lambda spec: spec.__name__)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_spec_written_as_data_reads_back(spec, data):
    made = data.draw(instances(spec))
    text = json.dumps(as_data(made))
    assert spec_from(json.loads(text)) == made


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_what_cannot_change_the_result_is_left_out_of_the_fingerprint(spec):
    whole, part = (set(as_data(blank(spec), result_only=only)) for only in (False, True))
    assert whole - part == {f.name for f in fields_of(spec) if not f.metadata["result"]}


def blank(spec: type[Spec]) -> Spec:
    """A spec with its defaults, what has none left out."""
    return spec(**{f.name: MISSING for f in fields_of(spec) if f.default is MISSING})


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_every_field_is_described_in_a_sentence(spec):
    assert spec.__doc__
    assert spec.__doc__.rstrip().endswith(".")
    for field in fields_of(spec):
        assert field.metadata["help"].endswith("."), field.name
        assert (
            field.metadata["help"][0].isupper()
            or not field.metadata["help"][0].isalpha()
            or (":" in field.metadata["help"])
        ), field.name


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_every_default_lies_within_its_range_and_choices(spec):
    from llmexp.config.validate import Materialise

    for field in fields_of(spec):
        value = getattr(blank(spec), field.name)
        if value != MISSING and value is not None and not isinstance(value, Spec):
            make = Materialise({})
            make._bounds(value, field.name, {**field.metadata, "path": False})
            assert make.mistakes == []


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.__name__)
def test_a_spec_is_keyword_only_and_its_types_are_plain(spec):
    assert all(f.kw_only for f in dataclasses.fields(spec))
    for kind in field_types(spec).values():
        assert typing.get_origin(kind) not in (typing.Literal, tuple), kind


@pytest.mark.parametrize("spec", BUILDERS, ids=lambda spec: spec.__name__)
def test_a_specs_fields_are_keywords_of_what_it_builds(spec):
    made = target(spec.builds)
    parameters = inspect.signature(made).parameters
    fields = {field.name for field in fields_of(spec)}
    assert fields <= set(parameters)
    runtime = set(parameters) - fields - {"self"}
    # Whatever else it takes comes from the stage at run time, never from a default that no config can see.
    for name in runtime:
        kind = parameters[name].kind
        assert kind is inspect.Parameter.KEYWORD_ONLY or kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def test_an_enum_that_may_be_null_reads_back():
    from llmexp.train.config import StopWhen, TrainerSpec

    made = TrainerSpec(max_steps=1, stop_when=StopWhen.val_loss_rises)
    assert spec_from(as_data(made)) == made


def test_a_value_has_one_owner():
    from llmexp.train.config import AdamWSpec

    with pytest.raises(TypeError, match="are config values"):
        AdamWSpec().build(lr=1.0)


def test_the_config_modules_import_nothing_heavy():
    heavy = (
        "torch",
        "mlflow",
        "pytorch_lightning",
        "transformers",
        "datasets",
        "numpy",
        "omegaconf",
        "hydra",
    )
    code = (
        f"import sys\nfor name in {CONFIG_MODULES!r}: __import__(name)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_packages_hold_one_docstring_and_no_imports():
    for package in pkgutil.walk_packages(llmexp.__path__, "llmexp."):
        if package.ispkg:
            source = inspect.getsource(importlib.import_module(package.name))
            assert source.count("import") == 0 or "import " not in source.split('"""')[-1], package.name
