"""No setting is accepted and unused: every field of every spec is read by name when things run."""

from __future__ import annotations

import dataclasses
import dis
import functools
import importlib
import inspect
import json
import pkgutil
import sys
import types
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from commands import write_notes

import llmexp
from llmexp.cli.main import main
from llmexp.config.spec import Spec, settings, target

pytestmark = pytest.mark.slow

Reads = dict[type, set[str]]

SMALL = ["model=debug", "loader.seq_len=64", "trainer=debug", "tokenizer.vocab_size=300", "tracking=none"]


@functools.cache
def _loads(code: types.CodeType) -> dict[int, str]:
    """Offset of each instruction of a function that loads an attribute, and the attribute's name."""
    return {
        i.offset: str(i.argval)
        for i in dis.get_instructions(code)
        if i.opname in ("LOAD_ATTR", "LOAD_METHOD")
    }


def record(cls: type, reads: Reads, patch: pytest.MonkeyPatch) -> None:
    """Note each ``object.name`` in the code; ``getattr(object, name)``, as spreading does, is none."""
    before = cls.__getattribute__

    def noting(self: Any, name: str) -> Any:
        frame = sys._getframe(1)
        if _loads(frame.f_code).get(frame.f_lasti) == name and not _checks(frame):
            for owner in type(self).__mro__:
                reads[owner].add(name)
        return before(self, name)

    patch.setattr(cls, "__getattribute__", noting)


def _checks(frame: types.FrameType) -> bool:
    """Whether a spec is looking at itself: a check alone uses nothing."""
    return frame.f_code.co_name in ("check", "check_needs", "check_batch", "check_world", "head")


COMPOSED = {"EntrySpec", "PipelineSpec", "ExperimentSpec", "RootSpec", "GridSpec"}
"""What the composition and Hydra's plugins read, from the typed tree itself."""

ON_A_GPU = {("HardwareSpec", "device_names")}
"""Read where a GPU's name is looked up."""


def specs() -> list[type[Spec]]:
    """Every spec but those that only others are made from."""
    for package in pkgutil.walk_packages(llmexp.__path__, "llmexp."):
        if package.name.endswith(".config"):
            importlib.import_module(package.name)

    def below(cls: type[Spec]) -> list[type[Spec]]:
        return [found for sub in cls.__subclasses__() for found in (sub, *below(sub))]

    found = [cls for cls in dict.fromkeys(below(Spec)) if cls.__module__.startswith("llmexp.")]
    return [c for c in found if (c.builds or not c.__subclasses__()) and c.__name__ not in COMPOSED]


def unread(spec: type[Spec], reads: Reads) -> set[str]:
    """The fields that nothing used: read of the spec, or taken by name by what it builds."""
    names = {field.name for field in settings(spec)} - reads[spec]
    if not spec.builds:
        return names
    built = target(spec.builds)
    if dataclasses.is_dataclass(built):
        return names - reads[built]
    function = built.__init__ if inspect.isclass(built) else built
    return {name for name in names if name not in _locals_loaded(inspect.unwrap(function).__code__)}


def _locals_loaded(code: types.CodeType) -> set[str]:
    """The local names that a function, or one inside it, reads."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    own: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE")):
            names = instruction.argval  # from Python 3.13 on two in one instruction
            own.update(names if isinstance(names, tuple) else (names,))
    return own.union(*map(_locals_loaded, inner))


def write_sources(folder: Path) -> None:
    """One small file for every source of records."""
    write_notes(folder / "notes", 12)
    (folder / "latin").mkdir()
    for number in range(9):
        (folder / "latin" / f"{number}.txt").write_bytes(f"Déjà vu, {number}.".encode("latin-1"))
    texts = [file.read_text() for file in sorted((folder / "notes").iterdir())]
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "a.csv").write_text("text\n" + "".join(f'"{text}"\n' for text in texts))
    asked = [{"role": "user", "content": "Who is it?"}]
    chats = [[*asked, {"role": "assistant", "content": f"Number {number}."}] for number in range(40)]
    (folder / "chats.jsonl").write_text("\n".join(json.dumps({"messages": chat}) for chat in chats))
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), folder / "a.parquet")
    (folder / "hub").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), folder / "hub" / "train.parquet")


def commands() -> list[list[str]]:
    """Runs that use, together, every option there is."""
    collect = ["stage=collect", "tracking=none"]
    pretrain = ["stage=pretrain", "data=text_files", "data.path=notes", *SMALL]
    four_steps = ["trainer.max_steps=4", "scheduler.warmup_steps=1"]
    offline = ["tracking=wandb", "tracking.mode=offline"]
    return [
        ["experiment=quickstart_debug", "tracking=mlflow", "curate.workers=1"],
        *([*collect, f"data={kind}", f"data.path=a.{kind}"] for kind in ("jsonl", "csv", "parquet")),
        [*collect, "data=text_files", "data.path=latin", "data.encoding=latin-1"],
        [*collect, "data=huggingface", "data.path=hub"],
        [*collect, "data=chat_jsonl", "data.path=chats.jsonl"],
        ["stage=curate", "data=text_files", "data.path=notes", "curation=web", "workers=1", "tracking=none"],
        [*pretrain, "launcher=processes", "parallel=ddp", "trainer.global_batch=4", *offline],
        [*pretrain, "scheduler=wsd", *four_steps, "tracking=jsonl"],
        [*pretrain, "loader=best_fit", "trainer.max_steps=null", "trainer.max_tokens=1000"],
        [*pretrain, *four_steps, "optimizer.lr=1e30", "trainer.on_bad_loss=skip", "trainer.val_every=null"],
        ["-m", "sweep=grid", "seed=0,1", *pretrain, *four_steps],
    ]


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What was read of each spec, and of each dataclass that one builds, in all those runs."""
    folder = tmp_path_factory.mktemp("reads")
    write_sources(folder)
    found: Reads = defaultdict(set)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        record(Spec, found, patch)
        for built in {target(spec.builds) for spec in specs() if spec.builds}:
            if dataclasses.is_dataclass(built):
                record(built, found, patch)
        failed = [words for words in commands() if main(words) != 0]
    assert failed == []
    return found


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.__name__)
def test_every_field_is_read_by_name(spec, reads):
    assert {name for name in unread(spec, reads) if (spec.__name__, name) not in ON_A_GPU} == set()
