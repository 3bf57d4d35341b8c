"""Runs become tables and verdicts. No I/O."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.build import Build
from benchmarks.figures import BEST, CPU, RATE, RECORDS, RSS, Figures, Round, written
from benchmarks.gauges.plan import GAUGES
from benchmarks.goals import GOALS, Goal
from benchmarks.plan import BASELINES, CONTENDERS, Contender, Series

WIDTH = 120
"""Columns of a page's prose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one Python has measured.

    Args:
        build: Which one.
        rows: The names of the rows that it was to measure.
        rounds: In each round what each of them measured, without those that failed.
    """

    build: Build
    rows: frozenset[str]
    rounds: list[Round] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a goal is met on one Python; without a value it was to be measured and was not."""

    goal: Goal
    build: Build
    value: float | None

    @property
    def met(self) -> bool:
        """Whether it is; what was not measured is not met."""
        least = self.goal.least
        most = self.goal.most
        is_enough = self.value is not None and (least is None or self.value >= least)
        return is_enough and (most is None or self.value is None or self.value <= most)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        what = of_what(self.goal)
        if self.value is None:
            return f"NOT MEASURED on {self.build.name}: {what}"
        word = "met" if self.met else "MISSED"
        return (
            f"{word} on {self.build.name}: {what}: {self.value:.3g}; the goal is {bound(self.goal)}"
        )


def of_what(goal: Goal) -> str:
    """What is to be so large or so small."""
    if goal.beside is None:
        return f"{goal.row}: {goal.figure}"
    if goal.figure == RATE:
        return f"{goal.row} beside {goal.beside}"
    return f"{goal.row} beside {goal.beside}: {goal.figure}"


def bound(goal: Goal) -> str:
    """How large or small it is to be."""
    times = "" if goal.beside is None else " times"
    parts = (("at least", goal.least), ("at most", goal.most))
    return ", ".join(f"{word} {value:,g}{times}" for word, value in parts if value is not None)


def value(goal: Goal, rounds: Sequence[Round]) -> float | None:
    """What a goal is about, over the rounds that have it; None if none has."""
    beside = goal.beside or goal.row
    figure = goal.figure
    both = [
        (each[goal.row][figure], each[beside][figure])
        for each in rounds
        if {goal.row, beside} <= each.keys()
    ]
    if not both:
        return None
    if goal.beside is None:
        return over_rounds(figure, [own for own, _ in both])
    if figure in BEST:
        return over_rounds(figure, [own for own, _ in both]) / over_rounds(
            figure, [other for _, other in both]
        )
    return statistics.median(own / other for own, other in both)


def over_rounds(figure: str, measured: Sequence[float]) -> float:
    """What counts of a figure that several rounds have."""
    best = BEST.get(figure)
    return statistics.median(measured) if best is None else best(measured)


def verdicts(measured: Sequence[Measured], goals: Sequence[Goal] = GOALS) -> list[Verdict]:
    """For each goal and each Python that was to measure it."""
    return [
        Verdict(goal=goal, build=one.build, value=value(goal, one.rounds))
        for goal in goals
        for one in measured
        if {goal.row, goal.beside or goal.row} <= one.rows
    ]


def promises(measured: Sequence[Measured], goals: Sequence[Goal] = GOALS) -> str:
    """Markdown: a row for each goal, a column for each Python; empty if none was to be measured."""
    found = {(verdict.goal, verdict.build.python): verdict for verdict in verdicts(measured, goals)}
    rows = []
    for goal in goals:
        beside = [found.get((goal, one.build.python)) for one in measured]
        if any(beside):
            rows.append(f"| {of_what(goal)} | {bound(goal)} | {' | '.join(map(_cell, beside))} |")
    if not rows:
        return ""
    head = f"| goal | to reach | {' | '.join(one.build.name for one in measured)} |"
    return "\n".join([head, f"|---|---|{'---:|' * len(measured)}", *rows])


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    if verdict.value is None:
        return "not measured"
    return written(verdict.value) if verdict.met else f"**{written(verdict.value)}** (missed)"


def tables(measured: Measured, wanted: Collection[str] | None = None) -> Iterator[str]:
    """Markdown: the tables of what one Python has measured, in the order of the plan; None: all,
    else *wanted* ones.
    """
    for series in BASELINES:
        if (wanted is None or series in wanted) and (text := throughputs(measured.rounds, series)):
            yield text
    for about in dict.fromkeys(one.table for one in GAUGES):
        if (wanted is None or about in wanted) and (text := gauged(measured.rounds, about)):
            yield text


def by_python(measured: Sequence[Measured]) -> str:
    """Markdown: the throughputs that are measured everywhere, a column for each Python; empty if
    there are none.
    """
    rows = []
    for one in CONTENDERS:
        if one.everywhere and any(one.name in each for on in measured for each in on.rounds):
            cells = " | ".join(_rate_on(on.rounds, one) for on in measured)
            rows.append(f"| {one.name} | {cells} |")
    head = "| records/s (ratio) | " + " | ".join(on.build.name for on in measured) + " |"
    return "\n".join([head, "|---|" + "---:|" * len(measured), *rows]) if rows else ""


def _rate_on(rounds: Sequence[Round], contender: Contender) -> str:
    rates = [each[contender.name][RATE] for each in rounds if contender.name in each]
    ratio = _ratio(rounds, contender)
    return f"{written(over_rounds(RATE, rates))}{ratio and f' ({ratio})'}" if rates else ""


def _ratio(rounds: Sequence[Round], contender: Contender) -> str:
    found = value(Goal(row=contender.name, beside=BASELINES[contender.series]), rounds)
    return "" if found is None else f"{found:.3g}"


def throughputs(rounds: Sequence[Round], series: Series) -> str:
    """Markdown: a row for each contender of *series*, in the order of the plan; empty if none was
    measured.
    """
    head = (
        f"| handler: {series} | commits | records | records/s, best (least) | "
        f"ratio to {BASELINES[series]} | {CPU} | {RSS} |"
    )
    rows = [row for one in CONTENDERS if one.series == series and (row := _row(rounds, one))]
    return "\n".join([head, "|---|---|---:|---:|---:|---:|---:|", *rows]) if rows else ""


def _row(rounds: Sequence[Round], contender: Contender) -> str:
    runs = [each[contender.name] for each in rounds if contender.name in each]
    if not runs:
        return ""
    rate, cpu, rss = (
        over_rounds(figure, [run[figure] for run in runs]) for figure in (RATE, CPU, RSS)
    )
    least = min(run[RATE] for run in runs)
    return (
        f"| {contender.name} | {contender.commits} | {runs[0][RECORDS]:,.0f} | {written(rate)} ({written(least)}) | "
        f"{_ratio(rounds, contender)} | {cpu:.2f} | {rss:.0f} |"
    )


def gauged(rounds: Sequence[Round], about: str) -> str:
    """Markdown: a row for each gauge of one table, a column for each figure; empty if none was
    measured.
    """
    found = {
        one.name: [each[one.name] for each in rounds if one.name in each]
        for one in GAUGES
        if one.table == about
    }
    found = {name: runs for name, runs in found.items() if runs}
    columns = list(dict.fromkeys(figure for runs in found.values() for figure in runs[0]))
    rows = [
        f"| {name} | "
        + " | ".join(_spread(runs, column) if column in runs[0] else "" for column in columns)
        + " |"
        for name, runs in found.items()
    ]
    head = f"| {about}: median (lowest - highest) | " + " | ".join(columns) + " |"
    return "\n".join([head, "|---|" + "---:|" * len(columns), *rows]) if rows else ""


def _spread(runs: Sequence[Figures], figure: str) -> str:
    measured = [run[figure] for run in runs]
    middle = written(statistics.median(measured))
    return f"{middle} ({written(min(measured))} - {written(max(measured))})"


def in_short(figures: Figures) -> str:
    """For whoever watches."""
    return ", ".join(
        f"{name} {written(value)}" for name, value in figures.items() if name != RECORDS
    )


def wrapped(page: str) -> str:
    """The page with no line of prose wider than :data:`WIDTH`; tables, headings and code spans stay
    whole.
    """
    return "\n".join(line for wide in page.split("\n") for line in _wrapped(wide))


def _wrapped(line: str) -> list[str]:
    if len(line) <= WIDTH or line.startswith(("|", "#")):
        return [line]
    whole = re.sub(r"`[^`]+`", lambda span: span[0].replace(" ", "\0"), line)
    indent = "  " if line.startswith("- ") else ""
    lines = textwrap.wrap(
        whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [one.replace("\0", " ") for one in lines]
