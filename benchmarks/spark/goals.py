"""Light jobs, few records and memory: tables and verdicts. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.spark.figures import Growth, Light, Overhead, Trickle
from benchmarks.spark.plan import (
    BATCH_RECORDS,
    FEW_RECORDS,
    GROWTH_VALUE_BYTES,
    LIGHT,
    LIGHT_BY_HAND,
    LIGHT_KAFKA,
    LIGHT_RANGES,
    LIGHT_RECORDS,
    MOST_GROWTH_MB,
    MOST_LIGHT,
    MOST_OVER_MS,
    MOST_TRICKLE_MS,
    TICKS_PER_S,
    TRICKLE_WAIT,
    Contender,
)
from benchmarks.spark.report import Verdict, verdict

LightRound = Mapping[str, Light]
"""contender's name -> what it took in that round; without those that failed."""


def lights(rounds: Sequence[LightRound]) -> str:
    """Markdown: a row for each contender, in the order of the plan."""
    head = [
        "| | keeps how far it came | from start to start, ms, median (lowest - highest) | of it the job "
        "| between two jobs |",
        "|---|---|---:|---:|---:|",
    ]
    return "\n".join([*head, *filter(None, (_light(rounds, contender) for contender in LIGHT))])


def page(rounds: Sequence[LightRound], growth: Growth | None, trickle: Trickle | None) -> list[str]:
    """What was measured of them, as lines of Markdown."""
    lines: list[str] = []
    if rounds:
        lines += [
            f"## A light job: batches of {BATCH_RECORDS:,} records",
            "",
            "`groupBy` the length of the value, `count`, `collect`, with a backlog waiting. Measured from the start of "
            "one job to the start of the next one. By hand the job includes reading Kafka in one of the ways, and "
            "making the DataFrame in the other one; ours reads, plans and ships the next batch during the job.",
            "",
            lights(rounds),
            "",
        ]
    if growth is not None:
        lines += [
            "## Memory and single records",
            "",
            f"- A backlog of {growth.records:,} records of {GROWTH_VALUE_BYTES} bytes, in batches of "
            f"{BATCH_RECORDS:,}, takes our process from {growth.before_mb:.0f} to {growth.peak_mb:.0f} MB.",
        ]
    if trickle is not None:
        spread = trickle.latency_ms
        lines += [
            f"- {TICKS_PER_S:,} records a second with `batch_max_wait` = {TRICKLE_WAIT}: from send to call "
            f"{spread.p50:.0f} ms (p50), {spread.p99:.0f} ms (p99), over {trickle.batches} batches.",
            "",
        ]
    return lines


def _light(rounds: Sequence[LightRound], contender: Contender) -> str:
    runs = [each[contender.name] for each in rounds if contender.name in each]
    if not runs:
        return ""
    periods = [second * 1e3 for run in runs for second in run.period_s]
    jobs = [second * 1e3 for run in runs for second in run.job_s]
    between = [period - job for period, job in zip(periods, jobs, strict=True)]
    cells = [
        contender.name,
        contender.keeps,
        f"{statistics.median(periods):.0f} ({min(periods):.0f} - {max(periods):.0f})",
        f"{statistics.median(jobs):.0f}",
        f"{statistics.median(between):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def light_ratios(
    rounds: Sequence[LightRound], contender: Contender, others: Sequence[Contender] = LIGHT_BY_HAND
) -> list[float]:
    """How much longer *contender* took than the fastest of *others*, for each round that has all of
    them.
    """
    return [
        each[contender.name].median_s / min(each[other.name].median_s for other in others)
        for each in rounds
        if contender.name in each and all(other.name in each for other in others)
    ]


def verdicts(
    rounds: Sequence[LightRound],
    measured: Sequence[Overhead],
    growth: Growth | None,
    trickle: Trickle | None,
) -> list[Verdict]:
    """For each goal, whether it is met."""
    return [
        _is_light(rounds, LIGHT_RECORDS, LIGHT_BY_HAND, "the better one of both by hand"),
        _is_light(rounds, LIGHT_RANGES, (LIGHT_KAFKA,), LIGHT_KAFKA.name),
        _few(measured),
        _growth(growth),
        _trickle(trickle),
    ]


def _is_light(
    rounds: Sequence[LightRound], contender: Contender, others: Sequence[Contender], what: str
) -> Verdict:
    found = light_ratios(rounds, contender, others)
    if not found:
        return False, f"NOT MEASURED: a light job, {contender.name} beside {what}"
    ratio = statistics.median(found)
    text = (
        f"from start to start of a light job {contender.name} takes {ratio:.2f} times {what}; "
        f"the goal is at most {MOST_LIGHT:g}"
    )
    return verdict(ratio <= MOST_LIGHT, text)


def _few(measured: Sequence[Overhead]) -> Verdict:
    found = [one for one in measured if one.records == FEW_RECORDS]
    if not found:
        return False, f"NOT MEASURED: the overhead of a batch of {FEW_RECORDS:,} records"
    over_ms = found[0].over_ms
    text = (
        f"a batch of {FEW_RECORDS:,} records takes {over_ms:.1f} ms more than by hand; "
        f"the goal is at most {MOST_OVER_MS:g} ms"
    )
    return verdict(over_ms <= MOST_OVER_MS, text)


def _growth(growth: Growth | None) -> Verdict:
    if growth is None:
        return False, "NOT MEASURED: what a backlog adds to the memory of our process"
    text = (
        f"a backlog of {growth.records:,} records adds {growth.grown_mb:.0f} MB to our process; "
        f"the goal is at most {MOST_GROWTH_MB:g} MB"
    )
    return verdict(growth.grown_mb <= MOST_GROWTH_MB, text)


def _trickle(trickle: Trickle | None) -> Verdict:
    if trickle is None or not trickle.latency_ms.count:
        return False, "NOT MEASURED: the latency of single records into a Spark function"
    p50 = trickle.latency_ms.p50
    text = (
        f"half of the records that come one by one are in a call within {p50:.0f} ms, with `batch_max_wait` = "
        f"{TRICKLE_WAIT}; the goal is at most {MOST_TRICKLE_MS:g} ms"
    )
    return verdict(p50 <= MOST_TRICKLE_MS, text)
