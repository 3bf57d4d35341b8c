"""Where a reset moves a group: the rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition, by
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.offsets.offset_changes import Change, LogRange, To, outside, parse_to, reset

TP = TopicPartition("orders", 0)
OFFSETS = st.integers(0, 1000)
LOGS = st.tuples(OFFSETS, OFFSETS).map(lambda ends: LogRange(min(ends), max(ends)))
MOMENT = datetime(2026, 11, 21, 8, tzinfo=UTC)
TOS: st.SearchStrategy[To] = st.one_of(
    st.just("earliest"),
    st.just("latest"),
    OFFSETS,
    st.integers(-2000, 2000).map(by),
    st.just(MOMENT),
)


def moved(to: To, log: LogRange, before: int | None, at_time: int | None = None) -> Change:
    (change,) = reset(to, {TP: log}, {} if before is None else {TP: before}, {TP: at_time})
    return change


@given(TOS, LOGS, OFFSETS, st.none() | OFFSETS)
def test_a_new_position_is_always_inside_of_the_log(
    to: To, log: LogRange, before: int, at_time: int | None
) -> None:
    change = moved(to, log, before, at_time)
    assert log.start <= change.after <= log.end
    assert change.is_same == (change.after == before)
    assert change.metadata == ""


@given(st.integers(-2000, 2000), LOGS, OFFSETS)
def test_by_moves_so_many_records_and_stops_at_the_ends(
    count: int, log: LogRange, before: int
) -> None:
    change = moved(by(count), log, before)
    inside = log.start <= before + count <= log.end
    assert change.after == (
        before + count if inside else log.start if before + count < log.start else log.end
    )
    assert bool(change.note) == (not inside)


@given(LOGS, OFFSETS)
def test_an_offset_outside_of_the_log_becomes_its_nearest_end_and_says_so(
    log: LogRange, offset: int
) -> None:
    change = moved(offset, log, None)
    if log.start <= offset <= log.end:
        assert (change.after, change.note) == (offset, "")
    elif offset:
        # 0 is the log's beginning, wherever that is by now.
        assert change.after in log
        assert str(offset) in change.note


def test_a_time_goes_to_the_first_record_since_then_or_to_the_end() -> None:
    assert moved(MOMENT, LogRange(5, 50), 7, 20).after == 20
    late = moved(MOMENT, LogRange(5, 50), 7, None)
    assert (late.after, late.note) == (50, "no record since then: the log's end")


def test_by_needs_a_position_in_every_partition() -> None:
    logs = {TopicPartition("orders", number): LogRange(0, 9) for number in range(3)}
    with pytest.raises(CommandFailed, match=r"there is none for orders-0, orders-2$"):
        reset(by(1), logs, {TopicPartition("orders", 1): 4}, {})


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("142", 142),
        ("by:-100", by(-100)),
        ("by:+7", by(7)),
        ("2026-11-21T08:00:00Z", MOMENT),
        ("2026-11-21T09:00:00+01:00", MOMENT.astimezone(timezone(timedelta(hours=1)))),
    ],
)
def test_what_to_says_is_read(text: str, to: To) -> None:
    assert parse_to(text) == to


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-11-21T08:00:00", "has no time zone"),
        ("2026-11-21", "has no time zone"),
        ("-5", "write by:-5 to go back"),
        ("yesterday", "expected earliest"),
        ("by:", "expected earliest"),
        ("by:many", "expected earliest"),
        ("by:99999999999999999999", "expected earliest"),
        ("99999999999999999999", "expected earliest"),
        ("²", "expected earliest"),
        ("", "expected earliest"),
    ],
)
def test_what_makes_no_sense_is_refused_and_named(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said) as refused:
        parse_to(text)
    assert repr(text) in str(refused.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        to = parse_to(text)
    except click.BadParameter:
        return
    if isinstance(to, datetime):
        assert to.tzinfo is not None
    elif isinstance(to, int):
        assert to >= 0


def test_what_an_import_cannot_set_is_named() -> None:
    there, gone = TopicPartition("orders", 0), TopicPartition("orders", 7)
    changes = [
        Change(there, None, 4),
        Change(there, None, 5),
        Change(there, None, 10),
        Change(gone, None, 0),
    ]
    assert outside(changes, {there: LogRange(5, 9)}) == [
        "orders-0: 4 is outside of the log, 5 to 9",
        "orders-0: 10 is outside of the log, 5 to 9",
        "orders-7: no such partition",
    ]
