"""Conversations made from the standard library's docstrings, with some arithmetic."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass

from llmexp.corpus.arithmetic import conversation, problems
from llmexp.corpus.config import ProblemsSpec, PythonStdlibSpec
from llmexp.corpus.records import Record, hash01, hash64, normalized, well_formed
from llmexp.corpus.source import SplitSource
from llmexp.corpus.stdlib import (
    Docstring,
    docstrings,
    module_files,
    module_key,
    module_name,
    parse,
    read_module,
)

_QUESTIONS = {
    "function": (
        "What does `{name}` do?",
        "Explain `{name}`.",
        "What is `{name}` for?",
        "Describe the function `{name}`.",
        "Tell me what `{name}` does.",
        "How would you describe `{name}`?",
    ),
    "class": (
        "What is `{name}`?",
        "Explain `{name}`.",
        "What is the class `{name}` for?",
        "Describe the class `{name}`.",
        "Tell me about `{name}`.",
        "How would you describe `{name}`?",
    ),
    "module": (
        "What is the module `{name}` for?",
        "Explain the `{name}` module.",
        "What does the module `{name}` offer?",
        "Describe the module `{name}`.",
        "Tell me about the `{name}` module.",
        "When would I use `{name}`?",
    ),
}
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_MIN_WORDS = 4
_MIN_PLAIN_WORDS = 0.6
_NOT_PROSE = (">>>", "...", ":", "@", "#", "-", "=", "*", "+")
_SIGNATURE = 80


def answer_from(docstring: str, max_chars: int) -> str | None:
    """The first paragraph of prose of a docstring as one line, cut after a sentence; None if there is none.

    Signatures, examples, tables and field lists are no answers.
    """
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        text = " ".join(paragraph.split())
        if text.startswith(_NOT_PROSE) or "->" in text[:_SIGNATURE]:
            continue
        if len(text) > max_chars:
            ends = [m.end() for m in _SENTENCE_END.finditer(text, 0, max_chars + 1)]
            text = text[: ends[-1]] if ends and ends[-1] <= max_chars else ""
        words = text.split()
        plain = sum(word.strip(".,;:'\"()").isalpha() for word in words)
        if len(words) >= _MIN_WORDS and plain >= _MIN_PLAIN_WORDS * len(words):
            return text if text.endswith((".", "!", "?")) else text.rstrip(":,;") + "."
        return None
    return None


@dataclass(kw_only=True)
class DocstringChats(SplitSource):
    """Questions about the public names of the standard library, answered by their docstrings."""

    phrasings: int
    max_answer_chars: int
    n_docstrings: int | None
    n_arithmetic: int
    arithmetic_repeats: int
    n_arithmetic_heldout: int
    sample: int
    problems: ProblemsSpec

    def split(self, record: Record) -> str:
        """Arithmetic by its problem, the rest by the docstring's module, as in `PythonStdlib`."""
        return record.get("split") or super().split(record)

    def records(self) -> Iterator[Record]:
        """The arithmetic, then the docstrings."""
        train = problems(self.problems, "train", self.n_arithmetic, self.sample)
        for copy in range(self.arithmetic_repeats):  # round by round: copies side by side would share a row
            for problem in train:
                record = conversation(problem, self.problems)
                yield {**record, "id": f"{record['id']}#{copy}"}
        for problem in problems(self.problems, "heldout", self.n_arithmetic_heldout, self.sample):
            yield conversation(problem, self.problems)
        if self.phrasings:
            yield from self._about_docstrings()

    def _about_docstrings(self) -> Iterator[Record]:
        docs = list(public_docstrings())
        keys: dict[str, str] = {}
        for key, doc in docs:
            if answer := self._answer(doc):
                # Of the modules that hold an equal answer, the one held out last: an answer in a module
                # that is trained on would be held out in name only. Equal answers stay on one side.
                keys[normalized(answer)] = max(key, keys.get(normalized(answer), key), key=hash01)
        if self.n_docstrings is not None:  # by the hashes of their names: more of them only add to fewer
            docs = heapq.nsmallest(self.n_docstrings, docs, key=lambda one: hash64(one[1].name))
        for _, doc in docs:
            if answer := self._answer(doc):
                yield from self._about(doc, answer, keys[normalized(answer)])

    def _answer(self, doc: Docstring) -> str | None:
        return answer_from(well_formed(doc.text)[0], self.max_answer_chars)

    def _about(self, doc: Docstring, answer: str, key: str) -> Iterator[Record]:
        questions = _QUESTIONS[doc.what]
        start = hash64(f"question {doc.name}")
        for number in range(self.phrasings):
            question = questions[(start + number) % len(questions)].format(name=doc.name)
            yield {
                "id": f"{doc.name}?{number}",
                "source": "docstrings",
                "kind": "chat",
                "messages": [
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": answer},
                ],
                "split_key": key,
            }


def public_docstrings() -> Iterator[tuple[str, Docstring]]:
    """The docstrings of all names of the standard library without a leading underscore, each name once.

    With each comes the key that its module is split by.
    """
    seen = set()
    for file in module_files(PythonStdlibSpec().exclude):
        name = module_name(file)
        if any(part.startswith("_") for part in name.split(".")):
            continue
        try:
            tree = parse(read_module(file))
        except (SyntaxError, ValueError):
            continue  # python_stdlib counts such modules; for questions a missing one is no fault
        for doc in docstrings(tree, name):
            if doc.name not in seen and not any(part.startswith("_") for part in doc.name.split(".")):
                seen.add(doc.name)
                yield module_key(file), doc
