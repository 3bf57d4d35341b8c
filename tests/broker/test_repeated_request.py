"""Requests that are sent again as they were: made once, and an answer of the same bytes is not
decoded again.
"""

from __future__ import annotations

import concurrent.futures
import gc
from collections import deque
from collections.abc import Callable
from io import BytesIO
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest

import reactive_kafka.broker.aiokafka.connection_patches  # noqa: F401
from reactive_kafka.broker.aiokafka.fetch_client import FetchClient
from reactive_kafka.broker.aiokafka.fetched.fetch_session import FetchSession
from reactive_kafka.broker.aiokafka.fetched.frames import handle_answer
from reactive_kafka.broker.aiokafka.fetched.idle_fetch import nothing_new
from reactive_kafka.broker.aiokafka.fetched.repeated_request import RepeatedRequest
from reactive_kafka.broker.aiokafka.fetched.request_encoding import build_fetch

VERSIONS = {1: (0, 11)}
# Code, end, stable end, start, aborted, replica, records.
NOTHING = (0, 7, 7, 0, [], -1, b"")


def fetch(offset: int = 7) -> FetchRequest:
    return FetchRequest(
        500, 1, 1 << 20, 0, [("orders", [(0, offset, 1 << 20), (1, offset, 1 << 20)])]
    )


def answer(asked: Any, *partitions: tuple[Any, ...], code: int = 0) -> bytes:
    kind = fetch().prepare(VERSIONS).RESPONSE_TYPE
    parts = [(number, *rest) for number, rest in enumerate(partitions)]
    written: bytes = kind(0, code, 0, [("orders", parts)]).encode()
    return written


Read = Callable[[RepeatedRequest, bytes, int], Any]


def in_stream(repeated: RepeatedRequest, content: bytes, number: int) -> Any:
    """As aiokafka's connection reads a small one: behind the header, which is another one each
    time.
    """
    data = BytesIO(number.to_bytes(4, "big") + content)
    asked = repeated.request.prepare(VERSIONS)
    asked.parse_response_header(data)
    return asked.RESPONSE_TYPE.decode(data)


def in_place(repeated: RepeatedRequest, content: bytes, number: int) -> Any:
    """As ours reads a large one."""
    asked, told = repeated.request.prepare(VERSIONS), concurrent.futures.Future[Any]()
    connection: Any = SimpleNamespace(_requests=deque([(number, asked, told)]))
    handle_answer(connection, bytearray(number.to_bytes(4, "big") + content))
    assert not connection._requests
    return told.result()


BOTH = pytest.mark.parametrize("read", [in_stream, in_place])


def test_a_request_is_what_it_would_be_alone() -> None:
    repeated = RepeatedRequest(fetch(), nothing_new)
    for _ in range(2):
        asked = repeated.request.prepare(VERSIONS)
        assert asked.encode() == fetch().prepare(VERSIONS).encode()
        assert asked.API_VERSION == 11
    assert repeated.request.prepare({1: (0, 4)}).encode() == fetch().prepare({1: (0, 4)}).encode()


@BOTH
def test_nothing_new_twice_is_read_once_and_names_no_partition_then(read: Read) -> None:
    repeated, content = RepeatedRequest(fetch(), nothing_new), answer(fetch(), NOTHING, NOTHING)
    first = read(repeated, content, 1)
    assert [len(parts) for _, parts in first.topics] == [2]
    for number in (2, 3):
        again = read(repeated, content, number)
        assert (again.topics, again.API_VERSION, again.error_code) == ([], first.API_VERSION, 0)
    moved = read(repeated, answer(fetch(), NOTHING, (0, 8, 8, 0, [], -1, b"")), 4)
    assert [part[2] for part in moved.topics[0][1]] == [7, 8]
    # Back again is news, too.
    assert [part[2] for part in read(repeated, content, 5).topics[0][1]] == [7, 7]


@BOTH
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ((0, 7, 7, 0, [], -1, b"x" * 70), 0),
        ((3, -1, -1, -1, [], -1, b""), 0),
        ((0, 7, 7, 0, [], 2, b""), 0),
        (NOTHING, 70),
    ],
)
def test_records_errors_and_followers_are_read_each_time(
    said: tuple[Any, ...], code: int, read: Read
) -> None:
    repeated, content = (
        RepeatedRequest(fetch(), nothing_new),
        answer(fetch(), NOTHING, said, code=code),
    )
    for number in range(3):
        assert [len(parts) for _, parts in read(repeated, content, number).topics] == [2]


def test_another_connection_begins_anew() -> None:
    repeated, content = RepeatedRequest(fetch(), nothing_new), answer(fetch(), NOTHING, NOTHING)
    for _ in range(2):
        data = BytesIO(bytes(4) + content)
        data.seek(4)
        assert repeated.request.prepare(dict(VERSIONS)).RESPONSE_TYPE.decode(data).topics


def test_in_a_session_it_says_nothing_and_is_sent_again_under_the_next_epoch() -> None:
    assert FetchRequest.build is build_fetch
    request: Any = fetch()
    request.session, request.full = FetchSession(), False
    request.asks = frozenset((topic, *one) for topic, parts in request.topics for one in parts)
    repeated, nothing = (
        RepeatedRequest(request, nothing_new, lambda: 500),
        b"".join((bytes(6), pack(">i", 77), bytes(4))),
    )
    kind = type(repeated.request.prepare(VERSIONS))

    def answers(content: bytes) -> tuple[bool, Any]:
        """Whether it is sent again, and else what it is answered with."""
        asked, frame = repeated._built, memoryview(bytes(4) + content)
        if repeated.repeats(frame):
            return True, None
        told = repeated.decode_frame(frame)
        asked.session.answered(asked.asked, told.error_code, told.session_id)
        return False, told

    whole = answer(request, NOTHING, NOTHING)
    assert answers(whole[:6] + pack(">i", 77) + whole[10:])[1].session_id == 77
    asked = repeated.request.prepare(VERSIONS)
    assert (asked.session_id, asked.session_epoch, asked.topics) == (77, 1, [])
    assert answers(nothing) == (False, repeated._answer)
    repeated.request.prepare(VERSIONS)
    for number in (3, 4):
        assert answers(nothing)[0]
        header = asked.build_request_header(correlation_id=number, client_id="us").encode()
        message = repeated.message(number, "us")
        assert message[4 : 4 + len(header)] == header
        again = kind.decode(BytesIO(message[4 + len(header) :]))
        assert (again.session_id, again.session_epoch, again.topics) == (77, number, [])
    assert repeated.request.prepare(VERSIONS).session_epoch == 0, "the last one is not answered"


class Node:
    """What :class:`FetchClient` sends with: answers as told."""

    cluster = None

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, node_id: int, request: Any, **_: Any) -> Any:
        self.sent.append(request)
        data = BytesIO(bytes(4) + answer(request, NOTHING, NOTHING))
        data.seek(4)
        return request.prepare(VERSIONS).RESPONSE_TYPE.decode(data)


async def test_the_fetcher_sees_partitions_again_after_a_seek_and_where_it_asks_for_others() -> (
    None
):
    node, looks = Node(), list[int]()
    fetch_client = FetchClient(node, lambda request, said: looks.append(len(said.topics)), 0.5)
    assert not fetch_client.was_answered(1)
    seen = [len((await fetch_client.send(1, fetch())).topics) for _ in range(4)]
    assert seen == looks == [1, 1, 0, 0]
    assert len(set(map(id, node.sent[1:]))) == 1
    assert fetch_client.was_answered(1)
    assert not fetch_client.was_answered(2)
    fetch_client.forget()
    seen = [len((await fetch_client.send(1, fetch())).topics) for _ in range(3)]
    assert seen == [1, 1, 0]
    assert len((await fetch_client.send(1, fetch(8))).topics) == 1
    assert len((await fetch_client.send(1, fetch(7))).topics) == 1
    # Another node.
    assert len((await fetch_client.send(2, fetch(7))).topics) == 1


async def test_fetches_that_bring_records_leave_nothing_to_the_garbage_collector() -> None:
    node, seen = Node(), list[int]()
    fetch_client = FetchClient(
        node, lambda request, said: seen.append(request.topics[0][1][0][1]), 0.5
    )
    gc.collect()
    gc.disable()
    try:
        for offset in range(100):
            await fetch_client.send(1, fetch(offset))
        node.sent.clear()
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert seen == list(range(100))
