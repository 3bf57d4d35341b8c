"""Rates, trends and percentiles, from the differences between looks at the facts. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import sub

from reactive_kafka.observe.facts import (
    AppFacts,
    ChannelFacts,
    DurationHistogram,
    OutgoingFacts,
    PartitionTotals,
)

KEPT_S = 60.0
"""How long a look is kept. Trends and percentiles are those of this time."""
RATE_S = 5.0
"""The time that rates are measured over, if there was a look before it."""
LEAST_BETWEEN_S = 0.9
"""A look that comes sooner after the last one is not kept, so that their number is bounded."""


@dataclass(frozen=True, slots=True)
class CountersAt:
    """The counters of one channel at one moment."""

    # Monotonic, in seconds.
    at: float
    received: int
    # Settled records of an incoming channel, sent ones of an outgoing channel.
    done: int
    lag: int | None
    # Calls of its handlers, or sends, by bucket of their duration.
    durations: tuple[int, ...]
    bounds: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendFacts:
    """How fast a channel works. None: that cannot be known yet, or there was nothing to measure."""

    received_per_s: float | None = None
    done_per_s: float | None = None
    # Below 0 the channel catches up.
    lag_per_s: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None


class Looks:
    """The counters that somebody has looked at in the last minute, by channel."""

    def __init__(self) -> None:
        self._looks: dict[tuple[str, str], deque[CountersAt]] = {}

    def look(self, facts: AppFacts, now: float) -> dict[tuple[str, str], TrendFacts]:
        """Remember the counters, and return the trends by direction and name of the channel.

        Args:
            facts: The facts of the application.
            now: The time of the monotonic clock.
        """
        found = {("incoming", one.channel): _incoming(one, now) for one in facts.channels}
        found |= {(one.direction, one.channel): _outgoing(one, now) for one in facts.outgoing}
        # Channels may be added while the application runs, and end with it.
        self._looks = {key: self._looks.get(key, deque()) for key in found}
        return {key: self._trend(self._looks[key], counters) for key, counters in found.items()}

    def _trend(self, looks: deque[CountersAt], newest: CountersAt) -> TrendFacts:
        while looks and looks[0].at < newest.at - KEPT_S:
            looks.popleft()
        if looks and (looks[-1].received > newest.received or looks[-1].done > newest.done):
            # The application was started again.
            looks.clear()
        trend = trend_of(looks, newest)
        if not looks or newest.at - looks[-1].at >= LEAST_BETWEEN_S:
            looks.append(newest)
        return trend


def trend_of(earlier: Sequence[CountersAt], newest: CountersAt) -> TrendFacts:
    """Return the trends between earlier counters, the oldest first, and the newest."""
    if not earlier:
        # Percentiles since the start are better than none.
        p50_s, p99_s = (quantile(newest.bounds, newest.durations, share) for share in (0.5, 0.99))
        return TrendFacts(p50_s=p50_s, p99_s=p99_s)
    oldest = earlier[0]
    durations = tuple(map(sub, newest.durations, oldest.durations))
    received_per_s = done_per_s = lag_per_s = None
    until = newest.at - RATE_S
    recent = max((one for one in earlier if one.at <= until), key=_at, default=oldest)
    if (elapsed_s := newest.at - recent.at) > 0:
        received_per_s = (newest.received - recent.received) / elapsed_s
        done_per_s = (newest.done - recent.done) / elapsed_s
    if newest.lag is not None and oldest.lag is not None and newest.at > oldest.at:
        lag_per_s = (newest.lag - oldest.lag) / (newest.at - oldest.at)
    return TrendFacts(
        received_per_s=received_per_s,
        done_per_s=done_per_s,
        lag_per_s=lag_per_s,
        p50_s=quantile(newest.bounds, durations, 0.5),
        p99_s=quantile(newest.bounds, durations, 0.99),
    )


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return the duration that *share* of all durations do not exceed, None if there are none.

    Within a bucket durations are taken to be spread evenly, as Prometheus' ``histogram_quantile``
    does. Above the last bound it returns that bound.
    """
    total = sum(counts)
    if total <= 0:
        return None
    wanted = share * total
    before = 0
    lower = 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if before + count >= wanted and count:
            return lower + (bound - lower) * (wanted - before) / count
        before += count
        lower = bound
    return lower


def total_lag(lags: Iterable[int | None]) -> int | None:
    """Return the sum of the lags that are known, or None if none of them is."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def totals_of(channel: ChannelFacts) -> PartitionTotals:
    """Return the counters of all partitions since the start, also of those that are gone."""
    sums = PartitionTotals()
    for totals in channel.totals.values():
        sums.add(totals)
    return sums


def _at(counters: CountersAt) -> float:
    return counters.at


def _incoming(channel: ChannelFacts, now: float) -> CountersAt:
    totals = totals_of(channel)
    return CountersAt(
        at=now,
        received=totals.received,
        done=totals.acked + sum(totals.nacked.values()),
        lag=total_lag(partition.lag for partition in channel.partitions),
        durations=tuple(channel.handler_durations.counts),
        bounds=channel.handler_durations.bounds,
    )


def _outgoing(channel: OutgoingFacts, now: float) -> CountersAt:
    durations: DurationHistogram = channel.send_durations
    sent = channel.sent.get("ok", 0)
    return CountersAt(
        at=now,
        received=sent + channel.sent.get("failed", 0),
        done=sent,
        lag=None,
        durations=tuple(durations.counts),
        bounds=durations.bounds,
    )
