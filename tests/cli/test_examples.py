"""Every example of every verb's help, and every command of the README, as the shell gets it."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Said

from llmexp.cli.main import VERBS

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[2]
SMALL = (
    "model=debug trainer=debug loader.seq_len=64 tokenizer.vocab_size=300 curation=none tracking=none "
    "collect.data=text_files collect.data.path=notes"
)
README_TEXT = (CHECKOUT / "README.md").read_text()
LIFE = "experiment=quickstart_debug"

NOT_RUN = {
    "llmexp report last --open": "opens the reader's web browser",
    "llmexp doctor tracking.uri=http://mlflow.example.org:5000": "asks a server: there is no network",
}
"""Examples that no test can run, each with why."""

CHANGED = "llmexp experiment=quickstart pretrain.trainer.max_steps=2000 sft.optimizer.lr=1e-3"

DEBUG_SIZE = {
    "llmexp experiment=quickstart": f"llmexp {LIFE}",
    CHANGED: f"llmexp {LIFE} pretrain.trainer.max_steps=10 sft.optimizer.lr=1e-3",
    "llmexp data=text_files data.path=my_notes/ model=tiny trainer=short": (
        f"llmexp data=text_files data.path=my_notes/ {SMALL}"
    ),
    "llmexp stage=sft inputs.model=last data=chat_jsonl data.path=chats.jsonl": (
        "llmexp stage=sft inputs.model=last data=chat_jsonl data.path=chats.jsonl "
        "trainer=debug loader.seq_len=64 tracking=none"
    ),
    "llmexp -m optimizer.lr=1e-3,3e-3 model=tiny": f"llmexp -m optimizer.lr=1e-3,3e-3 {SMALL}",
    "llmexp prove resume model=tiny": f"llmexp prove resume {SMALL} --steps 4",
    "llmexp prove packing stage=sft": f"llmexp prove packing stage=sft {SMALL} "
    "chats.data=chat_jsonl chats.data.path=chats.jsonl",
    "llmexp prove export experiment=quickstart --stage pretrain": (
        f"llmexp prove export {LIFE} --stage pretrain"
    ),
    "llmexp prove resume experiment=quickstart --stage grpo --steps 20 --json": (
        f"llmexp prove resume {LIFE} --stage grpo --steps 4 --json"
    ),
}
"""The examples that train, at debug size."""


def examples(verb: str) -> list[str]:
    """The example lines of a verb's help."""
    with suppress(SystemExit), redirect_stdout(io.StringIO()) as said:
        importlib.import_module(f"llmexp.cli.{verb}").main(["--help"])
    return [
        line.strip() for line in said.getvalue().partition("\nexamples:\n")[2].splitlines() if line.strip()
    ]


def readme() -> list[str]:
    """The commands in the README's fenced blocks, without their comments."""
    blocks = re.findall(r"^```\n(.*?)^```", README_TEXT, re.S | re.M)
    lines = [re.sub(r"\s+# .*| {2,}#.*", "", line).strip() for block in blocks for line in block.splitlines()]
    return [line.removeprefix(".venv/bin/") for line in lines if line]


README = [line for line in readme() if line.startswith("llmexp ")]
EXAMPLES = [line for verb in sorted(VERBS, key=lambda verb: verb == "run") for line in examples(verb)]
"""Those of ``run`` last: ``last`` is the quickstart until then."""
COMPOSING = ("run", "check", "plan", "prove")


def words_of(line: str) -> tuple[str, list[str]]:
    """The verb of a line, and the words after it."""
    words = shlex.split(line)[1:]
    return (words[0], words[1:]) if words and words[0] in VERBS else ("run", words)


@dataclass
class Life:
    """A reader's folder, in which the quickstart ran at debug size and then once more with other values."""

    folder: Path
    runs: list[Path]

    def call(self, line: str) -> tuple[int, str]:
        """Exit code and words of a line, as a shell runs it in the folder."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=os.environ | {"PATH": path, "PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def filled(self, line: str) -> str:
        """A line with what the reader has in place of what it stands for."""
        first, second = (str(run) for run in self.runs[:2])
        models = [stage["fingerprint"] for stage in self.stages() if stage["kind"] == "model"]
        fills = {
            "RUN_A": first, "RUN_B": second, r"\bA B\b": f"{first} {second}", r"\bRUN\b": second,
            r"outputs/runs/\S+-3f9a2c": first, "12-00-00-quickstart": Path(first).name,
            "outputs/store/model/3f9a2c…": f"outputs/store/model/{models[0]}",
            "3f9a2c": models[0], "81bd07": models[1], "/scratch/me": str(self.folder),
            r"path/to/a?/?hugging_?face_folder": self.exported(), "http://mlflow.example.org:5000": "sqlite:///far.db",
        }  # fmt: skip
        for mark, value in fills.items():
            line = re.sub(mark, value, line)
        return line

    def stages(self) -> list[dict[str, str]]:
        return list(json.loads((self.runs[0] / "pipeline.json").read_text())["stages"].values())

    def exported(self) -> str:
        return next(stage["path"] for stage in self.stages() if stage["kind"] == "export")


@pytest.fixture(scope="module")
def life(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """The folder, with notes, conversations and prompts, and ``llmexp`` on its path."""
    folder = tmp_path_factory.mktemp("life")
    for name in ("notes", "my_notes", "chats.jsonl"):
        (folder / name).symlink_to(trained / name.removeprefix("my_"))
    (folder / "prompts.txt").write_text("Return a\nThe module\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "llmexp").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m llmexp "$@"\n')
    (folder / "bin" / "llmexp").chmod(0o755)
    made = Life(folder, [])
    for line in ("llmexp experiment=quickstart", CHANGED):
        code, said = made.call(DEBUG_SIZE[line])
        assert code == 0, said
        made.runs.append(max((folder / "outputs" / "runs").glob("*/*"), key=lambda run: run.stat().st_mtime))
    return made


@pytest.fixture
def calls(
    life: Life, monkeypatch: pytest.MonkeyPatch, llmexp: Callable[..., Said]
) -> Callable[[str], tuple[int, str]]:
    """Runs a line in the folder: in this process, or by a shell where it trains, delivers or needs one."""
    monkeypatch.chdir(life.folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    def call(line: str) -> tuple[int, str]:
        filled = life.filled(line)
        if words_of(filled)[0] in ("run", "sync") or re.search(r"[|>$]", filled):
            return life.call(filled)
        said = llmexp(*shlex.split(filled)[1:])
        return said.code, said.out + said.err

    return call


@pytest.mark.parametrize("line", [line for line in EXAMPLES if line not in NOT_RUN])
def test_an_example_of_the_help_works(calls, line):
    code, said = calls(DEBUG_SIZE.get(line, line))
    assert code == 0, said


def test_the_tables_name_nothing_but_examples():
    assert set(NOT_RUN) | set(DEBUG_SIZE) <= set(EXAMPLES)


@pytest.mark.parametrize("line", [line for line in README if words_of(line)[0] in COMPOSING])
def test_a_command_of_the_readme_composes(calls, line):
    verb, words = words_of(line)
    words = [re.sub(r"(=[^,=]+),.*", r"\1", word) for word in words if word not in ("-m", "--cfg", "job")]
    code, said = calls(shlex.join(["llmexp", "check", *(words[1:] if verb == "prove" else words)]))
    if verb == "check":
        assert "2 mistakes" in said  # the one that shows how mistakes are told
    else:
        assert code == 0, said


@pytest.mark.parametrize("line", [line for line in README if words_of(line)[0] not in COMPOSING])
def test_a_command_of_the_readme_that_looks_at_what_is_there_works(calls, line):
    code, said = calls(line)
    assert code == 0, said


def test_every_command_of_the_readme_is_known():
    others = [line for line in readme() if not line.startswith(("llmexp ", "make "))]
    assert not [line for line in others if re.match(r"\S*(llmexp|python|pip|make)\b", line)]
    makefile = (CHECKOUT / "Makefile").read_text()
    made = re.findall(r"(?:^|`)make ([a-z-]+)", README_TEXT, re.M)
    assert {"demo", "test"} <= set(made)
    assert not [name for name in made if not re.search(rf"^{name}:", makefile, re.M)]
