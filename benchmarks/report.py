"""Runs become a table and a verdict. No I/O."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Mapping, Sequence

from benchmarks.contenders.meter import Result
from benchmarks.plan import BASELINES, CONTENDERS, GOALS, Contender, Series

Round = Mapping[str, Result]
"""contender's name -> what it took in that round; without those that failed."""


WIDTH = 120
"""Columns of a page's prose."""


def wrapped(page: str) -> str:
    """The page with no line of prose wider than :data:`WIDTH`; tables, headings and code spans stay whole."""
    return "\n".join(line for wide in page.split("\n") for line in _wrapped(wide))


def _wrapped(line: str) -> list[str]:
    if len(line) <= WIDTH or line.startswith(("|", "#")):
        return [line]
    whole = re.sub(r"`[^`]+`", lambda span: span[0].replace(" ", "\0"), line)
    indent = "  " if line.startswith("- ") else ""
    lines = textwrap.wrap(whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [one.replace("\0", " ") for one in lines]


def rate(result: Result) -> float:
    """Records a second."""
    return result.records / result.wall_s


def ratios(rounds: Sequence[Round], ours: str, theirs: str) -> list[float]:
    """How much faster *ours* was than *theirs*, for each round that has both."""
    return [rate(each[ours]) / rate(each[theirs]) for each in rounds if ours in each and theirs in each]


def table(rounds: Sequence[Round], series: Series) -> str:
    """Markdown: a row for each contender of *series*, in the order of the plan; empty if none was measured."""
    head = (
        f"| handler: {series} | commits | records | records/s, median (lowest - highest) | "
        f"ratio to {BASELINES[series]} | CPU s per million | peak RSS MB |"
    )
    rows = [row for one in CONTENDERS if one.series == series and (row := _row(rounds, one))]
    return "\n".join([head, "|---|---|---:|---:|---:|---:|---:|", *rows]) if rows else ""


def _row(rounds: Sequence[Round], contender: Contender) -> str:
    runs = [each[contender.name] for each in rounds if contender.name in each]
    if not runs:
        return ""
    rates = [rate(run) for run in runs]
    cpu = statistics.median(run.cpu_s / run.records * 1e6 for run in runs)
    rss = statistics.median(run.peak_rss_mb for run in runs)
    spread = f"{_figure(statistics.median(rates))} ({_figure(min(rates))} - {_figure(max(rates))})"
    beside = ratios(rounds, contender.name, BASELINES[contender.series])
    ratio = f"{statistics.median(beside):.3g}" if beside else ""
    return (
        f"| {contender.name} | {contender.commits} | {runs[0].records:,} | {spread} | {ratio} | {cpu:.2f} | {rss:.0f} |"
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def verdicts(rounds: Sequence[Round]) -> list[tuple[bool, str]]:
    """For each goal: whether it is met, and the sentence that says so. What was not measured is not met."""
    found = []
    for goal in GOALS:
        measured = ratios(rounds, goal.ours, goal.theirs)
        if not measured:
            found.append((False, f"NOT MEASURED: {goal.ours} beside {goal.theirs}"))
            continue
        median = statistics.median(measured)
        met = median >= goal.least
        text = f"{goal.ours} is {median:.2f} times {goal.theirs}; the goal is at least {goal.least:g}"
        found.append((met, f"{'met' if met else 'MISSED'}: {text}"))
    return found
