"""Arithmetic problems, split so that none that is held out is trained on, in either order of operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmexp.corpus.config import ProblemsSpec
from llmexp.corpus.records import Record, hash01, hash64
from llmexp.corpus.source import Source

HELDOUT_SHARE = 0.1
"""Share of the problems that is held out. No setting changes it: two sources with different
shares would train on each other's held-out problems."""


@dataclass(frozen=True)
class Problem:
    """``a operator b``."""

    a: int
    b: int
    operator: str

    @property
    def answer(self) -> int:
        """The value; a difference is that of the larger and the smaller operand."""
        return {"+": self.a + self.b, "-": abs(self.a - self.b), "*": self.a * self.b}[self.operator]

    @property
    def key(self) -> str:
        """The same for both orders of the operands."""
        low, high = sorted((self.a, self.b))
        return f"arithmetic {low} {self.operator} {high}"

    @property
    def split(self) -> str:
        """``train`` or ``heldout``, by the hash of `key` alone."""
        return "heldout" if hash01(self.key) < HELDOUT_SHARE else "train"


def problems(spec: ProblemsSpec, split: str, count: int, sample: int) -> list[Problem]:
    """``count`` different problems of one split (all, if there are fewer), in an order fixed by ``sample``.

    Each pair of operands comes once, in one of its two orders, until all pairs are used; then
    the other orders follow. Every source of problems draws them here.
    """
    pairs = [
        Problem(a, b, operator)
        for operator in dict.fromkeys(spec.operators)
        for a in range(spec.low, spec.high + 1)
        for b in range(spec.low, a + 1)
    ]
    mine = [problem for problem in pairs if problem.split == split]
    mine.sort(key=lambda problem: hash64(f"{sample} {problem.key}"))
    first, second = [], []
    for p in mine:
        turned = Problem(p.b, p.a, p.operator)
        # A difference is written larger operand first; its other order would be negative.
        forward = p.operator == "-" or hash64(f"order {sample} {p.key}") % 2 == 0
        first.append(p if forward else turned)
        if p.a != p.b and p.operator != "-":
            second.append(turned if forward else p)
    return (first + second)[:count]


def _number(value: int, digits: str, *, answer: bool) -> str:
    text = str(value)
    if digits == "spaced":
        return " ".join(text)
    return text[::-1] if digits == "reversed" and answer else text


def question(problem: Problem, spec: ProblemsSpec) -> str:
    """The user's turn."""
    a, b = (_number(n, spec.digits, answer=False) for n in (problem.a, problem.b))
    return spec.question.replace("{problem}", f"{a} {problem.operator} {b}")


def answer(problem: Problem, spec: ProblemsSpec) -> str:
    """The assistant's turn."""
    return _number(problem.answer, spec.digits, answer=True)


def prompt(problem: Problem, spec: ProblemsSpec) -> Record:
    """A problem as a record to learn from by reward."""
    return {
        "id": f"{problem.a}{problem.operator}{problem.b}",
        "source": "arithmetic",
        "kind": "prompt",
        "messages": [{"role": "user", "content": question(problem, spec)}],
        "answer": answer(problem, spec),
        "split_key": problem.key,
        "split": problem.split,
    }


def conversation(problem: Problem, spec: ProblemsSpec) -> Record:
    """A problem as a conversation to learn from by imitation."""
    record = prompt(problem, spec)
    reply = {"role": "assistant", "content": record.pop("answer")}
    return {**record, "kind": "chat", "messages": [*record["messages"], reply]}


@dataclass(kw_only=True)
class ArithmeticPrompts(Source):
    """Prompts with the answers that a reward checks."""

    problems: ProblemsSpec
    n_train: int
    n_heldout: int
    sample: int

    def records(self) -> Iterator[Record]:
        """The training prompts, then the held-out ones."""
        for split, count in (("train", self.n_train), ("heldout", self.n_heldout)):
            for problem in problems(self.problems, split, count, self.sample):
                yield prompt(problem, self.problems)

    def split(self, record: Record) -> str:
        """By the problem, whatever the order of its operands."""
        return record["split"]
