"""Other Hydra applications in the same environment are as they were."""

from __future__ import annotations

import subprocess
import sys

APP = """
import hydra
from dataclasses import dataclass
from hydra.core.config_store import ConfigStore

@dataclass
class Optimizer:
    lr: float = 0.1

@dataclass
class Config:
    optimizer: Optimizer
    stages: str = "mine"

ConfigStore.instance().store(name="config", node=Config(Optimizer()))

@hydra.main(version_base="1.3", config_name="config")
def main(cfg):
    print("job", cfg.optimizer.lr, cfg.stages)

main()
"""


def run(tmp_path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "app.py").write_text(APP)
    return subprocess.run(
        [sys.executable, "app.py", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_a_foreign_application_composes_and_writes_as_ever(tmp_path):
    done = run(tmp_path, "optimizer.lr=3", "+more=1", "hydra.job.chdir=false")
    assert (done.returncode, done.stdout) == (0, "job 3.0 mine\n")
    (overrides,) = (tmp_path / "outputs").glob("*/*/.hydra/overrides.yaml")
    assert overrides.read_text() == "- optimizer.lr=3\n- +more=1\n"


def test_a_foreign_application_sweeps_with_hydras_own_launcher(tmp_path):
    done = run(tmp_path, "-m", "optimizer.lr=1,2")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-3::2] == ["job 1.0 mine", "job 2.0 mine"]


def test_a_foreign_applications_mistakes_are_hydras_own(tmp_path):
    done = run(tmp_path, "optimizer.lrr=1")
    assert done.returncode == 1
    assert "Key 'lrr' not in 'Optimizer'" in done.stderr
    assert "mistake" not in done.stderr
