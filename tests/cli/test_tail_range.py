"""Which offsets ``tail`` reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition, by
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.offsets.offset_changes import LogRange, To
from reactive_kafka.cli.records.tail_range import (
    TailBounds,
    bounds_of,
    chosen_partitions,
    parse_bound,
)

TP = TopicPartition("orders", 0)
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
EARLIER = datetime(2026, 11, 21, 7, tzinfo=UTC)
LOG = LogRange(10, 50)

bounds = (
    st.sampled_from(["earliest", "latest", NOW, EARLIER])
    | st.integers(0, 99)
    | st.integers(-99, 99).map(by)
)
logs = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda ends: LogRange(*sorted(ends)))


def read(start: To, until: To | None = None, at: int | None = None) -> tuple[int, int]:
    found = TailBounds(start, until).ranges({TP: LOG}, {NOW: {TP: at}})
    return found[TP].start, found[TP].end


@given(start=bounds, until=st.none() | bounds, log=logs, data=st.data())
def test_no_range_leaves_its_log(
    start: To, until: To | None, log: LogRange, data: st.DataObject
) -> None:
    offsets = st.none() | st.integers(log.start, log.end)
    wanted = TailBounds(start, until)
    at_time = {moment: {TP: data.draw(offsets)} for moment in wanted.moments()}
    found = wanted.ranges({TP: log}, at_time)[TP]
    assert log.start <= found.start <= found.end <= log.end


@given(log=logs, bound=bounds, data=st.data())
def test_until_a_place_and_from_there_is_the_whole_log_without_an_overlap(
    log: LogRange, bound: To, data: st.DataObject
) -> None:
    at_time = {
        moment: {TP: data.draw(st.integers(log.start, log.end))} for moment in (NOW, EARLIER)
    }
    before = TailBounds("earliest", bound).ranges({TP: log}, at_time)[TP]
    after = TailBounds(bound).ranges({TP: log}, at_time)[TP]
    assert (before.start, before.end, after.end) == (log.start, after.start, log.end)


@pytest.mark.parametrize(
    ("start", "until", "offsets"),
    [
        ("earliest", None, (10, 50)),
        ("latest", None, (50, 50)),
        (20, 30, (20, 30)),
        (0, 99, (10, 50)),
        (30, 20, (30, 30)),
        (by(-5), None, (45, 50)),
        (by(5), by(-5), (15, 45)),
        (by(-99), None, (10, 50)),
    ],
)
def test_offsets_outside_of_the_log_become_its_ends(
    start: To, until: To | None, offsets: tuple[int, int]
) -> None:
    assert read(start, until) == offsets


def test_a_time_that_no_record_has_reached_is_the_end() -> None:
    assert read(NOW, at=None) == (50, 50)
    assert read(NOW, at=17) == (17, 50)
    assert read("earliest", NOW, at=17) == (10, 17)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("7", 7),
        ("by:-3", by(-3)),
        ("10m", timedelta(minutes=10)),
        ("24h", timedelta(hours=24)),
        ("500ms", timedelta(milliseconds=500)),
        ("2026-11-21T08:00:00Z", NOW),
        ("earliest", "earliest"),
    ],
)
def test_a_bound_is_what_offsets_reset_takes_or_a_duration(text: str, meaning: object) -> None:
    assert parse_bound(text) == meaning


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2026-11-21T08:00:00", "by:x", "10 days"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_bound(text)


def test_a_duration_counts_back_from_now() -> None:
    wanted = bounds_of(timedelta(hours=1), timedelta(0), NOW, follow=False)
    assert wanted == TailBounds(EARLIER, NOW)


def test_following_begins_at_the_end_and_reading_at_the_beginning() -> None:
    assert bounds_of(None, None, NOW, follow=True) == TailBounds("latest")
    assert bounds_of(None, None, NOW, follow=False) == TailBounds("earliest")
    assert bounds_of(timedelta(seconds=10**9), None, NOW, follow=True).start < NOW  # type: ignore[operator]


def test_a_partition_that_does_not_exist_is_named() -> None:
    existing = [TopicPartition("orders", number) for number in range(2)]
    assert chosen_partitions("orders", existing, ()) == existing
    assert chosen_partitions("orders", existing, (1, 1)) == existing[1:]
    with pytest.raises(CommandFailed, match="no partition 2, 9; it has 2, from 0 on"):
        chosen_partitions("orders", existing, (9, 2, 0))
