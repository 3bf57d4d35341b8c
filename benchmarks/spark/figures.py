"""What is measured, as values that travel between processes as JSON. No I/O."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How samples are spread; all in the unit of the samples, 0 if there were none."""

    count: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self:
        """The spread of *samples*; a percentile is the least sample that so many do not exceed."""
        ordered = sorted(samples)
        if not ordered:
            return cls(count=0, p50=0.0, p99=0.0, max=0.0)
        return cls(
            count=len(ordered), p50=_at(ordered, 0.5), p99=_at(ordered, 0.99), max=ordered[-1]
        )


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What one contender took for its batches.

    Args:
        records: In the batches between the two readings of the clock.
        wall_s: From the end of the last warm batch to the end of the last one that is measured.
        batch_s: From the end of one batch to the end of the next, for each.
        peak_rss_mb: Largest resident memory of the Python process in its life.
        driver_mb: The same of the Java process.
        lag_ms: How late the event loop turned; None where there is none.
        rss_mb: Resident memory of the Python process during the batches.
    """

    records: int
    wall_s: float
    batch_s: list[float]
    peak_rss_mb: float
    driver_mb: float
    lag_ms: Spread | None = None
    rss_mb: Spread | None = None

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.wall_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Batches of one size through a channel, each beside one of the same records by hand. All in
    seconds.

    Args:
        records: In a batch.
        ours_s: From when the columns of all records were there, to the commit of the position
            behind them.
        by_hand_s: ``createDataFrame`` of a table that was there, and the job.
        before_s: Of ours, up to the call of the function: plan stored, DataFrame made.
        after_s: Of ours, from the function's return.
    """

    records: int
    ours_s: list[float]
    by_hand_s: list[float]
    before_s: list[float]
    after_s: list[float]

    @property
    def over_ms(self) -> float:
        """How much longer ours took: median of the differences of neighbours."""
        return (
            statistics.median(
                ours - hand for ours, hand in zip(self.ours_s, self.by_hand_s, strict=True)
            )
            * 1e3
        )

    @property
    def over(self) -> float:
        """The same as a share of the time by hand: median of the shares of neighbours."""
        return statistics.median(
            ours / hand - 1 for ours, hand in zip(self.ours_s, self.by_hand_s, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """A light job on one batch after the other, in seconds.

    Args:
        records: In a batch.
        period_s: From the start of one batch's job to the start of the next one's.
        job_s: Of that, until the job's end.
    """

    records: int
    period_s: list[float]
    job_s: list[float]

    @property
    def median_s(self) -> float:
        """From start to start."""
        return statistics.median(self.period_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What this process's resident memory grew by while a channel worked through a backlog.

    Args:
        records: In all.
        before_mb: When Spark had run its first batch, and nothing else was read.
        peak_mb: The largest from then on.
    """

    records: int
    before_mb: float
    peak_mb: float

    @property
    def grown_mb(self) -> float:
        """The difference."""
        return self.peak_mb - self.before_mb


@dataclass(frozen=True, slots=True, kw_only=True)
class Trickle:
    """Few records a second into a batch function.

    Args:
        latency_ms: From a record's send to the call with its batch.
        batches: How many those were.
    """

    latency_ms: Spread
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A plain channel's records and the event loop while Spark did one thing.

    Args:
        name: What Spark did.
        latency_ms: From a record's send to its handler's call.
        lag_ms: How late the event loop turned.
    """

    name: str
    latency_ms: Spread
    lag_ms: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A plain channel beside a Spark channel.

    Args:
        phases: In the order in which they came.
        batches: Spark batches of the phase with many.
        ticks_per_s: Records that the plain channel handled, a second.
        longest_job_s: The job that was to outlast ``max_poll_interval_ms``.
        rebalances: Of either channel, after the first assignment.
    """

    phases: list[Phase]
    batches: int
    ticks_per_s: float
    longest_job_s: float
    rebalances: int


Result = Throughput | Overhead | Beside | Light | Growth | Trickle


def write(result: Result) -> str:
    """*result* as one line."""
    return json.dumps(asdict(result))


def read_throughput(line: str) -> Throughput:
    """What :func:`write` wrote."""
    fields = json.loads(line)
    return Throughput(
        **{**fields, "lag_ms": _spread(fields["lag_ms"]), "rss_mb": _spread(fields["rss_mb"])}
    )


def read_overhead(line: str) -> Overhead:
    """What :func:`write` wrote."""
    return Overhead(**json.loads(line))


def read_light(line: str) -> Light:
    """What :func:`write` wrote."""
    return Light(**json.loads(line))


def read_growth(line: str) -> Growth:
    """What :func:`write` wrote."""
    return Growth(**json.loads(line))


def read_trickle(line: str) -> Trickle:
    """What :func:`write` wrote."""
    fields = json.loads(line)
    return Trickle(**{**fields, "latency_ms": Spread(**fields["latency_ms"])})


def read_beside(line: str) -> Beside:
    """What :func:`write` wrote."""
    fields = json.loads(line)
    phases = [
        Phase(
            name=one["name"], latency_ms=Spread(**one["latency_ms"]), lag_ms=Spread(**one["lag_ms"])
        )
        for one in fields.pop("phases")
    ]
    return Beside(**fields, phases=phases)


def _spread(fields: dict[str, Any] | None) -> Spread | None:
    return None if fields is None else Spread(**fields)
