"""Runs become tables and verdicts. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.spark.figures import Beside, Overhead, Spread, Throughput
from benchmarks.spark.plan import (
    BATCH_RECORDS,
    BY_HAND,
    CONTENDERS,
    LEAST_RATIO,
    MAX_POLL_INTERVAL_S,
    MOST_OVERHEAD,
    OURS,
    Contender,
)

Round = Mapping[str, Throughput]
"""contender's name -> what it took in that round; without those that failed."""

Verdict = tuple[bool, str]
"""Whether a goal is met, and the sentence that says so. What was not measured is not met."""


def throughputs(rounds: Sequence[Round]) -> str:
    """Markdown: a row for each contender, in the order of the plan."""
    head = [
        "| | keeps how far it came | records/s, median (lowest - highest) | ratio to by hand (lowest - highest) "
        "| median batch, ms | peak RSS MB, Python | Java |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join(
        [*head, *filter(None, (_throughput(rounds, contender) for contender in CONTENDERS))]
    )


def _throughput(rounds: Sequence[Round], contender: Contender) -> str:
    runs = _runs(rounds, contender)
    if not runs:
        return ""
    rates = [run.rate for run in runs]
    cells = [
        contender.name,
        contender.keeps,
        _with_range(rates, ",.0f"),
        _with_range(ratios(rounds, contender), ".2f") if contender is not BY_HAND else "1",
        f"{statistics.median(second for run in runs for second in run.batch_s) * 1e3:.0f}",
        f"{statistics.median(run.peak_rss_mb for run in runs):.0f}",
        f"{statistics.median(run.driver_mb for run in runs):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _runs(rounds: Sequence[Round], contender: Contender) -> list[Throughput]:
    return [each[contender.name] for each in rounds if contender.name in each]


def _with_range(values: Sequence[float], form: str) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):{form}} ({min(values):{form}} - {max(values):{form}})"


def ratios(rounds: Sequence[Round], contender: Contender) -> list[float]:
    """How much faster *contender* was than by hand, for each round that has both."""
    return [
        each[contender.name].rate / each[BY_HAND.name].rate
        for each in rounds
        if contender.name in each and BY_HAND.name in each
    ]


def loop_and_memory(rounds: Sequence[Round]) -> str:
    """Markdown: our process meanwhile; medians over the rounds, and the worst of all."""
    rows = []
    for contender in OURS:
        runs = _runs(rounds, contender)
        lags = [run.lag_ms for run in runs if run.lag_ms is not None]
        memory = [run.rss_mb for run in runs if run.rss_mb is not None]
        if lags and memory:
            rows.append(
                f"| {contender.name} | {_lag(lags)} "
                f"| {statistics.median(one.p50 for one in memory):.0f} | {max(one.max for one in memory):.0f} |"
            )
    head = "| | loop lag p50, ms | p99 | max | RSS MB, p50 | max |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|", *rows])


def _lag(spreads: Sequence[Spread]) -> str:
    p50, p99 = (
        statistics.median(values)
        for values in zip(*((one.p50, one.p99) for one in spreads), strict=True)
    )
    return f"{p50:.2f} | {p99:.1f} | {max(one.max for one in spreads):.1f}"


def overheads(measured: Sequence[Overhead]) -> str:
    """Markdown: a row for each size of batches."""
    head = [
        "| records of a batch | ours, ms, median (lowest - highest) | by hand | more, ms | more, % "
        "| of ours before the function, ms | after it |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*head, *map(_overhead, measured)])


def _overhead(one: Overhead) -> str:
    cells = [
        f"{one.records:,}",
        _with_range([second * 1e3 for second in one.ours_s], ".0f"),
        _with_range([second * 1e3 for second in one.by_hand_s], ".0f"),
        f"{one.over_ms:.1f}",
        f"{one.over * 100:.1f}",
        f"{statistics.median(one.before_s) * 1e3:.1f}",
        f"{statistics.median(one.after_s) * 1e3:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def beside(one: Beside) -> str:
    """Markdown: a row for each thing that Spark did."""
    head = [
        "| Spark does meanwhile | records | latency p50, ms | p99 | max | loop lag p50, ms | p99 | max |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows = [
        f"| {phase.name} | {phase.latency_ms.count:,} | {phase.latency_ms.p50:.1f} | {phase.latency_ms.p99:.1f} "
        f"| {phase.latency_ms.max:.1f} | {_lag([phase.lag_ms])} |"
        for phase in one.phases
    ]
    return "\n".join([*head, *rows])


def verdicts(
    rounds: Sequence[Round], measured: Sequence[Overhead], plain: Beside | None
) -> list[Verdict]:
    """For each goal, whether it is met."""
    return [
        *(_ratio(rounds, contender) for contender in OURS),
        _share(measured),
        _no_rebalance(plain),
    ]


def _ratio(rounds: Sequence[Round], contender: Contender) -> Verdict:
    found = ratios(rounds, contender)
    if not found:
        return False, f"NOT MEASURED: {contender.name} beside {BY_HAND.name}"
    median = statistics.median(found)
    text = f"{contender.name} is {median:.2f} times {BY_HAND.name}; the goal is at least {LEAST_RATIO:g}"
    return verdict(median >= LEAST_RATIO, text)


def _share(measured: Sequence[Overhead]) -> Verdict:
    found = [one for one in measured if one.records == BATCH_RECORDS]
    if not found:
        return False, f"NOT MEASURED: the overhead of a batch of {BATCH_RECORDS:,} records"
    over = found[0].over
    text = (
        f"a batch of {BATCH_RECORDS:,} records takes {over:.1%} more than `createDataFrame` and the job by hand; "
        f"the goal is below {MOST_OVERHEAD:.0%}"
    )
    return verdict(over < MOST_OVERHEAD, text)


def _no_rebalance(plain: Beside | None) -> Verdict:
    if plain is None or plain.longest_job_s <= MAX_POLL_INTERVAL_S:
        return (
            False,
            "NOT MEASURED: a plain channel beside a job that is longer than `max_poll_interval_ms`",
        )
    text = (
        f"{plain.rebalances} rebalances with a job of {plain.longest_job_s:.1f} s and a `max_poll_interval_ms` of "
        f"{MAX_POLL_INTERVAL_S:g} s; the goal is none"
    )
    return verdict(plain.rebalances == 0, text)


def verdict(is_met: bool, text: str) -> Verdict:
    """The sentence, with what came of it in front."""
    return is_met, f"{'met' if is_met else 'MISSED'}: {text}"
