"""Where a delayed record goes next, what it says of its past, and that it comes to an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import Record, TopicPartition
from reactive_kafka.errors import DataLossError
from reactive_kafka.failure import DeadLetterQueue, DelayedRetry, FailedRecord, WriteLetter
from reactive_kafka.failure.headers import DELAYED_NAMES, delay_of, due_in_s
from tests.config.values import delayed_retry_settings
from tests.failure.samples import NOW_MS, any_failed, failed, header, read_again

TOPICS = ("orders_retry_1000", "orders_retry_10000")
DEAD = "dead-letter-topic-orders"


def delayed(record: FailedRecord, *, max_retries: int = 3, timeout_s: float = 120.0) -> WriteLetter:
    settings = delayed_retry_settings(topics=TOPICS, max_retries=max_retries, timeout_s=timeout_s)
    decision = DelayedRetry(settings, DeadLetterQueue(DEAD, retry_topics=TOPICS)).decide(record)
    assert isinstance(decision, WriteLetter)
    return decision


@pytest.mark.parametrize(
    ("topic", "delay"),
    [
        ("a_retry_10000", 10000),
        ("a_0", 0),
        ("a", None),
        ("a_b", None),
        ("a_-5", None),
        ("a_1_", None),
        ("a_1.5", None),
    ],
)
def test_the_delay_stands_after_the_last_underscore(topic: str, delay: int | None) -> None:
    assert delay_of(topic) == delay


def test_a_record_is_due_its_topics_delay_after_its_timestamp() -> None:
    assert due_in_s(NOW_MS, 10_000, NOW_MS) == 10.0
    assert due_in_s(NOW_MS, 10_000, NOW_MS + 9_900) == 0.1
    assert due_in_s(NOW_MS, 10_000, NOW_MS + 11_000) == 0.0
    assert due_in_s(None, 10_000, NOW_MS) == 0.0


@given(st.integers(0, 2**60), st.integers(1, 10**9), st.integers(0, 2**60))
def test_no_record_waits_longer_than_the_delay_whatever_the_clocks_say(
    at: int, delay_ms: int, now_ms: int
) -> None:
    assert 0 <= due_in_s(at, delay_ms, now_ms) <= delay_ms / 1000


def test_the_first_hop_counts_from_zero_and_names_where_the_record_stood() -> None:
    assert delayed(failed()) == WriteLetter(
        topic="orders_retry_1000",
        value=b"\xff{",
        key=b"ada",
        headers=(
            ("delayed-retry-count", b"0"),
            ("delayed-retry-original-timestamp", b"%d" % (NOW_MS - 5000)),
            ("delayed-retry-first-processing-timestamp", b"%d" % NOW_MS),
            ("delayed-retry-exception-class-name", b"builtins.ValueError"),
            ("delayed-retry-reason", b"no amount"),
            ("delayed-retry-topic", b"orders"),
            ("delayed-retry-partition", b"3"),
            ("delayed-retry-offset", b"17"),
            ("trace", b"1"),
            ("trace", b"2"),
            ("empty", None),
        ),
        partition=3,
        timestamp_ms=NOW_MS,
        kind="retry",
    )


def test_each_hop_counts_one_more_and_keeps_where_and_when_it_began() -> None:
    record, writes = failed(), []
    for hop in range(4):
        write = delayed(record)
        writes.append(write)
        record = read_again(
            write, source=record, now_ms=NOW_MS + 1000 * (hop + 1), reason=KeyError(hop)
        )
    assert [write.topic for write in writes] == [*TOPICS, TOPICS[1], DEAD]
    assert [header(write, "delayed-retry-count") for write in writes[:3]] == ["0", "1", "2"]
    assert [write.timestamp_ms for write in writes[:3]] == [NOW_MS, NOW_MS + 1000, NOW_MS + 2000]
    for write in writes[:3]:
        assert header(write, "delayed-retry-first-processing-timestamp") == str(NOW_MS)
        assert header(write, "delayed-retry-original-timestamp") == str(NOW_MS - 5000)
        assert [
            header(write, f"delayed-retry-{name}") for name in ("topic", "partition", "offset")
        ] == [
            "orders",
            "3",
            "17",
        ]
    assert header(writes[2], "delayed-retry-reason") == "1"


def test_the_dead_letter_of_a_delayed_record_names_where_it_stood_first_and_has_its_first_timestamp() -> (
    None
):
    first = delayed(failed(), max_retries=1)
    write = delayed(read_again(first, source=failed()), max_retries=1)
    assert write.kind == "dead-letter"
    names = ("topic", "partition", "offset", "reason")
    assert [header(write, f"dead-letter-{name}") for name in names] == [
        "orders",
        "3",
        "17",
        "no amount",
    ]
    assert header(write, "dead-letter-timestamp") == str(failed().timestamp_ms)
    assert write.timestamp_ms is None
    assert header(write, "delayed-retry-count") == "0"


def test_a_route_to_the_dead_letters_names_where_a_delayed_record_stood_first_too() -> None:
    again = read_again(delayed(failed()), source=failed())
    write = DeadLetterQueue(DEAD, retry_topics=TOPICS).decide(again)
    assert isinstance(write, WriteLetter)
    assert (header(write, "dead-letter-topic"), header(write, "dead-letter-offset")) == (
        "orders",
        "17",
    )


@pytest.mark.parametrize(("later_ms", "topic"), [(110_000, TOPICS[1]), (110_001, DEAD)])
def test_a_retry_that_would_come_after_the_timeout_is_a_dead_letter(
    later_ms: int, topic: str
) -> None:
    again = read_again(delayed(failed()), source=failed(), now_ms=NOW_MS + later_ms)
    assert delayed(again).topic == topic


def test_of_a_record_that_is_lost_there_is_nothing_to_try_again() -> None:
    assert (
        delayed(failed(reason=DataLossError("clicks-0 [2, 4) is not in the log any more"))).topic
        == DEAD
    )


def test_headers_count_only_in_our_own_retry_topics() -> None:
    spent = (("delayed-retry-count", b"99"), ("delayed-retry-first-processing-timestamp", b"1"))
    write = delayed(failed(headers=spent))
    assert write.topic == TOPICS[0]
    assert [value for name, value in write.headers if name == "delayed-retry-count"] == [b"0"]


@pytest.mark.parametrize("count", [b"abc", b"-3", b"", "٣".encode(), b"9" * 5000, b" 1", b"1.0"])
def test_a_count_that_makes_no_sense_counts_as_exhausted(count: bytes) -> None:
    again = read_again(delayed(failed()), source=failed())
    headers = tuple(
        (name, count if name == "delayed-retry-count" else value) for name, value in again.headers
    )
    assert delayed(read_again(delayed(failed()), source=failed())).kind == "retry"
    write = delayed(failed(partition=again.partition, headers=headers))
    assert write.topic == DEAD
    assert header(write, "dead-letter-topic") == "orders"


def test_a_record_put_into_a_retry_topic_by_hand_starts_from_the_beginning() -> None:
    write = delayed(failed(partition=TopicPartition(TOPICS[1], 2)))
    assert (write.topic, header(write, "delayed-retry-count")) == (TOPICS[0], "0")


def test_a_replacement_changes_what_is_retried_and_neither_when_nor_where() -> None:
    replacement = Record(
        b"new",
        key=b"k",
        partition=9,
        topic="x",
        headers=[("delayed-retry-count", b"-9"), ("a", b"")],
    )
    write = delayed(failed(replacement=replacement))
    assert (write.value, write.key, write.partition, write.topic) == (b"new", b"k", 3, TOPICS[0])
    assert header(write, "delayed-retry-count") == "0"
    assert header(write, "a") == ""


@given(
    any_failed("orders", *TOPICS),
    st.integers(0, 5),
    st.lists(st.integers(-(10**6), 10**6), min_size=8, max_size=8),
)
def test_every_record_ends_as_a_dead_letter_after_at_most_max_retries(
    record: FailedRecord, max_retries: int, steps: list[int]
) -> None:
    hops = 0
    while (write := delayed(record, max_retries=max_retries)).kind == "retry":
        hops += 1
        assert hops <= max_retries
        assert write.topic in TOPICS
        ours = [name for name, _ in write.headers if name in DELAYED_NAMES]
        assert len(ours) == len(set(ours))
        # Clocks of other instances may be behind.
        now_ms = max(0, record.now_ms + steps[hops])
        record = read_again(
            write,
            source=record,
            now_ms=now_ms,
            replacement=record.replacement,
            reason=record.reason,
        )
    assert write.topic in (DEAD, "elsewhere")


@given(any_failed("orders", *TOPICS))
def test_a_retry_is_due_its_delay_after_now_whatever_the_record_says(record: FailedRecord) -> None:
    write = delayed(record)
    if write.kind == "retry":
        assert (
            due_in_s(write.timestamp_ms, delay_of(write.topic) or 0, record.now_ms)
            == (delay_of(write.topic) or 0) / 1000
        )
        assert write.partition == record.partition.partition
