"""Encoding by llmexp ÷ `encode_batch` of `tokenizers` on the same tokenizer, each on every core.

    python -m bench.tokenize_speed [--mb 10] [--blocks 20]

(Not ``tokenize.py``: beside a script that name would hide the standard library's module.)
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.ratio import fails, paired, show
from llmexp.tokenizer.config import BpeSpec
from llmexp.tokenizer.tokenizer import Tokenizer


def library_texts(megabytes: float) -> list[str]:
    """Sources of the standard library, in a fixed order."""
    texts: list[str] = []
    size = 0
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" in file.parts or size > megabytes * 1e6:
            continue
        texts.append(file.read_bytes().decode("utf-8", "replace"))
        size += len(texts[-1].encode())
    return texts


def main() -> int:
    """Train a tokenizer on the texts, check that both sides agree, and time them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=10, help="text to encode, in megabytes")
    parser.add_argument("--blocks", type=int, default=20, help="blocks of each side")
    parser.add_argument("--at-least", type=float, help="fail when the ratio is below this")
    asked = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    texts = library_texts(asked.mb)
    with tempfile.TemporaryDirectory() as folder:
        BpeSpec().build(texts=texts, out=Path(folder))
        ours = Tokenizer.load(folder)
        from tokenizers import Tokenizer as Backend

        theirs = Backend.from_file(f"{folder}/tokenizer.json")
    theirs.encode_special_tokens = True
    threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def encode_ours() -> list[object]:
        return list(threads.map(ours.encode_array, texts))

    def encode_theirs() -> list[object]:
        return theirs.encode_batch(texts, add_special_tokens=False)

    for text, encoding in zip(texts, encode_theirs(), strict=True):
        assert ours.encode(text) == encoding.ids, "the two do not agree"
    ratio = paired(encode_ours, encode_theirs, asked.blocks)
    show(f"tokenize: llmexp ({ours.engine}) / tokenizers encode_batch", ratio, "≥ 3")
    return fails(ratio[0], at_least=asked.at_least)


if __name__ == "__main__":
    sys.exit(main())
