import dataclasses
import functools
import io
import json
import logging
import re
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.errors import HandlerError, describe, text_of
from reactive_kafka.observe.bursts import BURST, KINDS_KEPT, RUNS_PER_LINE, Allowance, OffsetRuns
from reactive_kafka.observe.events import (
    ChannelFailed,
    ChannelStateChanged,
    CommitFailed,
    EndFailed,
    Event,
    HandlerRetried,
    HookFailed,
    LeadersAway,
    LoopBlocked,
    OffsetReset,
    PartitionsReset,
    PositionsUnknown,
    RangeBeyondEnd,
    RecordDeadLettered,
    RecordIgnored,
    RecordLeft,
    RecordPoisoned,
    SchemaNotChecked,
    SettledNotStored,
)
from reactive_kafka.observe.json_values import json_value
from reactive_kafka.observe.log_setup import configure_logging
from reactive_kafka.observe.logs import LogObserver
from tests.observe.samples import ORDERS_0, ORDERS_1
from tests.observe.test_events import EVENTS

ANYTHING = st.text(alphabet="a|\r\n\x0b\x1b\x00\x85\u2028\u2029\u202e\ud800\udfff{}%s", max_size=20)


class Sink(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]


class Bench:
    """A log observer, what it wrote, and the time that it sees."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sink = Sink()
        logger = logging.Logger("bench")
        logger.addHandler(self.sink)
        self.observer = LogObserver(lambda: self.now, logger)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@contextmanager
def root_put_back() -> Iterator[logging.Logger]:
    """The root logger without handlers, and as it was afterwards."""
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("aiokafka", "py4j", "uvicorn")}
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    with root_put_back() as logger:
        yield logger


def ignored(
    offset: int = 17, reason: str = "ValueError: no amount", channel: str = "orders"
) -> RecordIgnored:
    return RecordIgnored(channel=channel, partition=ORDERS_0, offset=offset, reason=reason)


def poisoned(partition: TopicPartition) -> RecordPoisoned:
    return RecordPoisoned(
        channel="orders",
        partition=partition,
        offset=17,
        age_s=61,
        limit_s=60,
        waiting=42,
        on_poison="fail",
    )


def failing(
    offset: int, *, partition: TopicPartition = ORDERS_0, error: Exception | None = None
) -> RecordIgnored:
    error = error or ValueError(f"no amount in {offset}")
    return RecordIgnored(
        channel="orders", partition=partition, offset=offset, reason=describe(error), error=error
    )


def retried(offset: int, partition: TopicPartition = ORDERS_0) -> HandlerRetried:
    return HandlerRetried(
        channel="orders",
        partition=partition,
        offset=offset,
        attempt=1,
        wait_s=0.1,
        reason="ValueError: no amount",
    )


def named(lines: list[str], partition: TopicPartition = ORDERS_0) -> list[int]:
    """The offsets of a partition that lines name, one by one or as runs."""
    found: list[int] = []
    for line in lines:
        if match := re.match(rf"orders: {partition} offsets? ([0-9, -]+)[: ]", line):
            for run in match[1].split(","):
                first, _, last = run.strip().partition("-")
                found += range(int(first), int(last or first) + 1)
    return found


def test_an_event_is_a_line_with_its_fields_at_its_level(bench: Bench) -> None:
    bench.observer.on(ignored())
    (record,) = bench.sink.records
    assert (
        record.getMessage()
        == "orders: orders-0 offset 17 was nacked and ignored: ValueError: no amount"
    )
    assert record.levelno == logging.WARNING
    found = {
        name: vars(record)[name]
        for name in ("event_type", "channel", "topic", "partition", "offset", "reason")
    }
    assert found == {
        "event_type": "RecordIgnored",
        "channel": "orders",
        "topic": "orders",
        "partition": 0,
        "offset": 17,
        "reason": "ValueError: no amount",
    }


def test_an_event_of_no_channel_is_logged_without_one(bench: Bench) -> None:
    bench.observer.on(LoopBlocked(lag_s=1.5))
    assert bench.sink.messages == ["the event loop was blocked for 1.50 s"]


@given(st.lists(ANYTHING, min_size=1, max_size=5))
def test_any_reasons_make_one_line_an_event(reasons: list[str]) -> None:
    """Row S8 of the faults."""
    bench = Bench()
    for reason in reasons:
        bench.now += 1
        bench.observer.on(ChannelFailed(channel="orders", reason=reason))
    assert len(bench.sink.records) == len(reasons)
    for record in bench.sink.records:
        assert record.getMessage().isprintable()
        assert vars(record)["reason"].isprintable()


def test_a_long_reason_is_cut(bench: Bench) -> None:
    bench.observer.on(ignored(reason="x" * 1_000_000))
    assert len(bench.sink.messages[0]) == 1000


def test_a_repeating_event_is_one_line_a_second_and_the_next_line_counts_the_others(
    bench: Bench,
) -> None:
    for offset in range(100):
        bench.now = 100 + offset / 50
        bench.observer.on(retried(offset))
    assert [vars(record)["offset"] for record in bench.sink.records] == [0, 50]
    assert vars(bench.sink.records[1])["suppressed"] == 49
    assert bench.sink.messages[1].endswith("(49 more like it before)")


def test_the_last_of_a_burst_is_logged_before_the_next_event_of_any_kind(bench: Bench) -> None:
    for offset in range(10):
        bench.observer.on(retried(offset))
    bench.now += 5
    bench.observer.on(LoopBlocked(lag_s=1))
    assert [vars(record).get("offset") for record in bench.sink.records] == [0, 9, None]
    assert vars(bench.sink.records[1])["suppressed"] == 8


def test_closing_logs_what_was_held_back_and_only_once(bench: Bench) -> None:
    for offset in range(3):
        bench.observer.on(retried(offset))
    bench.observer.close()
    bench.observer.close()
    assert [vars(record)["offset"] for record in bench.sink.records] == [0, 2]
    assert vars(bench.sink.records[1])["suppressed"] == 1


def test_every_record_that_failed_can_be_found_by_its_offset(bench: Bench) -> None:
    for offset in range(50):
        bench.now += 0.001
        bench.observer.on(failing(offset))
    # At once, each with its own reason.
    assert named(bench.sink.messages) == list(range(BURST))
    assert (
        bench.sink.messages[7]
        == "orders: orders-0 offset 7 was nacked and ignored: ValueError: no amount in 7"
    )
    bench.now += 1
    bench.observer.flush()
    assert named(bench.sink.messages) == list(range(50))
    assert bench.sink.messages[BURST] == (
        "orders: orders-0 offsets 20-49 were nacked and ignored: ValueError: no amount in 49 (the last of 30)"
    )
    last = vars(bench.sink.records[-1])
    assert (last["offset"], last["offsets"], last["records"]) == (49, "20-49", 30)


def test_failures_of_other_partitions_and_other_errors_stand_in_lines_of_their_own(
    bench: Bench,
) -> None:
    for offset in range(2 * BURST):
        bench.observer.on(failing(offset))
        bench.observer.on(failing(offset, partition=ORDERS_1))
        bench.observer.on(failing(offset + 1000, error=KeyError("id")))
    bench.observer.close()
    together = [line for line in bench.sink.messages if "offsets" in line]
    assert len(together) == 3
    assert sorted(named(bench.sink.messages, ORDERS_1)) == list(range(2 * BURST))
    assert sorted(named([line for line in bench.sink.messages if "KeyError" in line])) == list(
        range(1000, 1040)
    )
    assert sorted(named([line for line in bench.sink.messages if "KeyError" not in line])) == list(
        range(2 * BURST)
    )


def test_few_failures_have_a_line_each_for_as_long_as_they_come(bench: Bench) -> None:
    for offset in range(200):
        bench.now += 1
        bench.observer.on(failing(offset))
    assert named(bench.sink.messages) == list(range(200))
    assert len(bench.sink.messages) == 200


def test_a_flood_of_failures_costs_lines_by_the_second_or_by_forty_runs_and_names_all(
    bench: Bench,
) -> None:
    for number in range(100_000):
        bench.now += 0.00001
        bench.observer.on(failing(number))
    bench.observer.close()
    assert named(bench.sink.messages) == list(range(100_000))
    assert len(bench.sink.records) <= BURST + 4
    bench.sink.records.clear()
    for number in range(100_000):
        bench.now += 0.00001
        # Each a run of its own.
        bench.observer.on(failing(2 * number))
    bench.observer.close()
    assert named(bench.sink.messages) == list(range(0, 200_000, 2))
    assert len(bench.sink.records) <= 100_000 / RUNS_PER_LINE + BURST + 4
    assert max(map(len, bench.sink.messages)) < 1000


def test_the_longest_line_keeps_all_its_offsets(bench: Bench) -> None:
    first = 10**18
    for number in range(BURST + 2 * RUNS_PER_LINE):
        offset = first + 3 * (number // 2) + number % 2
        bench.observer.on(failing(offset, error=ValueError("x" * 5000)))
    bench.observer.close()
    assert len(named(bench.sink.messages)) == BURST + 2 * RUNS_PER_LINE


def test_offsets_that_come_in_any_order_are_told_as_runs() -> None:
    runs = OffsetRuns()
    for offset in (5, 3, 4, 9, 1, 10, 2):
        runs.add(offset)
    assert (str(runs), runs.count) == ("1-5, 9-10", 7)


@given(st.lists(st.integers(0, 60), max_size=80))
def test_runs_name_exactly_what_was_added(offsets: list[int]) -> None:
    runs = OffsetRuns()
    for offset in offsets:
        runs.add(offset)
    assert named([f"orders: orders-0 offsets {runs}: x"] if offsets else []) == sorted(set(offsets))


def test_a_kind_of_failure_shows_a_traceback_a_second(bench: Bench) -> None:
    for offset in range(300):
        bench.now += 0.01
        bench.observer.on(failing(offset))
    assert sum(record.exc_info is not None for record in bench.sink.records) in (3, 4)
    assert bench.sink.records[0].exc_info is not None


def test_what_a_record_went_through_comes_before_what_became_of_it(bench: Bench) -> None:
    bench.observer.on(retried(1))
    # Held back.
    bench.observer.on(retried(2))
    bench.observer.on(retried(7, ORDERS_1))
    # Held back, and of another partition.
    bench.observer.on(retried(8, ORDERS_1))
    bench.observer.on(
        RecordDeadLettered(
            channel="orders",
            partition=ORDERS_0,
            offset=2,
            to="dead",
            reason="ValueError: no amount",
        )
    )
    assert [(vars(line)["event_type"], vars(line)["offset"]) for line in bench.sink.records] == [
        ("HandlerRetried", 1),
        ("HandlerRetried", 7),
        ("HandlerRetried", 2),
        ("RecordDeadLettered", 2),
    ]


@pytest.mark.parametrize(
    "event",
    [
        ChannelFailed(channel="orders", reason="no"),
        CommitFailed(channel="orders", outcome="failed", partitions=frozenset(), reason="away"),
        RecordLeft(channel="orders", partition=ORDERS_0, offset=99, reason="ValueError: no"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_failures_held_back_come_before_what_happened_after_them(
    bench: Bench, event: Event
) -> None:
    for offset in range(BURST + 5):
        bench.observer.on(failing(offset))
    bench.observer.on(event)
    assert named(bench.sink.messages[:-1]) == list(range(BURST + 5))
    assert vars(bench.sink.records[-1])["event_type"] == type(event).__name__


def test_kinds_of_failures_that_may_have_a_whole_burst_again_are_forgotten() -> None:
    allowance = Allowance(BURST)
    for number in range(5 * KINDS_KEPT):
        assert allowance.take(number, float(number)) == 0
    assert len(allowance._lines) <= KINDS_KEPT


def test_what_was_held_back_of_a_channel_comes_before_the_lines_that_it_led_to(
    bench: Bench,
) -> None:
    for channel in ("orders", "orders", "orders", "invoices", "invoices"):
        bench.observer.on(
            CommitFailed(channel=channel, outcome="failed", partitions=frozenset(), reason="away")
        )
    bench.observer.on(
        SettledNotStored(
            channel="orders",
            during="stop",
            partitions=frozenset({ORDERS_0}),
            records=2,
            reason="away",
        )
    )
    bench.observer.on(ChannelStateChanged(channel="orders", old="draining", new="stopped"))
    bench.observer.close()
    assert [
        (vars(line)["event_type"], vars(line)["channel"], vars(line).get("suppressed"))
        for line in bench.sink.records
    ] == [
        ("CommitFailed", "orders", None),
        ("CommitFailed", "invoices", None),
        ("CommitFailed", "orders", 1),
        ("SettledNotStored", "orders", None),
        ("ChannelStateChanged", "orders", None),
        ("CommitFailed", "invoices", None),
    ]


def reset(partition: int, start: int | None, to: int, **more: Any) -> OffsetReset:
    return OffsetReset(
        channel="orders",
        partition=TopicPartition("orders", partition),
        from_offset=start,
        to_offset=to,
        to="earliest",
        **more,
    )


def test_partitions_that_are_reset_alike_share_a_line(bench: Bench) -> None:
    for partition in range(3):
        bench.observer.on(reset(partition, None, 0))
    for partition in range(3, 15):
        bench.observer.on(reset(partition, 5, 100 + partition % 2, skipped=95))
    bench.observer.on(reset(15, 5, 100, skipped=95, reason="the topic was recreated"))
    bench.observer.on(ChannelStateChanged(channel="orders", old="connecting", new="running"))
    assert [(line.levelno, line.getMessage()) for line in bench.sink.records] == [
        (
            logging.INFO,
            "orders: 3 partitions were reset to earliest: nothing committed -> offset 0 (orders-0, orders-1, orders-2)",
        ),
        (
            logging.WARNING,
            "orders: 12 partitions were reset to earliest: offset 5 -> offset 101 (orders-3, orders-5, orders-7, "
            "orders-9, orders-11, orders-13), offset 5 -> offset 100 (orders-4, orders-6, orders-8, orders-10, "
            "orders-12, orders-14), 1140 records skipped",
        ),
        (
            logging.WARNING,
            "orders: orders-15 was reset to earliest: offset 5 -> offset 100, 95 records skipped; "
            "the topic was recreated",
        ),
        (logging.INFO, "orders: running, was connecting"),
    ]


def test_a_reset_is_told_before_long_and_before_what_happens_to_its_channel(bench: Bench) -> None:
    bench.observer.on(reset(0, None, 0))
    bench.now += 0.1
    bench.observer.on(ignored())
    assert len(bench.sink.messages) == 2
    bench.observer.on(reset(1, None, 0))
    bench.observer.flush()
    assert len(bench.sink.messages) == 2
    bench.now += 0.25
    bench.observer.flush()
    assert bench.sink.messages[2:] == [
        "orders: orders-1 was reset to earliest: nothing committed -> offset 0"
    ]
    bench.observer.on(reset(2, None, 0))
    bench.observer.close()
    assert len(bench.sink.messages) == 4


def test_a_line_that_was_written_early_is_not_counted_again(bench: Bench) -> None:
    for _ in range(3):
        bench.observer.on(
            CommitFailed(channel="orders", outcome="failed", partitions=frozenset(), reason="away")
        )
    bench.observer.on(ChannelStateChanged(channel="orders", old="running", new="connecting"))
    bench.now += 2
    bench.observer.on(
        CommitFailed(channel="orders", outcome="failed", partitions=frozenset(), reason="away")
    )
    assert [vars(line).get("suppressed") for line in bench.sink.records] == [None, 1, None, None]


def test_what_a_later_line_has_counted_is_not_logged_once_more(bench: Bench) -> None:
    bench.observer.on(retried(1))
    bench.observer.on(retried(2))
    bench.now += 1
    bench.observer.on(retried(3))
    bench.now += 1
    bench.observer.flush()
    assert [vars(record)["offset"] for record in bench.sink.records] == [1, 3]


def test_flushing_before_the_second_is_over_logs_nothing(bench: Bench) -> None:
    bench.observer.on(retried(1))
    bench.observer.on(retried(2))
    bench.observer.flush()
    assert len(bench.sink.records) == 1
    bench.now += 1
    bench.observer.flush()
    assert len(bench.sink.records) == 2


def test_different_events_at_one_moment_are_all_logged(bench: Bench) -> None:
    different: list[Event] = [
        ignored(),
        ignored(channel="clicks"),
        poisoned(ORDERS_0),
        poisoned(ORDERS_1),
        ChannelStateChanged(channel="orders", old="starting", new="connecting"),
        ChannelStateChanged(channel="orders", old="connecting", new="running"),
    ]
    for event in different:
        bench.observer.on(event)
    assert len(bench.sink.records) == len(different)


def _hook_failed(what: str) -> Event:
    return HookFailed(channel="*", hook=what, reason="OSError: away")


def _end_failed(what: str) -> Event:
    return EndFailed(channel="orders", doing=what, reason="OSError: away")


def _not_checked(what: str) -> Event:
    return SchemaNotChecked(channel="orders", reason=f"the pattern {what} cannot be checked")


def _range_beyond_end(what: str) -> Event:
    return RangeBeyondEnd(channel="orders", partition=TopicPartition(what, 0), until=9, end=4)


def _not_stored(what: str) -> Event:
    return SettledNotStored(
        channel="orders",
        during="stop",
        partitions=frozenset({TopicPartition(what, 0)}),
        records=3,
        reason=f"{what}-0: the group is away",
    )


def _leaders_away(what: str) -> Event:
    partitions = frozenset({TopicPartition(what, 0)})
    return LeadersAway(channel="orders", partitions=partitions, reason=f"{what}-0 has no leader")


def _positions_unknown(what: str) -> Event:
    partitions = frozenset({TopicPartition(what, 0)})
    return PositionsUnknown(channel="orders", partitions=partitions, reason=f"{what}-0 is away")


@pytest.mark.parametrize(
    "event_of",
    [
        _hook_failed,
        _end_failed,
        _not_checked,
        _range_beyond_end,
        _not_stored,
        _leaders_away,
        _positions_unknown,
    ],
)
def test_what_is_told_only_once_is_no_repeat_of_what_is_told_of_another(
    bench: Bench, event_of: Callable[[str], Event]
) -> None:
    for what in ("first", "second", "third"):
        bench.observer.on(event_of(what))
    bench.observer.close()
    assert len(bench.sink.messages) == 3
    assert all(
        what in message
        for what, message in zip(("first", "second", "third"), bench.sink.messages, strict=True)
    )


def test_a_set_of_partitions_is_counted_and_a_part_of_it_listed(bench: Bench) -> None:
    partitions = frozenset(TopicPartition("orders", number) for number in range(1000))
    bench.observer.on(
        CommitFailed(channel="orders", outcome="unknown", partitions=partitions, reason="timeout")
    )
    fields = vars(bench.sink.records[0])
    assert fields["partitions_count"] == 1000
    assert len(fields["partitions"]) == 20


def test_json_lines_hold_every_field_and_survive_any_text(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("json", stream=stream)
    LogObserver().on(ignored(reason="a\nb\u2028\udc80"))
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("user").exception("it\nfailed", extra={"order": 7, "level": "mine"})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["logger"], first["event_type"]) == (
        "WARNING",
        "reactive_kafka",
        "RecordIgnored",
    )
    assert first["offset"] == 17
    assert first["reason"] == r"a\nb\u2028\udc80"
    assert (second["level"], second["message"], second["order"]) == ("ERROR", "it\nfailed", 7)
    assert "ValueError" in second["exception"]


# -- JSON values

REPR = re.compile(r"\w\(|^[\[{(<]| object at 0x")
"""What is written of an object that JSON lacks: ``Name(...)``, ``{...}``, ``<... object at
0x...>``.
"""
PLAIN_TEXT = st.text("abc-é\n\x1b\u2028\udc80", max_size=8)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: PLAIN_TEXT,
    # Durations and times: seconds, finite and not negative.
    float: st.floats(0, 1e10),
    # Offsets, counts and sizes.
    int: st.integers(0, 2**63 - 1),
    TopicPartition: st.builds(
        TopicPartition, st.sampled_from(["orders", "b.c"]), st.integers(0, 30)
    ),
    BaseException: st.builds(ValueError, PLAIN_TEXT),
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Any values of a field with that annotation."""
    if annotation in VALUES:
        return VALUES[annotation]
    inner = [one for one in typing.get_args(annotation) if one is not ...]
    match typing.get_origin(annotation):
        case origin if origin is tuple:
            return st.lists(values_of(inner[0]), min_size=1, max_size=30).map(tuple)
        case origin if origin is frozenset:
            return st.frozensets(values_of(inner[0]), max_size=30)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return instances_of(annotation)
    if inner and typing.get_origin(annotation) is not Literal:
        return st.one_of(*map(values_of, inner))
    return st.from_type(annotation)


@functools.cache
def instances_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any instances of a dataclass, by its annotations."""
    annotations = typing.get_type_hints(kind)
    names = [each.name for each in dataclasses.fields(kind)]
    return st.builds(kind, **{name: values_of(annotations[name]) for name in names})


def strings_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for one in value:
                yield from strings_in(one)
        case dict():
            for one in value.values():
                yield from strings_in(one)


def test_a_number_of_too_many_digits_costs_no_json_line(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("json", stream=stream)
    logging.getLogger("user").warning("counted", extra={"order": 10**5000, "of": [1, -(10**5000)]})
    found = json.loads(stream.getvalue())
    assert found["message"] == "counted"
    assert (found["order"], found["of"]) == ("int", [1, "int"])


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def json_line(event: Event) -> dict[str, Any]:
    """The fields of the only line that an event makes."""
    stream = io.StringIO()
    with root_put_back():
        configure_logging("json", stream=stream)
        observer = LogObserver()
        observer.on(event)
        observer.close()
    [line] = stream.getvalue().splitlines()
    found = json.loads(line, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@settings(max_examples=15)
@given(data=st.data())
def test_every_field_of_every_event_is_a_json_value(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(instances_of(kind))
    line = json_line(event)
    assert line["event_type"] == kind.__name__
    in_fields = {
        name: value for name, value in line.items() if name not in ("message", "exception")
    }
    assert not [text for text in strings_in(in_fields) if REPR.search(text)]
    assert not re.search(r"\b[A-Z]\w*\(", line["message"])
    for each in dataclasses.fields(kind):
        value = getattr(event, each.name)
        if (
            each.name != "error"
            and isinstance(value, str | int | tuple)
            and not isinstance(value, TopicPartition)
        ):
            expected = {str: str, bool: bool, int: int, tuple: list}[type(value)]
            assert type(line[each.name]) is expected


def test_partitions_that_share_a_line_are_objects_in_it_and_counted() -> None:
    resets = tuple(
        OffsetReset(
            channel="orders",
            partition=TopicPartition("orders", number),
            from_offset=5,
            to_offset=9,
            to="latest",
        )
        for number in range(30)
    )
    line = json_line(PartitionsReset(channel="orders", resets=resets))
    assert line["resets_count"] == 30
    assert len(line["resets"]) == 20
    assert line["resets"][2] == {
        "channel": "orders",
        "topic": "orders",
        "partition": 2,
        "from_offset": 5,
        "to_offset": 9,
        "to": "latest",
    }


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Order:
    id: int
    note: str | None = None


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("-inf"), None),
        ({"a", "b"}, ["a", "b"]),
        ({1, "b"}, [1, "b"]),
        ({("orders", 0): 1.5}, {"('orders', 0)": 1.5}),
        (Order(7), {"id": 7, "note": None}),
        ([Order(7, "x")], [{"id": 7, "note": "x"}]),
        (Colour.RED, "red"),
        (b"a\xff", "a\\xff"),
        (ORDERS_0, "orders-0"),
        ((ORDERS_0, None), ["orders-0", None]),
        (Decimal("1.50"), "1.50"),
        (KeyError("x"), "KeyError: 'x'"),
        (Unprintable(), "Unprintable"),
    ],
)
def test_the_applications_own_fields_are_json_values_too(
    root: logging.Logger, value: object, expected: object
) -> None:
    stream = io.StringIO()
    configure_logging("json", stream=stream)
    logging.getLogger("user").info("done", extra={"found": value})
    assert json.loads(stream.getvalue(), parse_constant=refuse)["found"] == expected


def test_what_contains_itself_makes_a_line_all_the_same() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert json_value(loop) == ["[[...]]"]


def test_an_object_that_cannot_be_read_is_the_name_of_its_class() -> None:
    class Broken(dict[str, int]):
        def items(self) -> Any:
            raise ValueError("no")

        def __str__(self) -> str:
            raise ValueError("no")

    assert json_value([1, Broken(a=1)]) == [1, "Broken"]


def test_what_is_deeper_than_a_line_shows_is_text() -> None:
    deep: object = "end"
    for _ in range(20):
        deep = [deep]
    text = json.dumps(json_value(deep))
    assert json.loads(text)[0][0][0][0][0][0][0][0] == "[" * 12 + "'end'" + "]" * 12


# -- the channel in a line


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in EVENTS
        if {"channel", "reason"} <= {each.name for each in dataclasses.fields(kind)}
    ],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("channel 'shop-eu': the metadata cannot be read", "the metadata cannot be read"),
        ("EncodeError: channel 'shop-eu': no", "EncodeError: no"),
        ("channel 'shop-eu' is not connected", "the channel is not connected"),
        ("outgoing channel 'shop-eu' has stopped", "the channel has stopped"),
        ("channel 'orders' has the same group", "channel 'orders' has the same group"),
    ],
)
def test_a_line_names_its_channel_once(
    bench: Bench, kind: type[Event], reason: str, told: str
) -> None:
    annotations = typing.get_type_hints(kind)
    plain = {str: "x", int: 1, float: 1.0, TopicPartition: ORDERS_0}
    given_values = {
        each.name: plain.get(annotations[each.name])
        for each in dataclasses.fields(kind)
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    }
    for name, annotation in annotations.items():
        if typing.get_origin(annotation) is Literal:
            given_values[name] = typing.get_args(annotation)[-1]
        if typing.get_origin(annotation) is frozenset:
            given_values[name] = frozenset({ORDERS_0})
    event = kind(**{**given_values, "channel": "shop-eu", "reason": reason})
    bench.observer.on(event)
    bench.observer.close()
    [line] = bench.sink.messages
    assert line.count("shop-eu") == 1
    if reason in event.text():
        assert told in line
    assert vars(bench.sink.records[0])["reason"] == reason, "the field is whole"


def test_a_channel_that_a_handler_has_failed_is_named_once(bench: Bench) -> None:
    error = HandlerError("shop-eu", ORDERS_0, 5, ValueError("no amount"))
    bench.observer.on(ChannelFailed(channel="shop-eu", reason=text_of(error), error=error))
    assert bench.sink.messages == ["shop-eu: failed: orders-0 offset 5: ValueError: no amount"]


def test_text_lines_cannot_be_forged_by_a_message_or_a_traceback(root: logging.Logger) -> None:
    """Row S8 of the faults."""
    stream = io.StringIO()
    configure_logging("text", stream=stream)
    forged = "x\n2026-01-01T00:00:00.000+00:00 ERROR   reactive_kafka: forged"
    logging.getLogger("user").warning(forged)
    try:
        raise ValueError(forged)
    except ValueError:
        logging.getLogger("user").exception("it failed")
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if not line.startswith("  | ")] == [lines[0], lines[1]]
    assert r"WARNING user: x\n2026" in lines[0]
    assert lines[-1] == "  | 2026-01-01T00:00:00.000+00:00 ERROR   reactive_kafka: forged"


def test_a_library_that_repeats_itself_is_written_once_a_second_and_users_are_not_limited(
    root: logging.Logger,
) -> None:
    stream = io.StringIO()
    configure_logging("text", stream=stream)
    for attempt in range(50):
        logging.getLogger("aiokafka.conn").error("connect failed, attempt %s", attempt)
        logging.getLogger("user").info("line %s", attempt)
    logging.getLogger("aiokafka.conn").info("chatter")
    lines = stream.getvalue().splitlines()
    # 2: a second went by meanwhile.
    assert sum("aiokafka" in line for line in lines) in (1, 2)
    assert sum("user" in line for line in lines) == 50


@pytest.mark.parametrize("style", ["text", "json"])
def test_what_py4j_logs_as_nobody_is_left_out_and_what_others_log_so_is_not(
    style: Literal["text", "json"], root: logging.Logger
) -> None:
    stream = io.StringIO()
    configure_logging(style, stream=stream)
    for path in ("/venv/lib/py4j/java_gateway.py", "/app/py4j_users/code.py"):
        root.handle(root.makeRecord("root", logging.ERROR, path, 1056, f"by {path}", (), None))
    assert "py4j_users" in stream.getvalue()
    assert "java_gateway" not in stream.getvalue()


def test_configuring_twice_writes_each_line_once(root: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging("text", stream=stream)
    configure_logging("text", stream=stream)
    logging.getLogger("user").info("once")
    assert stream.getvalue().count("once") == 1


def test_kinds_of_lines_that_never_come_again_are_forgotten_and_those_held_back_are_not(
    bench: Bench,
) -> None:
    for offset in range(3):
        bench.observer.on(retried(offset))
    repeats = bench.observer._repeats
    for number in range(3 * KINDS_KEPT):
        repeats.take(number, bench.now + number)
        assert len(repeats._lines) <= KINDS_KEPT
    bench.now += 1
    bench.observer.flush()
    assert (vars(bench.sink.records[-1])["offset"], vars(bench.sink.records[-1])["suppressed"]) == (
        2,
        1,
    )
