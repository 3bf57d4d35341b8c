"""What the headers of a request say, whoever wrote them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import EncodeError
from reactive_kafka.outgoing.reply_headers import (
    CORRELATION_ID,
    PARTITION,
    TOPIC,
    ReplyTo,
    reply_to,
    request_headers,
)
from reactive_kafka.wire import is_topic

NAMES = st.sampled_from([CORRELATION_ID, TOPIC, PARTITION, "trace"])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=6) | st.just(b"answers")))


@given(HEADERS, st.binary(min_size=1))
def test_a_request_is_read_as_it_was_made_whatever_its_record_said_of_another_one(
    given: list[tuple[str, bytes | None]], correlation_id: bytes
) -> None:
    headers = request_headers(given, "answers", correlation_id)
    assert reply_to(headers) == ReplyTo("answers", None, correlation_id)
    assert [one for one in headers if one[0] == "trace"] == [
        one for one in given if one[0] == "trace"
    ]
    assert len(headers) == 2 + sum(name == "trace" for name, _ in given)


@given(HEADERS)
def test_any_headers_are_a_possible_request_or_none_or_refused(
    headers: list[tuple[str, bytes | None]],
) -> None:
    last = dict(headers)
    try:
        found = reply_to(headers)
    except EncodeError as error:
        assert any(f"header {name}: " in str(error) for name in (CORRELATION_ID, TOPIC, PARTITION))
        return
    if found is None:
        assert not {CORRELATION_ID, TOPIC} <= last.keys()
        return
    assert found.correlation_id == last[CORRELATION_ID]
    assert found.topic.encode() == last[TOPIC]
    assert is_topic(found.topic)
    number = None if found.partition is None else found.partition.to_bytes(4, "big", signed=True)
    assert number == last.get(PARTITION)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({CORRELATION_ID: None}, "REPLY_CORRELATION_ID: it has no value"),
        ({TOPIC: b"\xff"}, "REPLY_TOPIC: not UTF-8 text: invalid start byte at byte 0"),
        ({TOPIC: b"a/b"}, "REPLY_TOPIC: topic = 'a/b': no topic can be called so"),
        ({TOPIC: None}, "REPLY_TOPIC: topic = '': no topic can be called so"),
        (
            {PARTITION: b"\0\0\1"},
            r"REPLY_PARTITION: b'\\x00\\x00\\x01' is no partition: expected 4 bytes",
        ),
        ({PARTITION: b"\xff\xff\xff\xff"}, "REPLY_PARTITION: .* is no partition"),
        ({PARTITION: None}, "REPLY_PARTITION: None is no partition"),
    ],
)
def test_what_no_reply_can_be_sent_to_is_told_by_header_and_value(
    changed: dict[str, bytes | None], why: str
) -> None:
    headers = {CORRELATION_ID: b"1", TOPIC: b"answers", PARTITION: b"\0\0\0\2"}
    assert reply_to(list(headers.items())) == ReplyTo("answers", 2, b"1")
    with pytest.raises(EncodeError, match=why):
        reply_to(list((headers | changed).items()))
