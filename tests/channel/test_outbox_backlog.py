"""How many rows of an outbox wait, and which of them are sent and deleted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.channel.outbox_backlog import REFUSED_AGAIN_S, OutboxBacklog
from reactive_kafka.records import TopicPartition
from tests.checkpoint.events import stored

ONE = frozenset({TopicPartition("orders", 0)})
TWO = ONE | {TopicPartition("orders", 1)}


def backlog_with(rows: int, most_rows: int = 10) -> OutboxBacklog:
    backlog = OutboxBacklog(most_rows)
    backlog.counted(ONE, rows, 0)
    return backlog


def test_until_it_is_counted_nothing_may_be_added() -> None:
    backlog = OutboxBacklog(10)
    assert backlog.is_full
    assert backlog.must_count(ONE)
    backlog.counted(ONE, 9, 0)
    assert not backlog.is_full
    assert not backlog.must_count(ONE)
    assert backlog.must_count(TWO)
    backlog.added(1)
    assert backlog.is_full


def test_rows_that_are_added_during_a_count_are_not_forgotten() -> None:
    backlog = OutboxBacklog(10)
    additions = backlog.additions
    backlog.added(3)
    backlog.counted(ONE, 5, additions)
    assert backlog.rows == 8


def test_an_outcome_that_is_unknown_asks_for_a_count() -> None:
    backlog = backlog_with(5)
    backlog.count_again()
    assert backlog.is_full
    assert backlog.must_count(ONE)


def test_a_table_that_was_read_to_its_end_has_the_rows_that_were_read() -> None:
    backlog = backlog_with(5)
    backlog.read([stored(1)], is_all=False, additions=0)
    assert backlog.rows == 5
    backlog.read([stored(1)], is_all=True, additions=0)
    assert backlog.rows == 1
    backlog.added(2)
    backlog.read([], is_all=True, additions=0)
    assert backlog.rows == 3


def test_a_confirmed_event_is_not_sent_again_while_its_row_is_not_deleted() -> None:
    backlog = backlog_with(2)
    events = [stored(1), stored(2)]
    backlog.sent(events[:1], [], now=0.0)
    assert backlog.to_send(events, now=0.0) == events[1:]
    backlog.deleted(backlog.confirmed)
    assert backlog.confirmed == []
    assert backlog.rows == 1


def test_a_refused_event_is_sent_again_later_and_holds_up_no_other() -> None:
    backlog = backlog_with(2)
    events = [stored(1, b"12345"), stored(2)]
    backlog.sent([], [(events[0], "too large")], now=100.0)
    assert (backlog.refused, backlog.refused_bytes, backlog.refusal) == (1, 5, "too large")
    assert backlog.to_send(events, now=100.0) == events[1:]
    assert backlog.to_send(events, now=100.0 + REFUSED_AGAIN_S) == events
    backlog.sent(events[:1], [], now=200.0)
    assert backlog.refused == 0


def test_a_refused_event_whose_row_somebody_deleted_is_forgotten() -> None:
    backlog = backlog_with(1)
    backlog.sent([], [(stored(1), "too large")], now=100.0)
    backlog.read([], is_all=True, additions=0)
    assert backlog.refusal is None


@given(st.lists(st.sampled_from(["add", "send", "delete", "read"])))
def test_without_other_processes_the_number_is_that_of_the_table(steps: list[str]) -> None:
    backlog = backlog_with(0)
    table = []
    for number, step in enumerate(steps):
        if step == "add":
            table.append(stored(number))
            backlog.added(1)
        elif step == "send":
            backlog.sent(backlog.to_send(table, 0.0)[:1], [], 0.0)
        elif step == "delete":
            gone = list(backlog.confirmed)
            table = [event for event in table if event.number not in gone]
            backlog.deleted(gone)
        elif not backlog.confirmed:
            backlog.read(table, is_all=True, additions=backlog.additions)
        assert backlog.rows == len(table)


def test_the_first_row_is_as_old_as_its_event_until_none_is_left() -> None:
    backlog = OutboxBacklog(10)
    assert backlog.oldest_at is None
    backlog.counted(ONE, 2, 0)
    first, second = (stored(number)._replace(created_at=number * 100.0) for number in (1, 2))
    backlog.read([first, second], is_all=True, additions=0)
    assert backlog.oldest_at == 100.0
    backlog.sent([first], [(second, "too large")], now=0.0)
    backlog.deleted([1])
    backlog.read([second], is_all=True, additions=0)
    assert backlog.oldest_at == 200.0
    backlog.sent([second], [], now=20.0)
    backlog.deleted([2])
    assert (backlog.rows, backlog.oldest_at) == (0, None)


def test_a_store_that_keeps_no_times_has_those_of_the_records() -> None:
    backlog = OutboxBacklog(10)
    event = stored(1)
    record = event.event.record._replace(timestamp_ms=17_500)
    event = event._replace(event=event.event._replace(record=record))
    backlog.read([event], is_all=True, additions=0)
    assert backlog.oldest_at == 17.5


def test_events_of_partitions_that_are_counted_no_more_are_not_refused_any_more() -> None:
    backlog = backlog_with(2)
    other = stored(2)._replace(source=TopicPartition("orders", 1))
    backlog.counted(TWO, 2, 0)
    backlog.sent([], [(stored(1), "too large"), (other, "no such partition")], 100.0)
    assert (backlog.refused, backlog.refusal) == (2, "too large")
    backlog.counted(TWO - ONE, 1, 0)
    assert (backlog.refused, backlog.refusal) == (1, "no such partition")
    backlog.counted(frozenset(), 0, 0)
    assert (backlog.refused, backlog.refusal) == (0, None)
