"""What a command costs before it does anything."""

from __future__ import annotations

import contextlib
import importlib
import io
import statistics
import subprocess
import sys
import time

import pytest

from llmexp.cli.main import VERBS

HEAVY = ("torch", "mlflow", "pytorch_lightning", "transformers", "datasets", "matplotlib")


def loaded_by(code: str) -> list[str]:
    """The heavy packages that are loaded after ``code``."""
    told = f"import sys\n{code}\nsys.stderr.write('\\n' + ' '.join(n for n in {HEAVY!r} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1].split()


def test_the_command_line_imports_nothing_heavy():
    assert loaded_by("import llmexp.cli.main") == []
    assert loaded_by("from llmexp.cli.main import main\nmain(['--help'])") == []


def test_the_help_of_no_verb_imports_anything_heavy():
    assert (
        loaded_by(f"from llmexp.cli.main import main\nfor verb in {list(VERBS)!r}: main([verb, '--help'])")
        == []
    )


@pytest.mark.parametrize(
    "asked, line",
    [("install", ""), ("query", "llmexp "), ("query", "llmexp experiment=quickstart sft.optimizer.l")],
)
def test_completion_imports_nothing_heavy(monkeypatch, asked, line):
    monkeypatch.setenv("COMP_LINE", line)
    words = ["--shell-completion", f"{asked}=bash"]
    assert loaded_by(f"from llmexp.cli.main import main\nmain({words})") == []


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_shows_examples(verb):
    module = importlib.import_module(f"llmexp.cli.{verb}")
    with pytest.raises(SystemExit) as end, contextlib.redirect_stdout(io.StringIO()) as said:
        module.main(["--help"])
    assert end.value.code == 0
    examples = said.getvalue().partition("\nexamples:\n")[2].splitlines()
    named = "llmexp" if verb == "run" else f"llmexp {verb}"
    assert any(line.strip().startswith(f"{named} ") for line in examples)


def test_help_takes_little_more_than_importing_hydra():
    ours, hydras = [], []
    for _ in range(5):
        for command, times in ((["-m", "llmexp", "--help"], ours), (["-c", "import hydra"], hydras)):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], capture_output=True, check=True)
            times.append(time.perf_counter() - start)
    assert statistics.median(ours) <= 2.5 * statistics.median(hydras)
