"""What a check costs."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from llmexp.cli.compose import conf_folder

EXPERIMENTS = sorted(file.stem for file in (conf_folder() / "experiment").glob("*.yaml"))


def cpu_seconds(*command: str) -> float:
    """The least of two runs: what else the machine does makes a run longer, never shorter."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once(), once())


@pytest.fixture(scope="module")
def imports() -> float:
    return cpu_seconds("-c", "import torch, hydra")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_checking_an_experiment_takes_at_most_half_as_long_again_as_importing_torch_and_hydra(name, imports):
    assert cpu_seconds("-m", "llmexp", "check", f"experiment={name}") <= 1.5 * imports


def test_a_check_imports_nothing_heavy():
    heavy = ("torch", "mlflow", "pytorch_lightning", "transformers", "datasets", "matplotlib")
    code = (
        "import sys\nfrom llmexp.cli.main import main\nmain(['check', 'experiment=quickstart'])\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
