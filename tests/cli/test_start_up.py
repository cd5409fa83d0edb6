"""What a command costs before it does anything."""

from __future__ import annotations

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


def test_completion_imports_nothing_heavy():
    words = "['--shell-completion', 'install=bash']"
    assert loaded_by(f"from llmexp.cli.main import main\nmain({words})") == []


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_shows_examples(llmexp, verb):
    said = llmexp(verb, "--help")
    assert said.code == 0
    assert f"llmexp {verb}" in said.out or verb == "run"


def test_help_takes_little_more_than_importing_hydra():
    ours, hydras = [], []
    for _ in range(5):
        for command, times in ((["-m", "llmexp", "--help"], ours), (["-c", "import hydra"], hydras)):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], capture_output=True, check=True)
            times.append(time.perf_counter() - start)
    assert statistics.median(ours) <= 2.5 * statistics.median(hydras)
