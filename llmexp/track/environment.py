"""What a run ran on: code version, Python, packages, host, devices, command line."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

MAIN_PACKAGES = (
    "llmexp",
    "torch",
    "pytorch-lightning",
    "transformers",
    "tokenizers",
    "datasets",
    "mlflow",
    "hydra-core",
)
GIT_TIMEOUT = 5.0


@functools.cache
def git_state(folder: Path) -> dict[str, str]:
    """Commit, branch and whether files differ from it (``dirty``: true or false); empty outside git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD")
    dirty = bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    return {"commit": commit, "branch": branch, "dirty": str(dirty).lower()}


def _git(folder: Path, *arguments: str) -> str:
    """A git command's output; empty when git or the repository is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@functools.cache
def packages() -> dict[str, str]:
    """Every installed distribution and its version."""
    found = ((d.metadata["Name"], d.version) for d in importlib.metadata.distributions())
    return dict(sorted((name, version) for name, version in found if name))


def environment() -> dict[str, Any]:
    """This process's environment as JSON data. Imports no torch: devices only when it is loaded."""
    import psutil

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "user": os.environ.get("USER", ""),
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "devices": devices(),
        "command": shlex.join(sys.orig_argv),
        "folder": str(Path.cwd()),
        "git": git_state(Path(__file__).resolve().parents[2]),
        "slurm": {
            k: v for k, v in sorted(os.environ.items()) if k.startswith("SLURM_JOB_") or k == "SLURM_NODELIST"
        },
        "packages": packages(),
    }


def devices() -> list[str]:
    """Names of the GPUs, asked from torch where it is loaded and CUDA is there."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def environment_tags(found: dict[str, Any]) -> dict[str, str]:
    """The part of an environment that is worth filtering runs by."""
    tags = {f"env.{key}": str(found[key]) for key in ("python", "platform", "host", "cpus", "command")}
    if found["devices"]:
        tags["env.devices"] = ", ".join(found["devices"])
    tags |= {f"git.{key}": value for key, value in found["git"].items()}
    tags |= {f"slurm.{key.removeprefix('SLURM_').lower()}": value for key, value in found["slurm"].items()}
    tags |= {
        f"package.{name}": found["packages"][name] for name in MAIN_PACKAGES if name in found["packages"]
    }
    if "commit" in found["git"]:
        tags["mlflow.source.git.commit"] = found["git"]["commit"]
    return tags
