"""What the page shows of a channel's past."""

from __future__ import annotations

from reactive_kafka import HandlerError
from reactive_kafka.observe.events import (
    BrokerUnavailable,
    ChannelFailed,
    ChannelStateChanged,
    HandlerRetried,
    LoopBlocked,
    Rebalanced,
    RecordIgnored,
    RecordPutOff,
)
from reactive_kafka.observe.recent_events import (
    MOST_CHANNELS,
    MOST_ENTRIES,
    TEXT_LENGTH,
    RecentEvents,
)
from reactive_kafka.records import TopicPartition


class SettableTime:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ignored(partition: int = 0, reason: str = "ValueError: bad amount") -> RecordIgnored:
    return RecordIgnored(
        channel="orders",
        partition=TopicPartition("orders", partition),
        offset=7,
        reason=reason,
        error=ValueError("bad amount"),
    )


def assigned(generation: int) -> Rebalanced:
    return Rebalanced(
        channel="orders", kind="assigned", partitions=frozenset(), generation=generation
    )


def test_the_last_error_has_time_type_and_text() -> None:
    time = SettableTime()
    recent = RecentEvents(time)
    assert recent.last_error("orders") is None
    recent.on(BrokerUnavailable(channel="orders", reason="connection refused"))
    time.now = 200.0
    recent.on(ignored())
    error = recent.last_error("orders")
    assert error is not None
    assert (error.at, error.type, error.text) == (200.0, "ValueError", "bad amount")
    assert recent.last_error("clicks") is None


def test_the_last_error_names_its_record_also_where_the_channel_failed_for_it() -> None:
    recent = RecentEvents(SettableTime())
    recent.on(ignored(partition=3))
    error = recent.last_error("orders")
    assert error is not None
    assert error.record == (TopicPartition("orders", 3), 7)
    cause = HandlerError("orders", TopicPartition("orders", 1), 42, ValueError("bad"))
    recent.on(ChannelFailed(channel="orders", reason="it has failed", error=cause))
    error = recent.last_error("orders")
    assert error is not None
    assert error.record == (TopicPartition("orders", 1), 42)
    recent.on(BrokerUnavailable(channel="orders", reason="connection refused"))
    error = recent.last_error("orders")
    assert error is not None
    assert error.record is None


def test_a_problem_without_an_exception_is_named_by_its_event() -> None:
    recent = RecentEvents(SettableTime())
    recent.on(BrokerUnavailable(channel="orders", reason="connection refused"))
    error = recent.last_error("orders")
    assert error is not None
    assert (error.type, error.text) == (
        "BrokerUnavailable",
        "the broker is away: connection refused",
    )


def test_the_timeline_holds_rebalances_failures_and_changes_the_newest_first() -> None:
    time = SettableTime()
    recent = RecentEvents(time)
    events = [
        assigned(1),
        ChannelStateChanged(channel="orders", old="connecting", new="running"),
        ignored(),
        ChannelFailed(channel="orders", reason="poison"),
    ]
    for event in events:
        time.now += 1
        recent.on(event)
    entries = recent.timeline("orders")
    assert [entry.kind for entry in entries] == ["failure", "failure", "change", "rebalance"]
    assert [entry.at for entry in entries] == [104.0, 103.0, 102.0, 101.0]
    assert entries[1].text == "orders-0 offset 7: ValueError: bad amount"


def test_a_flood_of_failures_is_one_entry_and_leaves_the_rebalances() -> None:
    recent = RecentEvents(SettableTime())
    recent.on(assigned(1))
    for place in range(1000):
        recent.on(ignored(partition=place))
    entries = recent.timeline("orders")
    assert [(entry.kind, entry.count) for entry in entries] == [("rebalance", 1), ("failure", 1000)]


def test_everything_is_bounded() -> None:
    recent = RecentEvents(SettableTime())
    for number in range(MOST_ENTRIES * 2):
        recent.on(assigned(number))
        recent.on(BrokerUnavailable(channel="orders", reason="x" * 10_000 + str(number)))
    entries = recent.timeline("orders")
    assert len(entries) <= 2 * MOST_ENTRIES
    assert max(len(entry.text) for entry in entries) <= 500
    for number in range(MOST_CHANNELS * 2):
        recent.on(BrokerUnavailable(channel=f"added-{number}", reason="away"))
    assert recent.last_error(f"added-{MOST_CHANNELS * 2 - 1}") is None
    assert recent.last_error("orders") is not None


def test_the_exception_is_not_kept_because_its_frames_hold_records() -> None:
    import gc
    import weakref

    class HeavyError(Exception):
        pass

    recent = RecentEvents(SettableTime())
    error = HeavyError("x")
    gone = weakref.ref(error)
    recent.on(ChannelFailed(channel="orders", reason="x", error=error))
    del error
    gc.collect()
    assert gone() is None
    kept = recent.last_error("orders")
    assert kept is not None
    assert kept.type.endswith("HeavyError")


def test_events_of_every_day_and_of_no_channel_are_left_out() -> None:
    recent = RecentEvents(SettableTime())
    recent.on(LoopBlocked(lag_s=2.0))
    recent.on(
        RecordPutOff(
            channel="orders",
            partition=TopicPartition("orders", 0),
            offset=1,
            reason="later",
            to="retry",
            delay_s=5.0,
        )
    )
    assert recent.timeline("orders") == []
    recent.on(
        HandlerRetried(
            channel="orders",
            partition=TopicPartition("orders", 0),
            offset=1,
            reason="TimeoutError: x",
            attempt=1,
            wait_s=1.0,
        )
    )
    assert len(recent.timeline("orders")) == 1


def test_a_failure_that_repeats_is_kept_as_long_as_one_that_is_new() -> None:
    recent = RecentEvents(SettableTime())
    for number in (*range(MOST_ENTRIES), 0, MOST_ENTRIES):
        recent.on(
            HandlerRetried(
                channel="orders",
                partition=TopicPartition("orders", 0),
                offset=1,
                reason=f"Error{number}: x",
                attempt=1,
                wait_s=1.0,
            )
        )
    counts = {entry.text.split(": ")[1]: entry.count for entry in recent.timeline("orders")}
    assert len(counts) == MOST_ENTRIES
    assert counts["Error0"] == 2
    assert "Error1" not in counts


def test_the_text_of_the_last_error_is_bounded() -> None:
    recent = RecentEvents(SettableTime())
    recent.on(ignored(reason="ValueError: " + "x" * 10_000))
    error = recent.last_error("orders")
    assert error is not None
    assert error.text == "x" * TEXT_LENGTH
