"""What a check costs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], capture_output=True, check=True)
    return time.perf_counter() - start


def test_checking_the_quickstart_takes_no_longer_than_torch_takes_to_import():
    ratios = [
        seconds("-m", "llmexp", "check", "experiment=quickstart") / seconds("-c", "import torch, hydra")
        for _ in range(3)
    ]
    assert statistics.median(ratios) <= 2


def test_a_check_imports_nothing_heavy():
    heavy = ("torch", "mlflow", "pytorch_lightning", "transformers", "datasets", "matplotlib")
    code = (
        "import sys\nfrom llmexp.cli.main import main\nmain(['check', 'experiment=quickstart'])\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
