import dataclasses
import logging
import string
from types import ModuleType

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.observe import events
from reactive_kafka.observe.events import (
    ChannelFailed,
    Event,
    Observers,
    OffsetReset,
    Rebalanced,
    RecordFailed,
    RecordIgnored,
    RecordPoisoned,
    base,
    channel_events,
    commits,
    reading,
    record_events,
    scheduled_jobs,
)
from tests.observe.samples import ORDERS_0


def events_of(*modules: ModuleType) -> list[type[Event]]:
    found = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    return sorted(
        (kind for kind in found if issubclass(kind, Event)), key=lambda kind: kind.__name__
    )


EVENTS = events_of(events)
RESERVED = vars(logging.makeLogRecord({})).keys() | {
    "message",
    "asctime",
    "event_type",
    "suppressed",
}
# Ours in JSON, and structlog's.
RESERVED |= {"time", "logger", "event", "level", "timestamp", "key"}


class RecordingObserver:
    def __init__(self) -> None:
        self.seen: list[Event] = []

    def on(self, event: Event) -> None:
        self.seen.append(event)


class BrokenObserver:
    def on(self, event: Event) -> None:
        raise OSError("the sink is full")


def ignored(offset: int = 17, reason: str = "ValueError: no amount") -> RecordIgnored:
    return RecordIgnored(channel="orders", partition=ORDERS_0, offset=offset, reason=reason)


def test_a_broken_observer_disturbs_neither_the_others_nor_the_application(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Row J11 of the faults."""
    first, last = RecordingObserver(), RecordingObserver()
    observers = Observers([first, BrokenObserver(), last])
    observers.on(ignored(17))
    observers.on(ignored(18))
    assert first.seen == last.seen == [ignored(17), ignored(18)]
    assert capsys.readouterr().err.count("OSError: the sink is full") == 1


def test_events_are_equal_and_shown_by_their_fields() -> None:
    one, same, other = ignored(17), ignored(17), ignored(18)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one.__eq__("another kind of thing") is NotImplemented
    assert repr(one) == (
        f"RecordIgnored(channel='orders', partition={ORDERS_0!r}, offset=17, "
        "reason='ValueError: no amount', error=None)"
    )


def test_the_error_that_an_event_carries_does_not_count_when_events_are_compared() -> None:
    failed = [
        ChannelFailed(channel="orders", reason="it is full", error=error)
        for error in (OSError(1), None)
    ]
    assert failed[0] == failed[1]
    assert hash(failed[0]) == hash(failed[1])


def test_every_event_is_imported_from_one_place() -> None:
    assert (
        events_of(base, channel_events, commits, reading, record_events, scheduled_jobs) == EVENTS
    )


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_no_field_has_a_name_that_a_log_record_uses_itself(kind: type[Event]) -> None:
    names = {field.name for field in dataclasses.fields(kind)}
    assert not names & RESERVED
    assert set(kind.identity) <= names


@pytest.mark.parametrize(
    "kind", [kind for kind in EVENTS if kind.template], ids=lambda kind: kind.__name__
)
def test_a_template_asks_for_fields_of_its_event_and_for_decimals_of_numbers_only(
    kind: type[Event],
) -> None:
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    words = (
        {"records", "was", "stays", "its_record_had_its"}
        if issubclass(kind, RecordFailed)
        else set()
    )
    for _, name, spec, _ in string.Formatter().parse(kind.template):
        assert name is None or name in types.keys() | words
        assert not spec or types[name or ""] == "float"


def test_texts_name_the_record_and_the_numbers() -> None:
    poisoned = RecordPoisoned(
        channel="orders",
        partition=ORDERS_0,
        offset=17,
        age_s=61.23,
        limit_s=60,
        waiting=42,
        on_poison="fail",
    )
    assert poisoned.text() == (
        "poison: orders-0 offset 17 unsettled for 61.2 s (limit 60 s), 42 waiting behind it; on_poison is 'fail'"
    )
    reset = OffsetReset(
        channel="orders",
        partition=ORDERS_0,
        from_offset=5,
        to_offset=100,
        to="earliest",
        skipped=95,
    )
    assert (
        reset.text() == "orders-0 was reset to earliest: offset 5 -> offset 100, 95 records skipped"
    )
    fresh = dataclasses.replace(reset, from_offset=None, skipped=None, to_offset=0)
    assert fresh.text() == "orders-0 was reset to earliest: nothing committed -> offset 0"


def test_a_rebalance_names_a_few_partitions_and_counts_all() -> None:
    def text(count: int) -> str:
        partitions = frozenset(TopicPartition("orders", number) for number in range(count))
        return Rebalanced(channel="orders", kind="assigned", partitions=partitions).text()

    assert text(0) == "0 partitions assigned"
    assert text(1) == "1 partition assigned: orders-0"
    assert text(7) == "7 partitions assigned: orders-0, orders-1, orders-2, orders-3, orders-4, ..."
