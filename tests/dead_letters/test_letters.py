"""What a dead letter says of its record, for any headers that anybody may have written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.dead_letters.letters import (
    LetterOrigin,
    Refused,
    ReplayTarget,
    origin_of,
    original_timestamp,
    own_headers,
    rest,
    shown,
    target_of,
)
from reactive_kafka.dead_letters.letters import (
    letter_of as description_of,
)
from reactive_kafka.records import HeaderPairs, LogRange
from tests.app.brokers import StoredRecord
from tests.failure.samples import failed, headers_of_no_letter, letter_of, read_again
from tests.failure.samples import headers as any_headers

SIZES = {"orders": 4, "letters": 2, "payments": 2, "__consumer_offsets": 50}


def is_named(topic: str) -> bool:
    """The configuration names all but payments, and one that does not exist."""
    return topic != "payments"


def headers(
    topic: bytes = b"orders", partition: bytes = b"3", offset: bytes = b"17"
) -> HeaderPairs:
    return (
        ("dead-letter-topic", topic),
        ("dead-letter-partition", partition),
        ("dead-letter-offset", offset),
    )


def foreign(prefix: str, topic: bytes = b"orders", **more: bytes) -> HeaderPairs:
    """A letter that somebody else wrote for offset 17 of partition 3, with *more* headers: _ stands
    for a dot.
    """
    names = {"topic": topic, "partition": b"3", "offset": b"17", **more}
    return tuple((prefix + name.replace("_", "."), value) for name, value in names.items())


OTHERS = [
    (
        foreign(
            "__dlq.errors.",
            group=b"workers",
            delivery_count=b"5",
            message=b"Offset rejected by client.",
        ),
        {
            "written_by": "share group",
            "reason": "Offset rejected by client.",
            "exception": "",
            "group": "workers",
            "deliveries": 5,
        },
    ),
    (
        foreign(
            "__streams.errors.",
            exception=b"java.lang.IllegalStateException: bad",
            message=b"bad",
            stacktrace=b"at",
        ),
        {
            "written_by": "Kafka Streams",
            "reason": "bad",
            "exception": "java.lang.IllegalStateException",
        },
    ),
    (
        foreign(
            "__connect.errors.",
            exception_class_name=b"org.x.DataException",
            exception_message=b"no",
            stage=b"SINK",
        ),
        {"written_by": "Kafka Connect", "reason": "no", "exception": "org.x.DataException"},
    ),
]


@pytest.mark.parametrize(("pairs", "told"), OTHERS)
def test_letters_of_others_tell_why_and_go_back_without_the_headers_that_made_them_letters(
    pairs: HeaderPairs, told: dict[str, object]
) -> None:
    pairs = (("trace", b"1"), *pairs)
    record = StoredRecord(offset=5, timestamp=1000, key=None, value=b"v", headers=tuple(pairs))
    shown_letter = description_of(TopicPartition("letters", 0), record, with_value=False)
    assert shown_letter["origin"] == {
        "topic": "orders",
        "partition": 3,
        "offset": 17,
        "timestamp_ms": None,
    }
    assert {name: shown_letter[name] for name in told} == told
    assert target_of(pairs, "letters", SIZES, is_named) == ReplayTarget("orders", 3)
    assert own_headers(pairs) == (("trace", b"1"),)
    assert original_timestamp(record) == 1000


def test_a_letter_of_ours_keeps_the_headers_of_others_that_its_record_had() -> None:
    record = failed(headers=foreign("__streams.errors.", topic=b"elsewhere"))
    written = letter_of(record)
    assert origin_of(written.headers) == LetterOrigin(TopicPartition("orders", 3), 17)
    assert own_headers(written.headers) == record.headers


def test_a_letter_of_ours_goes_back_to_its_partition_as_it_was() -> None:
    record = failed()
    written = letter_of(record)
    assert origin_of(written.headers) == LetterOrigin(TopicPartition("orders", 3), 17)
    assert target_of(written.headers, "letters", SIZES, is_named) == ReplayTarget("orders", 3)
    assert own_headers(written.headers) == record.headers


def test_a_letter_of_a_partition_that_is_gone_goes_by_its_key() -> None:
    assert target_of(headers(partition=b"4"), "letters", SIZES, is_named) == ReplayTarget(
        "orders", None
    )


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        ((), "it is not a dead letter: it has none of the headers of one"),
        ((("trace", b"1"),), "it is not a dead letter: it has none of the headers of one"),
        (
            (("dead-letter-reason", b"no"),),
            "it has no header dead-letter-topic, dead-letter-partition, dead-letter-offset",
        ),
        (
            (("__dlq.errors.topic", b"orders"),),
            "it has no header __dlq.errors.partition, __dlq.errors.offset",
        ),
        (
            foreign("__dlq.errors.", topic=b"GXcHfkdFRTqCX9mnd8SnHw"),
            "it comes from topic GXcHfkdFRTqCX9mnd8SnHw",
        ),
        (headers()[:2], "it has no header dead-letter-offset"),
        (headers(topic=b""), "its header dead-letter-topic is ''"),
        (headers(topic=b"or ders"), "its header dead-letter-topic is 'or ders'"),
        (headers(topic=b"o" * 250), "its header dead-letter-topic is "),
        (headers(topic=b"\xff\x1b[2J"), r"its header dead-letter-topic is '\\xff\\x1b[2J'"),
        (headers(topic=b".."), "its header dead-letter-topic is '..'"),
        (headers(partition=b"-1"), "its header dead-letter-partition is '-1'"),
        (headers(partition="²".encode()), "its header dead-letter-partition is '²'"),
        (headers(offset=b"9" * 19), "its header dead-letter-offset is '999"),
        (
            headers(topic=b"no-such-topic"),
            "it comes from topic no-such-topic, which does not exist",
        ),
        (
            headers(topic=b"payments"),
            "it comes from topic payments, which no incoming channel of the configuration reads",
        ),
        (headers(topic=b"letters"), "it comes from this very topic"),
        (
            headers(topic=b"__consumer_offsets"),
            "it comes from __consumer_offsets, an internal topic of the broker",
        ),
    ],
)
def test_headers_that_say_no_topic_to_go_to_are_refused_by_name(
    forged: HeaderPairs, why: str
) -> None:
    """Row S7 of the faults."""
    refused = target_of(forged, "letters", SIZES, is_named)
    assert isinstance(refused, Refused)
    assert refused.startswith(why)


@given(any_headers)
def test_a_target_is_always_another_topic_that_exists_and_is_named(pairs: HeaderPairs) -> None:
    target = target_of(pairs, "letters", SIZES, is_named)
    if isinstance(target, Refused):
        assert target.isprintable()
    else:
        assert target.topic == "orders"
        assert target.partition is None or 0 <= target.partition < SIZES["orders"]


@given(any_headers)
def test_a_replayed_record_keeps_its_own_headers_and_none_of_ours(pairs: HeaderPairs) -> None:
    kept = own_headers(pairs)
    assert kept == headers_of_no_letter(pairs)


def test_the_newest_of_several_origins_counts() -> None:
    # As SmallRye writes them.
    twice = (*headers(offset=b"5"), *headers(topic=b"older"))
    assert origin_of(twice) == LetterOrigin(TopicPartition("orders", 3), 5)


def test_a_record_that_fails_and_is_replayed_50_times_does_not_grow() -> None:
    """Row H-5 of the faults."""
    record = failed()
    for _ in range(50):
        written = letter_of(record)
        stored = StoredRecord(0, record.now_ms, written.key, written.value, tuple(written.headers))
        back = replace(
            written,
            topic="orders",
            headers=own_headers(written.headers),
            partition=3,
            timestamp_ms=original_timestamp(stored),
        )
        record = read_again(back, source=record)
    assert (record.headers, record.key, record.value) == (
        failed().headers,
        failed().key,
        failed().value,
    )
    assert record.timestamp_ms == failed().timestamp_ms


@given(st.binary(max_size=400), st.binary(max_size=400), any_headers)
def test_whatever_is_in_a_record_is_shown_on_one_line_and_cut(
    value: bytes, key: bytes, pairs: HeaderPairs
) -> None:
    record = StoredRecord(offset=5, timestamp=0, key=key, value=value, headers=tuple(pairs))
    shown_letter = description_of(TopicPartition("letters", 0), record, with_value=True)
    for text in (shown_letter[name] for name in ("key", "value", "reason", "exception")):
        assert text is not None
        assert text.isprintable()
        assert len(text) <= 200


def test_values_are_not_looked_at_unless_they_are_asked_for() -> None:
    record = StoredRecord(offset=5, timestamp=0, key=None, value=b"secret", headers=())
    quiet = description_of(TopicPartition("letters", 0), record, with_value=False)
    assert ("value" in quiet, quiet["value_bytes"], quiet["key"]) == (False, 6, None)
    assert shown("ä\u2028".encode()) == "ä\\u2028"


def test_a_replay_continues_at_the_beginning_of_a_log_that_was_deleted_up_to_there() -> None:
    place = TopicPartition("letters", 0)
    for reached, start in ((3, 10), (10, 10), (15, 15), (20, 20)):
        ranges = rest("letters", None, {place: LogRange(10, 20)}, {place: reached})
        assert ranges == {place: LogRange(start, 20)}
    assert rest("letters", None, {place: LogRange(10, 20)}, {}) == {place: LogRange(10, 20)}
