"""Fetches that are answered with nothing are sent again off the connection, as long as nothing
changes.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.connections.broker_connection import (
    BrokerConnection,
    SentRequest,
)
from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.connections.frame_protocol import FrameProtocol
from reactive_kafka.broker.consumer.fetching.idle_fetch import LATE_S, IdleFetch, ReadingVersion
from reactive_kafka.broker.consumer.fetching.next_fetches import NextFetches
from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch
from reactive_kafka.broker.wire import codec
from reactive_kafka.broker.wire.definitions import FETCH
from tests.broker.consumer.fetching.parts import ONE, SETTINGS, Reads

VERSION = ReadingVersion(3, 5)
NOTHING = {"high_watermark": 7, "last_stable_offset": 7, "log_start_offset": 0, "records": b""}


# -- whether it is repeated


def idle(until: float = inf, most_wait_ms: int = 500) -> IdleFetch:
    return IdleFetch(4, most_wait_ms, VERSION, since=0.0, until=until)


def test_it_ends_with_its_time() -> None:
    assert idle(until=10.0).may_repeat(9.9, VERSION)
    assert not idle(until=10.0).may_repeat(10.0, VERSION)


@pytest.mark.parametrize("version", [ReadingVersion(4, 5), ReadingVersion(3, 6)])
def test_it_ends_with_any_change_and_stands_for_no_partition_then(version: ReadingVersion) -> None:
    assert not idle().may_repeat(1.0, version)
    assert (idle().named(VERSION), idle().named(version)) == (4, 0)


def test_an_answer_that_comes_late_ends_it() -> None:
    standing = idle()
    assert standing.may_repeat(1.0, VERSION)
    assert standing.wait_ms(1.1) == 400
    assert standing.may_repeat(1.5 + LATE_S, VERSION)
    assert not standing.may_repeat(1.51 + LATE_S, VERSION)


@given(now=st.floats(0, 1e9), most_ms=st.integers(0, 60_000))
def test_answers_with_nothing_come_together_and_none_later_than_allowed(
    now: float, most_ms: int
) -> None:
    wait_ms = idle(most_wait_ms=most_ms).wait_ms(now)
    assert most_ms // 8 <= wait_ms <= most_ms
    if wait_ms > most_ms // 8:
        assert (int(now * 1000) + wait_ms) % most_ms == 0


# -- on the connection


class Socket(asyncio.Transport):
    """Notes what is written to it, or raises."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.error: Exception | None = None

    def write(self, data: Any) -> None:
        if self.error is not None:
            raise self.error
        self.written.append(bytes(data))

    def close(self) -> None:
        """Nothing is open."""

    def abort(self) -> None:
        """Nothing is open."""


class Connection:
    """A connection to a broker that has these versions of Fetch, and that this test plays.

    Attributes:
        answer: Of the fetch that was sent last.
    """

    def __init__(self, fetch: NodeFetch, version: int) -> None:
        self.socket = Socket()
        self.inner = BrokerConnection("127.0.0.1", 9092, ClientSettings(client_id="me"))
        self.inner._transport = self.socket
        self.inner._protocol = FrameProtocol()
        self.inner._versions = {FETCH.key: (0, version)}
        self.send(fetch)

    @property
    def written(self) -> list[bytes]:
        """What the connection has sent again by itself."""
        return self.socket.written

    @property
    def numbers(self) -> list[int]:
        return [sent.number for sent in self.inner.unanswered]

    def send(self, fetch: NodeFetch) -> None:
        waiting: Any = self.inner.send(fetch)
        # Nobody awaits it here.
        waiting.close()
        self.answer = self.inner.unanswered[-1].answer
        self.socket.written.pop()

    def receive(self, content: bytes) -> None:
        self.inner._receive(self.numbers[0].to_bytes(4, "big") + content)


def fetch_again_and_again(*waits: int | None) -> NodeFetch:
    """A fetch of two partitions that may be repeated with these waits."""
    reads = Reads(2)
    fetch = NextFetches(SETTINGS).fetch(
        ONE,
        [*reads.states.values()],
        9,
        newest_held_at=None,
        is_hurried=False,
        restarts=reads.restarts,
        now=0.0,
    )
    left = [*waits]
    fetch.repeat_wait_ms = lambda: left.pop(0)
    return fetch


def says(version: int, *rows: dict[str, Any], session_id: int = 0, error: int = 0) -> bytes:
    partitions = [
        {"partition_index": number, "error_code": 0, "aborted_transactions": [], **NOTHING, **row}
        for number, row in enumerate(rows)
    ]
    if version < 5:
        for row in partitions:
            del row["log_start_offset"]
    values: dict[str, Any] = {
        "responses": [{"topic": "orders", "partitions": partitions}] if partitions else []
    }
    if version >= 7:
        values |= {"session_id": session_id, "error_code": error}
    return codec.encode(FETCH.response, version, values)


def sent_fields(message: bytes, version: int) -> dict[str, Any]:
    """The fields of a fetch in a message."""
    # Length, API key, version, number, and the client id.
    return codec.decode(FETCH.request, version, message[4 + 2 + 2 + 4 + 2 + len("me") :])


async def test_without_a_session_it_is_sent_again_under_the_next_number_until_something_changes() -> (
    None
):
    fetch = fetch_again_and_again(500, 120, None)
    again = list[int]()
    fetch.sent_again = lambda: again.append(1)
    connection = Connection(fetch, 4)
    nothing = says(4, {}, {})
    connection.receive(nothing)
    assert connection.answer.result().is_empty
    assert len(connection.answer.result().partitions) == 2
    connection.send(fetch)
    # Of somebody else: the answers come in the order of the requests.
    other: Any = None
    connection.inner.unanswered.append(SentRequest(99, other, other))
    connection.receive(nothing)
    assert connection.numbers == [99, 3]
    connection.inner.unanswered.pop(0)
    connection.receive(nothing)
    assert not connection.answer.done()
    assert len(again) == 2
    first = fetch.prepare({FETCH.key: (0, 4)}).encode()
    for number, wait_ms, written in zip((3, 4), (500, 120), connection.written, strict=True):
        assert int.from_bytes(written[:4], "big") == len(written) - 4
        assert int.from_bytes(written[8:12], "big") == number
        assert sent_fields(written, 4) == {
            **codec.decode(FETCH.request, 4, first),
            "max_wait_ms": wait_ms,
        }
    connection.receive(nothing)
    assert connection.answer.result().partitions == ()
    assert not connection.numbers


async def test_in_a_session_it_names_nothing_and_has_the_next_epoch() -> None:
    fetch = fetch_again_and_again(500, 500)
    connection = Connection(fetch, 11)
    connection.receive(says(11, {}, {}, session_id=77))
    fetch.is_full = False
    nothing = says(11, session_id=77)
    connection.send(fetch)
    connection.receive(nothing)
    assert connection.answer.result().session_id == 77
    connection.send(fetch)
    for epoch in (3, 4):
        connection.receive(nothing)
        fields = sent_fields(connection.written[-1], 11)
        assert (fields["session_id"], fields["session_epoch"], fields["topics"]) == (77, epoch, [])
    assert not connection.answer.done()


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"records": b"x" * 70}, 0),
        ({"error_code": 3}, 0),
        ({"preferred_read_replica": 2}, 0),
        ({}, 70),
    ],
)
async def test_records_errors_and_followers_reach_who_waits_each_time(
    row: dict[str, Any], error: int
) -> None:
    fetch = fetch_again_and_again()
    connection = Connection(fetch, 11)
    for _ in range(3):
        connection.receive(says(11, {}, row, error=error))
        assert len(connection.answer.result().partitions) == 2
        connection.send(fetch)


async def test_an_end_that_has_moved_reaches_who_waits() -> None:
    fetch = fetch_again_and_again(500, 500)
    connection = Connection(fetch, 4)
    connection.receive(says(4, {}, {}))
    connection.send(fetch)
    connection.receive(says(4, {}, {}))
    connection.receive(says(4, {}, {"high_watermark": 8}))
    rows = connection.answer.result().partitions
    assert [row.high_watermark for row in rows] == [7, 8]


async def test_another_version_begins_anew() -> None:
    fetch = fetch_again_and_again()
    nothing = says(4, {}, {})
    connection = Connection(fetch, 4)
    connection.receive(nothing)
    other = Connection(fetch, 5)
    other.receive(says(5, {}, {}))
    assert len(other.answer.result().partitions) == 2


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), RuntimeError("uvloop: the handler is closed")]
)
async def test_a_connection_that_takes_it_no_more_is_closed(error: Exception) -> None:
    fetch = fetch_again_and_again(500)
    connection = Connection(fetch, 4)
    connection.receive(says(4, {}, {}))
    connection.send(fetch)
    connection.socket.error = error
    connection.receive(says(4, {}, {}))
    assert not connection.inner.is_open
    assert isinstance(connection.answer.exception(), KafkaConnectionError)
