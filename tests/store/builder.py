"""A builder in a process of its own: builds one artifact slowly and tells what became of it.

    python builder.py ROOT FINGERPRINT RUN_ID [--pieces N] [--pause S] [--lease S]

Prints ``building`` when it may write, and at the end ``published``, ``found`` or ``lost``.
"""

import argparse
import time
from pathlib import Path

from llmexp.store.errors import LeaseLost
from llmexp.store.store import Store


def main() -> None:
    """Build, and print one word for what happened."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("fingerprint")
    parser.add_argument("run_id")
    parser.add_argument("--pieces", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--lease", type=float, default=1.0)
    asked = parser.parse_args()
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
