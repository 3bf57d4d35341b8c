"""Answers off a connection: cut as they come, whatever pieces they come in, and read as Kafka's
definitions say.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka import client_arguments
from reactive_kafka.broker.aiokafka.connections.frames import (
    AT_ONCE_BYTES,
    SMALL_BYTES,
    Frames,
)
from reactive_kafka.broker.consumer.fetching.request_encoding import VERSIONS
from reactive_kafka.broker.consumer.fetching.response_decoding import (
    FetchAnswer,
    PartitionAnswer,
    decode_fetch_response,
)
from reactive_kafka.broker.wire import codec
from reactive_kafka.broker.wire.definitions import FETCH
from reactive_kafka.records import TopicPartition

EDGES = [
    0,
    1,
    SMALL_BYTES - 5,
    SMALL_BYTES - 4,
    SMALL_BYTES - 3,
    SMALL_BYTES,
    3 * SMALL_BYTES,
    70_000,
]
LENGTHS = st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 2 * SMALL_BYTES)), max_size=8)


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(pack(">i", len(frame)) + frame for frame in frames)


def feed(frames: Frames, content: bytes, most: Callable[[], int]) -> None:
    """Write it as a transport does, into the room that there is, at most so many bytes at a
    time.
    """
    at = 0
    while at < len(content):
        room = frames.room()
        count = min(len(room), most(), len(content) - at)
        assert count > 0
        room[:count] = content[at : at + count]
        room.release()
        frames.advance(count)
        at += count


@given(LENGTHS, st.data())
def test_frames_are_the_same_whatever_pieces_they_come_in(
    lengths: list[int], data: st.DataObject
) -> None:
    wanted = [bytes([number % 251]) * length for number, length in enumerate(lengths, 1)]
    content = stream_of(wanted)
    size = data.draw(
        st.one_of(st.integers(1, 9), st.sampled_from([SMALL_BYTES - 4, SMALL_BYTES, 1 << 20]))
    )
    frames = Frames()
    feed(frames, content, lambda: max(size, len(content) // 500))
    assert [bytes(frame) for frame in frames.whole] == wanted
    assert frames.error is None


def test_a_length_that_nobody_sends_takes_no_memory_before_its_bytes_come() -> None:
    frames = Frames()
    feed(frames, pack(">i", (1 << 31) - 1) + b"HTTP", lambda: 8)
    assert 0 < len(frames.room()) <= AT_ONCE_BYTES


def test_memory_of_a_large_frame_grows_with_what_has_come() -> None:
    content = b"." * (2 * AT_ONCE_BYTES + 1)
    frames = Frames()
    feed(frames, stream_of([content, b"behind"]), lambda: 1 << 30)
    assert [bytes(frame) for frame in frames.whole] == [content, b"behind"]


@pytest.mark.parametrize("length", [10, 3 * SMALL_BYTES])
def test_a_connection_keeps_no_buffer_between_two_answers(length: int) -> None:
    tracemalloc.start()
    try:
        frames = Frames()
        feed(frames, stream_of([bytes(length)] * 3), lambda: 1 << 30)
        frames.whole.clear()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < SMALL_BYTES


def test_a_negative_length_is_no_frame_and_those_before_it_stand() -> None:
    frames = Frames()
    feed(frames, stream_of([b"one"]) + pack(">i", -5) + b"rest", lambda: 1 << 20)
    assert list(frames.whole) == [b"one"]
    assert "-5 bytes" in str(frames.error)
    feed(frames, b"." * 3 * SMALL_BYTES, lambda: 1 << 20)
    assert list(frames.whole) == [b"one"]


INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
ABORTED = st.lists(st.tuples(INT64, INT64), max_size=3)
ROWS = st.builds(
    PartitionAnswer,
    st.builds(TopicPartition, st.text(max_size=5), INT32),
    st.integers(-1, 99),
    INT64,
    INT64,
    INT64,
    ABORTED,
    INT32,
    st.binary(max_size=40),
)
ANSWERS = st.builds(FetchAnswer, st.integers(0, 99), INT32, st.lists(ROWS, max_size=6))


def as_values(version: int, answer: FetchAnswer, *, has_nulls: bool) -> dict[str, Any]:
    """The fields of an answer, for the codec of Kafka's definitions."""
    topics: list[dict[str, Any]] = []
    for row in answer.partitions:
        fields: dict[str, Any] = {
            "partition_index": row.partition.partition,
            "error_code": row.error_code,
            "high_watermark": row.high_watermark,
            "last_stable_offset": row.last_stable_offset,
            "aborted_transactions": [
                {"producer_id": producer_id, "first_offset": offset}
                for producer_id, offset in row.aborted
            ]
            or (None if has_nulls else []),
            "records": row.content or (None if has_nulls else b""),
        }
        if version >= 5:
            fields["log_start_offset"] = row.log_start
        if version >= 11:
            fields["preferred_read_replica"] = row.preferred_replica
        topics.append({"topic": row.partition.topic, "partitions": [fields]})
    values: dict[str, Any] = {"responses": topics}
    if version >= 7:
        values |= {"error_code": answer.error_code, "session_id": answer.session_id}
    return values


def in_version(version: int, answer: FetchAnswer) -> FetchAnswer:
    """What an answer of this version can say of it."""
    rows = [
        row._replace(
            log_start=row.log_start if version >= 5 else -1,
            preferred_replica=row.preferred_replica if version >= 11 else -1,
        )
        for row in answer.partitions
    ]
    return (
        FetchAnswer(answer.error_code, answer.session_id, rows)
        if version >= 7
        else FetchAnswer(0, 0, rows)
    )


VERSIONS_READ = st.sampled_from(sorted(VERSIONS))


@given(VERSIONS_READ, ANSWERS, st.booleans())
def test_the_answer_to_a_fetch_is_what_the_definitions_say(
    version: int, answer: FetchAnswer, has_nulls: bool
) -> None:
    content = codec.encode(FETCH.response, version, as_values(version, answer, has_nulls=has_nulls))
    ours = decode_fetch_response(version, memoryview(pack(">i", 7) + content))
    expected = in_version(version, answer)
    assert ours._replace(partitions=[]) == expected._replace(partitions=[])
    assert [row._replace(aborted=[*row.aborted]) for row in ours.partitions] == expected.partitions


@given(VERSIONS_READ, ANSWERS, st.data())
def test_an_answer_that_is_cut_short_is_an_error(
    version: int, answer: FetchAnswer, data: st.DataObject
) -> None:
    content = codec.encode(FETCH.response, version, as_values(version, answer, has_nulls=False))
    short = content[: data.draw(st.integers(0, len(content) - 1))]
    with pytest.raises(ValueError, match=r"cut short|decode"):
        decode_fetch_response(version, memoryview(pack(">i", 7) + short))


def test_memory_for_the_answer_to_a_fetch_is_made_in_one_step() -> None:
    # Of partitions.
    headers = 1_000 * 64
    assert client_arguments.CONSUMER_DEFAULTS["fetch_max_bytes"] + headers <= AT_ONCE_BYTES
