"""How fast a group catches up."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.cli.lag_command import LagLook, Row, looks, trend_lines
from reactive_kafka.cli.lag_trend import WINDOW_S, LagHistory, LagTrend, PartitionOffsets
from reactive_kafka.clock import Clock
from reactive_kafka.errors import TransientBrokerError
from tests.app.helpers import in_virtual_time

KEY = ("billing", "orders", 0)
OTHER = ("billing", "orders", 1)


def history(*seen: tuple[float, int, int]) -> LagHistory:
    """What was seen of one partition: time, committed position, end of the log."""
    made = LagHistory()
    for now, committed, log_end in seen:
        made.add(now, {KEY: PartitionOffsets(committed, log_end)})
    return made


def test_one_look_has_no_trend() -> None:
    assert LagHistory().trend([KEY]) is None
    assert history((0.0, 5, 9)).trend([KEY]) is None
    assert history((7.0, 5, 9), (7.0, 6, 9)).trend([KEY]) is None


@given(
    handled=st.integers(0, 1000),
    written=st.integers(0, 1000),
    lag=st.integers(0, 10**6),
    every_s=st.integers(1, 200),
    count=st.integers(2, 300),
)
def test_a_constant_rate_is_measured_as_it_is(
    handled: int, written: int, lag: int, every_s: int, count: int
) -> None:
    times = [number * every_s for number in range(count)]
    start = lag + 10**6
    seen = [(float(now), now * handled, start + now * written) for now in times]
    trend = history(*seen).trend([KEY])
    assert trend is not None
    assert trend.handled == pytest.approx(handled)
    assert trend.written == pytest.approx(written)
    now = times[-1]
    assert trend.lag == max(0, start + now * (written - handled))


def test_rates_are_those_of_the_last_minute() -> None:
    fast = [(float(now), now * 100, 10**6) for now in range(100)]
    then_slow = [(100.0 + now, 9_900 + now, 10**6) for now in range(int(WINDOW_S) + 2)]
    trend = history(*fast, *then_slow).trend([KEY])
    assert trend is not None
    assert trend.handled == pytest.approx(1.0)


def test_a_partition_that_went_back_counts_with_its_lag_only() -> None:
    trend = history((0.0, 50, 60), (10.0, 0, 60)).trend([KEY])
    assert trend == LagTrend(0.0, 0.0, 60)
    recreated = history((0.0, 0, 60), (10.0, 5, 20)).trend([KEY])
    assert recreated == LagTrend(0.0, 0.0, 15)


def test_several_partitions_are_added_up() -> None:
    made = LagHistory()
    made.add(0.0, {KEY: PartitionOffsets(0, 10)})
    made.add(10.0, {KEY: PartitionOffsets(10, 20), OTHER: PartitionOffsets(5, 10)})
    assert made.trend([KEY, OTHER, ("billing", "gone", 0)]) == LagTrend(1.0, 1.0, 15)


@pytest.mark.parametrize(
    ("trend", "text"),
    [
        (LagTrend(30, 10, 100), "30 handled and 10 written a second, caught up in 5s"),
        (LagTrend(10, 10, 100), "10 handled and 10 written a second, not catching up"),
        (LagTrend(10, 30, 100), "10 handled and 30 written a second, not catching up"),
        (LagTrend(10, 30, 0), "10 handled and 30 written a second, caught up"),
    ],
)
def test_a_trend_says_when_the_group_has_caught_up(trend: LagTrend, text: str) -> None:
    assert trend.text() == text


@in_virtual_time
async def test_it_looks_again_and_again_and_survives_an_outage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loop = asyncio.get_running_loop()
    asked: list[float] = []

    async def ask() -> LagLook:
        asked.append(loop.time())
        if len(asked) == 2:
            raise TransientBrokerError("no broker answers")
        if len(asked) == 3:
            return LagLook([], problems=["unknown topic orders"])
        committed = 10 * len(asked)
        row = Row("billing", "orders", 0, committed, 100, 100 - committed)
        return LagLook([row], problems=["unknown group 'audit'"])

    lines: list[str] = []
    async for rows, seen in looks(ask, Clock(monotonic=loop.time), 10.0):
        lines += trend_lines(rows, seen)
        if len(lines) == 2:
            break
    assert [at - asked[0] for at in asked] == [0.0, 10.0, 20.0, 30.0]
    assert lines == [
        "group billing: measuring",
        "group billing: 1 handled and 0 written a second, caught up in 1m",
    ]
    assert capsys.readouterr().err.splitlines() == [
        "unknown group 'audit'; asking again in 10 s",
        "no broker answers; asking again in 10 s",
        "unknown topic orders; asking again in 10 s",
    ]
