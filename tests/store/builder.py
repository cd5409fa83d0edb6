"""A builder in a process of its own: builds one artifact slowly and tells what became of it.

    python builder.py ROOT FINGERPRINT RUN_ID [--pieces N] [--pause S] [--lease S]
        [--die-at N] [--stop-at-rename]

Prints ``building`` when it may write, and at the end ``published``, ``found`` or ``lost``.
``--die-at N`` kills it with SIGKILL just before its N-th change of the store's file system,
``--stop-at-rename`` stops it (SIGSTOP) just before the rename that publishes.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from llmexp.store.errors import LeaseLost
from llmexp.store.store import Store

CHANGES = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.utime"}


def watch(root: str, fingerprint: str, die_at: int, stop_at_rename: bool) -> None:
    """Signal this process at one chosen change below ``root``; Python tells of each before it is made."""
    count = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal count
        if event not in CHANGES or (event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        paths = [os.fspath(a) for a in arguments if isinstance(a, (str, os.PathLike))]
        if not any(path.startswith(root) for path in paths):
            return
        count += 1
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if stop_at_rename and event == "os.rename" and paths[-1].endswith(f"/{fingerprint}"):
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(hook)


def main() -> None:
    """Build, and print one word for what happened."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("fingerprint")
    parser.add_argument("run_id")
    parser.add_argument("--pieces", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--stop-at-rename", action="store_true")
    asked = parser.parse_args()
    watch(str(asked.root), asked.fingerprint, asked.die_at, asked.stop_at_rename)
    store = Store([asked.root], lease_seconds=asked.lease)
    try:
        with store.build(
            "corpus", asked.fingerprint, stage="collect", config={"pieces": asked.pieces}, run_id=asked.run_id
        ) as build:
            if build.artifact is not None:
                print("found", flush=True)
                return
            print("building", flush=True)
            for piece in range(asked.pieces):
                build.guard()
                path = build.out / "train" / f"{piece:05d}.txt"
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"{asked.run_id} {piece}\n" * 1000)
                time.sleep(asked.pause)
            build.publish({"pieces": asked.pieces})
        print("published", flush=True)
    except LeaseLost:
        print("lost", flush=True)


if __name__ == "__main__":
    main()
