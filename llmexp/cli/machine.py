"""What this machine has for llmexp to run on: findings, each with what to do where something is wrong."""

from __future__ import annotations

import base64
import importlib.metadata
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmexp.cli.terminal import size
from llmexp.plan.detect import multiplies_bf16
from llmexp.store.machine import cores, memory

OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"
"""``note``: something that only some runs need is not there; ``error``: nothing works without it."""

PATIENCE = 3.0
"""Seconds that a server or a SLURM command gets to answer."""

LITTLE_DISK, LITTLE_SHM, LITTLE_MEMORY = 5e9, 64e6, 4e9
"""Bytes below which room is short: a quickstart's outputs, data workers' tensors, a tiny model's run."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    level: str
    found: str
    fix: str = ""


def python_and_llmexp() -> Iterator[Finding]:
    """The interpreter and this package."""
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    yield Finding(
        "python",
        OK if good else ERROR,
        f"{version} ({sys.executable})",
        "" if good else "install Python 3.11 or newer",
    )
    try:
        yield Finding("llmexp", OK, importlib.metadata.version("llmexp"))
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            "llmexp", WARNING, "runs from a folder, is not installed", "pip install -e . in the checkout"
        )


def libraries() -> Iterator[Finding]:
    """Every library that the package's own metadata asks for, and those of its extras."""
    from packaging.requirements import Requirement

    try:
        declared = [Requirement(text) for text in importlib.metadata.requires("llmexp") or ()]
    except importlib.metadata.PackageNotFoundError:
        return
    for requirement in declared:
        extra = _extra(str(requirement.marker or ""))
        if extra == "dev" or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        name = requirement.name
        install = f"pip install '{'llmexp[' + extra + ']' if extra else str(requirement)}'"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            needed = f"not installed (extra '{extra}')" if extra else "not installed"
            yield Finding(name, NOTE if extra else ERROR, needed, install)
            continue
        fits = requirement.specifier.contains(version, prereleases=True)
        told = version if fits else f"{version}, and {requirement.specifier} is needed"
        yield Finding(name, OK if fits else (WARNING if extra else ERROR), told, "" if fits else install)


def _extra(marker: str) -> str:
    """The extra that a requirement belongs to."""
    return marker.partition("extra == ")[2].strip("\"'") if "extra == " in marker else ""


def devices() -> Iterator[Finding]:
    """What torch computes on."""
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding(
            "torch",
            ERROR,
            f"cannot be imported: {error}",
            "pip install --force-reinstall torch, for this machine's CUDA or CPU",
        )
        return
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            yield Finding(
                f"cuda:{index}", OK, f"{about.name}, {size(about.total_memory)}, CUDA {torch.version.cuda}"
            )
    elif torch.backends.mps.is_available():
        yield Finding("mps", OK, "Apple's GPU")
    elif shutil.which("nvidia-smi"):
        fix = "install the torch build for this driver's CUDA: https://pytorch.org/get-started/locally"
        yield Finding("cuda", WARNING, f"nvidia-smi is there, but torch {torch.__version__} sees no GPU", fix)
    else:
        yield Finding("gpu", NOTE, "none: runs compute on the CPU")
        if not multiplies_bf16():
            yield Finding(
                "bf16",
                NOTE,
                "this CPU multiplies bf16 in software, far slower than fp32",
                "trainer.precision=fp32",
            )


def compiler() -> Iterator[Finding]:
    """What ``trainer.compile`` needs."""
    found = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    fix = "" if found else "for trainer.compile=true install one (Debian, Ubuntu: apt-get install g++)"
    yield Finding("C++ compiler", OK if found else NOTE, found or "none: torch.compile cannot be used", fix)


def slurm() -> Iterator[Finding]:
    """Whether a cluster is at hand, and answers."""
    if not shutil.which("sinfo"):
        yield Finding("slurm", NOTE, "not here: runs stay on this machine")
        return
    try:
        done = subprocess.run(
            ["sinfo", "-h", "-o", "%P %a %D"], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        yield Finding(
            "slurm", WARNING, f"sinfo does not answer within {PATIENCE:.0f} s", "ask whether slurmctld runs"
        )
        return
    if done.returncode:
        yield Finding(
            "slurm",
            WARNING,
            f"sinfo fails: {done.stderr.strip()[:120]}",
            "ask whether slurmctld runs and this user may use it",
        )
        return
    partitions = sorted({line.split()[0].rstrip("*") for line in done.stdout.splitlines() if line.strip()})
    yield Finding("slurm", OK, f"partitions {', '.join(partitions) or 'none'}")


def tracking(uri: str) -> Iterator[Finding]:
    """Whether the MLflow server or database at ``uri`` can be used; nothing is written."""
    if uri.startswith(("http://", "https://")):
        yield _server(uri)
    elif uri.startswith("sqlite:///"):
        yield _database(Path(uri.removeprefix("sqlite:///")))
    elif uri:
        yield Finding("mlflow", NOTE, f"a database of {uri.partition(':')[0]}: not looked at")
    else:
        yield Finding("tracking", OK, "in the run folder alone")


def _server(uri: str) -> Finding:
    from llmexp.track.masking import without_credentials

    shown = without_credentials(uri)
    user, at, rest = uri.partition("://")[2].rpartition("@")
    request = urllib.request.Request(f"{uri.partition('://')[0]}://{rest.rstrip('/')}/health")
    if at:  # urllib takes them for a part of the host's name
        word = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_header("Authorization", f"Basic {word}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return Finding("mlflow", OK, f"{shown} answers ({answer.status})")
    except OSError as error:
        fix = "runs go on without it; deliver later with `llmexp sync`, or correct tracking.uri"
        return Finding("mlflow", WARNING, f"{shown} does not answer: {error}", fix)


def _database(file: Path) -> Finding:
    if not file.exists():
        return Finding("mlflow", OK, f"{file} is made by the first run")
    try:
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=PATIENCE) as connection:
            runs = connection.execute("select count(*) from runs").fetchone()[0]
    except sqlite3.Error as error:
        return Finding(
            "mlflow",
            WARNING,
            f"{file} cannot be read: {error}",
            f"move {file} away; `llmexp sync` fills a new one from the run folders",
        )
    return Finding("mlflow", OK, f"{file}, {runs} runs")


def disks(outputs: Path, stores: list[Path]) -> Iterator[Finding]:
    """Room, and the right to write, where runs and artifacts go."""
    for what, folder in {"outputs": outputs, "store": stores[0]}.items():
        yield _room(what, folder)
    for folder in stores[1:]:
        there = folder.is_dir()
        yield Finding(
            "store (read-only)",
            OK if there else WARNING,
            str(folder) if there else f"{folder} does not exist",
            "" if there else "correct paths.store",
        )
    shm = Path("/dev/shm")
    if shm.is_dir():
        total = shutil.disk_usage(shm).total
        fix = "" if total >= LITTLE_SHM else "in a container: docker run --shm-size=1g (or --ipc=host)"
        yield Finding("/dev/shm", OK if total >= LITTLE_SHM else WARNING, size(total), fix)


def _room(what: str, folder: Path) -> Finding:
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    if not os.access(place, os.W_OK):
        return Finding(
            what, ERROR, f"{place} cannot be written", f"chmod, or set paths.{what} to another folder"
        )
    free = shutil.disk_usage(place).free
    short = free < LITTLE_DISK
    fix = f"make room (`llmexp store prune --dry-run`), or set paths.{what} to another disk" if short else ""
    return Finding(what, WARNING if short else OK, f"{folder}, {size(free)} free", fix)


def cores_and_memory() -> Iterator[Finding]:
    """Cores that this process may use, and memory."""
    import psutil

    usable, all_there = cores(), os.cpu_count()
    yield Finding("cores", OK, f"{usable} of {all_there}" if usable != all_there else str(usable))
    total = memory()
    available = min(total, psutil.virtual_memory().available)
    short = available < LITTLE_MEMORY
    fix = "lower trainer.micro_batch, or end other programs" if short else ""
    yield Finding("memory", WARNING if short else OK, f"{size(total)}, {size(available)} available", fix)


def plugins() -> Iterator[Finding]:
    """Whether Hydra finds our launcher and sweeper: ``-m`` needs them."""
    from hydra.core.plugins import Plugins
    from hydra.plugins.launcher import Launcher
    from hydra.plugins.sweeper import Sweeper

    for kind, wanted in ((Launcher, "LlmexpLauncher"), (Sweeper, "LlmexpSweeper")):
        names = [found.__name__ for found in Plugins.instance().discover(kind)]
        good = wanted in names
        fix = "" if good else "reinstall llmexp: hydra_plugins/ must be installed beside it"
        yield Finding(
            f"hydra {kind.__name__.lower()}", OK if good else ERROR, ", ".join(names) or "none", fix
        )
