"""What this machine gives a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes of memory that this process may use: the host's, or fewer where a control group says so."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([host, *control_group_limits(Path("/"))])


def control_group_limits(root: Path) -> Iterator[int]:
    """Limits of memory of this process's control groups, and of those around them, in versions 1 and 2."""
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.is_file() else ():
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        inner = base / group.lstrip("/")
        for folder in (inner, *inner.parents):
            file = folder / ("memory.limit_in_bytes" if controllers else "memory.max")
            if (
                folder.is_relative_to(base)
                and file.is_file()
                and (limit := file.read_text().strip()) != "max"
            ):
                yield int(limit)
