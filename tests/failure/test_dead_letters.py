"""What a dead letter holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import Headers, Record, TopicPartition
from reactive_kafka.errors import DecodeError, EncodeError, HandlerError
from reactive_kafka.failure import (
    DeadLetterQueue,
    Fail,
    FailedRecord,
    IgnoreFailure,
    Skip,
    Stop,
    WriteLetter,
)
from reactive_kafka.failure.headers import (
    DEAD_LETTER_NAMES,
    LETTER_NAMES,
    MAX_VALUE_BYTES,
    header_text,
)
from reactive_kafka.failure.strategies import check_replacement
from tests.failure.samples import Rude, any_failed, failed, header, read_again

DEAD = "dead-letter-topic-orders"


def letter(record: FailedRecord, **queue: Any) -> WriteLetter:
    decision = DeadLetterQueue(DEAD, **queue).decide(record)
    assert isinstance(decision, WriteLetter)
    return decision


def test_fail_stops_and_ignore_skips() -> None:
    assert Fail().decide(failed()) == Stop()
    assert IgnoreFailure().decide(failed()) == Skip()


def test_a_dead_letter_keeps_the_bytes_and_says_what_happened_before_the_records_own_headers() -> (
    None
):
    assert letter(failed()) == WriteLetter(
        topic=DEAD,
        value=b"\xff{",
        key=b"ada",
        headers=(
            ("dead-letter-exception-class-name", b"builtins.ValueError"),
            ("dead-letter-reason", b"no amount"),
            ("dead-letter-topic", b"orders"),
            ("dead-letter-partition", b"3"),
            ("dead-letter-offset", b"17"),
            ("dead-letter-timestamp", b"1699999995000"),
            ("trace", b"1"),
            ("trace", b"2"),
            ("empty", None),
        ),
        partition=None,
        timestamp_ms=None,
        kind="dead-letter",
    )


@pytest.mark.parametrize("timestamp_ms", [None, -1])
def test_a_record_without_a_time_has_a_letter_that_names_none(timestamp_ms: int | None) -> None:
    assert header(letter(failed(timestamp_ms=timestamp_ms)), "dead-letter-timestamp") is None


def raised(*, suppressed: bool = False, cause: Exception | None = None) -> Exception:
    """An exception raised while another one was handled."""
    error = ValueError("no amount")
    error.__context__ = KeyError("amount")
    if suppressed or cause is not None:
        # As "from" does: it suppresses the context.
        error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("reason", "cause", "class_name"),
    [
        (raised(), "'amount'", "builtins.KeyError"),
        (raised(cause=OSError("disk")), "disk", "builtins.OSError"),
        (raised(suppressed=True), None, None),
        (ValueError("no amount"), None, None),
    ],
)
def test_the_cause_is_the_one_that_python_would_show(
    reason: Exception, cause: str | None, class_name: str | None
) -> None:
    write = letter(failed(reason=reason))
    assert header(write, "dead-letter-cause") == cause
    assert header(write, "dead-letter-cause-class-name") == class_name


def test_the_users_own_exception_is_named_and_not_what_we_wrapped_it_in() -> None:
    reason = ValueError("mine")
    wrapped = HandlerError("orders", TopicPartition("orders", 3), 17, reason)
    wrapped.__cause__ = reason
    write = letter(failed(reason=wrapped))
    assert header(write, "dead-letter-exception-class-name") == "builtins.ValueError"
    assert header(write, "dead-letter-reason") == "mine"
    assert header(write, "dead-letter-cause") is None


@pytest.mark.parametrize(("reason", "said"), [(ValueError(), "ValueError"), (Rude(), "Rude")])
def test_an_exception_without_a_text_is_named_by_its_class(reason: Exception, said: str) -> None:
    assert header(letter(failed(reason=reason)), "dead-letter-reason") == said


@given(st.text() | st.text(alphabet="aé\u2028\U0001f600\udc80\n", min_size=400, max_size=2000))
def test_a_header_is_one_line_of_utf8_of_at_most_1_kb(text: str) -> None:
    value = header_text(text)
    assert len(value) <= MAX_VALUE_BYTES
    assert value.decode().isprintable()


def test_a_short_text_is_kept_and_a_long_one_cut_between_two_characters() -> None:
    assert header_text("naïve\n\x1b[31m") == "naïve\\n\\x1b[31m".encode()
    assert header_text("é" * 600) == "é".encode() * 512
    assert header_text("a" + "é" * 600) == b"a" + "é".encode() * 511


def test_what_the_record_says_under_our_names_is_not_believed() -> None:
    """Row S6 of the faults."""
    forged = tuple((name, b"forged" * 999) for name in sorted(LETTER_NAMES))
    for retry_topics in ((), ("orders_retry_10",)):
        write = letter(failed(headers=(*forged, ("trace", b"1"))), retry_topics=retry_topics)
        assert write.headers == letter(failed(headers=(("trace", b"1"),))).headers


def test_what_stands_in_a_retry_topic_without_our_count_is_not_believed_either() -> None:
    """Row S6 of the faults."""
    forged = (
        ("delayed-retry-reason", b"forged"),
        ("delayed-retry-topic", b"payments"),
        ("trace", b"1"),
    )
    at = TopicPartition("orders_retry_10", 0)
    write = letter(failed(partition=at, headers=forged), retry_topics=[at.topic])
    assert [name for name, _ in write.headers if name.startswith("delayed-retry-")] == []
    assert header(write, "dead-letter-topic") == at.topic


@settings(max_examples=25)
@given(any_failed("orders"), st.sampled_from(["orders", DEAD]))
def test_a_letter_that_is_replayed_fifty_times_does_not_grow(
    record: FailedRecord, topic: str
) -> None:
    """Row H-5 of the faults."""
    replayed = read_again(letter(record), source=record, topic=topic, reason=record.reason)
    write = once = letter(replayed)
    for _ in range(50):
        write = letter(read_again(write, source=replayed, topic=topic, reason=record.reason))
    assert [name for name, _ in write.headers] == [name for name, _ in once.headers]
    ours = [(name, value) for name, value in write.headers if name in DEAD_LETTER_NAMES]
    assert len(ours) == len(dict(ours))
    assert all(len(value or b"") <= MAX_VALUE_BYTES for _, value in ours)


@given(any_failed("orders", "orders_retry_10"))
def test_a_letter_without_a_replacement_holds_the_records_own_bytes(record: FailedRecord) -> None:
    if record.replacement is None:
        write = letter(record, retry_topics=["orders_retry_10"])
        assert (write.value, write.key, write.partition) == (record.value, record.key, None)
        count = Headers(record.headers).get("delayed-retry-count")
        was_delayed = record.partition.topic != "orders" and count is not None
        ours = DEAD_LETTER_NAMES if was_delayed else LETTER_NAMES
        kept = [header for header in record.headers if header[0] not in ours]
        assert [header for header in write.headers if header[0] not in DEAD_LETTER_NAMES] == kept


def test_a_record_that_cannot_be_decoded_says_so_as_smallrye_does() -> None:
    reason = DecodeError("not valid JSON")
    reason.__cause__ = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    write = letter(failed(reason=reason), deserializer="json")
    assert write.value == b"\xff{"
    assert header(write, "dead-letter-exception-class-name") == "reactive_kafka.errors.DecodeError"
    assert header(write, "dead-letter-cause-class-name") == "builtins.UnicodeDecodeError"
    assert header(write, "deserialization-failure-reason") == "not valid JSON"
    assert header(write, "deserialization-failure-cause") == str(reason.__cause__)
    assert header(write, "deserialization-failure-topic") == "orders"
    assert header(write, "deserialization-failure-deserializer") == "json"


@pytest.mark.parametrize(
    ("part", "said"), [("value", "json"), ("key", "int32"), ("ordering key", None)]
)
def test_the_deserializer_that_is_named_is_that_of_the_part_that_did_not_fit(
    part: str, said: str | None
) -> None:
    reason = DecodeError("does not fit")
    reason.part = part
    headers = Headers(
        letter(failed(reason=reason), deserializer="json", key_deserializer="int32").headers
    )
    assert headers.get("deserialization-failure-deserializer") == (
        None if said is None else said.encode()
    )


def test_other_failures_say_nothing_of_decoding() -> None:
    assert not [
        name
        for name, _ in letter(failed(), deserializer="json").headers
        if name.startswith("deserial")
    ]


def test_a_replacement_says_what_is_written_and_what_it_leaves_out_stays() -> None:
    record = failed(
        replacement=Record({"masked": True}, headers=[("trace", b"mine"), ("by", b"us")])
    )
    write = letter(record)
    assert json.loads(write.value or b"") == {"masked": True}
    assert (write.key, write.partition, write.topic) == (b"ada", None, DEAD)
    assert write.timestamp_ms is None
    assert write.headers[6:] == (("empty", None), ("trace", b"mine"), ("by", b"us"))


def test_a_replacement_may_name_key_partition_topic_timestamp_and_our_own_headers() -> None:
    at = datetime(2038, 10, 9, 11, 0, 30, 128_000, tzinfo=UTC)
    replacement = Record(
        None,
        key="é",
        partition=5,
        topic="graveyard",
        timestamp=at,
        headers=[("dead-letter-reason", b"because")],
    )
    write = letter(failed(replacement=replacement))
    assert (write.value, write.key, write.partition, write.topic) == (
        None,
        "é".encode(),
        5,
        "graveyard",
    )
    assert write.timestamp_ms == 2_170_234_830_128
    assert header(write, "dead-letter-timestamp") == str(failed().timestamp_ms)
    assert [value for name, value in write.headers if name == "dead-letter-reason"] == [b"because"]


@pytest.mark.parametrize(
    "replacement",
    [
        Record(object()),
        Record(b"", key=object()),  # type: ignore[arg-type]
        Record(b"", topic="bad name!"),
        Record(b"", topic=""),
        Record(b"", channel="invoices"),
        Record(Record(b"")),
        Record({"order": Record(b"")}),
        Record(number for number in range(3)),
    ],
    ids=["value", "key", "topic", "no topic", "channel", "Record", "hidden Record", "generator"],
)
def test_a_replacement_that_cannot_be_written_is_an_error(replacement: Record) -> None:
    with pytest.raises(EncodeError, match="channel 'orders': nack's record cannot be written: "):
        check_replacement("orders", replacement)


def test_a_replacement_that_can_be_written_is_none() -> None:
    check_replacement("orders", Record({"a": 1}, key="k", headers=[("a", b"1"), ("b", None)]))
