"""What a pipeline learned, on the terminal: the last thing that a person sees of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmexp.report.data import ReportData, StageRow, duration, number, percent, visible
from llmexp.report.tables import Cell, Metric, Table, before_and_after

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

COLUMNS = ("bits_per_byte", "perplexity", "ece", "assistant_loss", "exact_match")
"""Metrics that the terminal has room for; the report shows all."""

NOTICED = 1.02
"""So many times the bits are worth a word."""


@dataclass(frozen=True)
class NextCommand:
    """Something worth doing now."""

    what: str
    """`Talk to the model`"""
    command: str
    """The exact line to type."""


def print_summary(
    data: ReportData,
    console: Console,
    *,
    report: Path | None = None,
    next_commands: Iterable[NextCommand] = (),
    samples: int = 2,
) -> None:
    """Print what the models learned, two generations, where the report is, and what to do next."""
    from rich.rule import Rule

    done = data.status == "done"
    title = f"{visible(data.title)} {'is ready' if done else data.status}"
    console.print()
    console.print(Rule(f"[bold]{_escaped(title)}[/]", style="green" if done else "yellow"))
    for part in parts(data, samples=samples):
        console.print(part)
    console.print()
    for line in _closing(data, report, list(next_commands)):
        # Never wrapped by us: a path or a command that is cut in two cannot be copied.
        console.print(line, soft_wrap=True)
    console.print()


def parts(data: ReportData, *, samples: int) -> Iterable[RenderableType]:
    """What was learned, piece by piece."""
    from rich.padding import Padding
    from rich.text import Text

    for note in data.notes:
        yield Padding(Text.from_markup(f"[yellow]![/] {_escaped(note)}"), (0, 2))
    learned = _learned(data)
    if learned:
        yield Padding(Text.from_markup(learned), (1, 2, 0, 2))
    table = before_and_after(data.evaluation)
    if table:
        yield Padding(_models(table), (1, 2, 0, 2))
    traded = _traded((data.evaluation or {}).get("table", {}))
    if traded:
        yield Padding(Text(traded, style="dim"), (0, 2))
    shown = _samples(data, samples)
    if shown is not None:
        yield Padding(shown, (1, 2, 0, 2))


def _learned(data: ReportData) -> str:
    """The headline figures as sentences."""
    evaluation = data.evaluation or {}
    table, baselines = evaluation.get("table", {}), evaluation.get("baselines", {})
    lines = []
    bits = _column(table, "bits_per_byte")
    if bits:
        name, best = min(bits.items(), key=lambda item: item[1])
        lines.append(f"Held-out text costs [bold]{number(best)}[/] bits per byte after {_escaped(name)}:")
        for key, what in (
            ("unigram_bits_per_byte", "the unigram entropy of the same tokens"),
            ("xz_bits_per_byte", "xz -9 on the same text"),
        ):
            if key in baselines:
                lines.append(f"  {_against(best, float(baselines[key]))} {what} ({number(baselines[key])})")
    if not table:
        lines += [_heldout_line(row) for row in data.stages if heldout_figures(row)]
    exact = _column(table, "exact_match")
    if exact:
        path = " → ".join(f"{_escaped(name)} [bold]{percent(value)}[/]" for name, value in exact.items())
        lines.append(f"Held-out problems answered exactly: {path}")
    return "\n".join(lines)


def heldout_figures(row: StageRow) -> dict[str, float]:
    """The figures on held-out data of a training stage's weights, by key."""
    held = {key: curve for key, curve in row.curves.items() if key.startswith("val/") and curve}
    # A stage that may stop early gives its best weights, not its last.
    kept = row.summary.get("best_step") if (row.config.get("trainer") or {}).get("stop_when") else None
    return {
        key: next((value for step, value in curve if step == kept), curve[-1][1])
        for key, curve in held.items()
    }


def headline(data: ReportData) -> dict[str, float]:
    """What a run came to: the last model's evaluation, else the last held-out figures of its training."""
    table = (data.evaluation or {}).get("table", {})
    if table:
        last = list(table.values())[-1]
        return {key: float(last[key]) for key in COLUMNS if last.get(key) is not None}
    return next((found for row in reversed(data.stages) if (found := heldout_figures(row))), {})


def _heldout_line(row: StageRow) -> str:
    """`Held out after pretrain: loss 3.471, bits per byte 1.745`"""
    said = ", ".join(
        f"{key.removeprefix('val/').replace('_', ' ')} [bold]{number(value)}[/]"
        for key, value in heldout_figures(row).items()
    )
    return f"Held out after {_escaped(row.name)}: {said}"


def _against(best: float, reference: float) -> str:
    share = 1 - best / reference
    colour, side = ("green", "under") if share >= 0 else ("yellow", "over")
    return f"[{colour}]{percent(abs(share))} {side}[/]"


def _models(table: Table) -> RenderableType:
    """Before and after, one line a model."""
    from rich import box
    from rich.table import Table as Grid

    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    grid.add_column("model")
    chosen = [(i, m) for i, m in enumerate(table.metrics) if m.key in COLUMNS]
    for _, metric in chosen:
        grid.add_column(metric.title.lower() if metric.key != "ece" else "ECE", justify="right")
    for row in table.rows:
        label = "initial weights" if row.name == "initial" else f"after {visible(row.name)}"
        grid.add_row(_escaped(label), *(_styled(row.cells[i], metric) for i, metric in chosen))
    return grid


def _traded(table: dict[str, dict[str, Any]]) -> str:
    """Why plain text got worse while answers got better; empty where that is not so."""
    bits, answers = _column(table, "bits_per_byte"), _column(table, "assistant_loss")
    if not bits or not answers:
        return ""
    best, last = min(bits, key=bits.__getitem__), list(table)[-1]
    worse = bits.get(last, 0.0) > NOTICED * bits[best]
    better = best in answers and last in answers and answers[last] < answers[best]
    if not (worse and better):
        return ""
    return f"What follows {visible(best)} trains answers alone: they get better, plain text costs more bits."


def _column(table: dict[str, dict[str, Any]], key: str) -> dict[str, float]:
    """A metric by model, where it was measured."""
    return {name: float(row[key]) for name, row in table.items() if row.get(key) is not None}


def _styled(cell: Cell, metric: Metric) -> str:
    text = _escaped(cell.text)
    return f"[bold green]{text}[/]" if cell.best and metric.key != "ece" else text


def _samples(data: ReportData, count: int) -> RenderableType | None:
    """Generations of the last model, one of each kind first."""
    from rich.table import Table as Grid

    everything: list[dict[str, Any]] = (data.evaluation or {}).get("samples", [])
    made = [sample for sample in everything if sample["completions"]]
    kinds = [sample["kind"] for sample in made]
    # A stable sort: the first of each kind, then the second of each, …
    turn = [kinds[:i].count(kind) for i, kind in enumerate(kinds)]
    chosen = [sample for _, sample in sorted(zip(turn, made, strict=True), key=lambda pair: pair[0])][:count]
    if not chosen:
        return None
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", max_width=32)
    grid.add_column(max_width=72)
    for sample in chosen:
        name, text = list(sample["completions"].items())[-1]
        mark = ""
        if sample.get("answer") is not None:
            right = sample.get("right", {}).get(name)
            mark = " [green]✓[/]" if right else f" [yellow]✗[/] [dim]({_escaped(sample['answer'])})[/]"
        grid.add_row(_escaped(_one_line(sample["prompt"])), _escaped(_clipped(text)) + mark)
    return grid


def _closing(data: ReportData, report: Path | None, next_commands: list[NextCommand]) -> Iterable[str]:
    """How long it took, where the report is, and what to do next: one line each."""
    rows = []
    if data.seconds is not None:
        cached = sum(row.cached for row in data.stages)
        one = len(data.stages) == 1
        count = "1 stage" if one else f"{len(data.stages)} stages"
        about = f"{count}, {cached} found in the store" if data.stages else ""
        if cached and cached == len(data.stages):
            rows.append(("stages", f"{'' if one else 'all '}{count} found in the store"))
        else:
            rows.append(("time", f"{duration(data.seconds)} [dim]{about}[/]"))
    if report is not None:
        rows.append(("report", f"[cyan]{_escaped(str(report))}[/]"))
    rows += [(step.what, f"[bold]{_escaped(step.command)}[/]") for step in next_commands]
    width = max((len(what) for what, _ in rows), default=0)
    return [f"  [dim]{_escaped(what.ljust(width))}[/]  {text}" for what, text in rows]


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())[:60]


def _clipped(text: str, lines: int = 4, characters: int = 280) -> str:
    """The beginning of a generation, without blank lines."""
    kept = [line for line in visible(text).strip().splitlines() if line.strip()]
    clipped = "\n".join(kept[:lines])[:characters]
    return clipped + (" …" if len(kept) > lines or len("\n".join(kept)) > characters else "")


def _escaped(text: Any) -> str:
    """Text in which square brackets are no markup."""
    from rich.markup import escape

    plain = visible(text)
    return escape(plain) + (" " if plain.endswith("\\") else "")
