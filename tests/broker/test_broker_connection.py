"""A connection gives each answer to whoever waits for it, and says why there is none."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
import threading
import warnings
from asyncio import IncompleteReadError
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from struct import pack
from typing import Any

import aiokafka.errors
import pytest
import uvloop

from reactive_kafka.broker.aiokafka.connections import broker_connection
from reactive_kafka.broker.aiokafka.connections.broker_connection import (
    LAST_NUMBER,
    BrokerConnection,
    ClosedBecause,
    version_table,
)
from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.connections.frame_protocol import FrameProtocol
from reactive_kafka.broker.aiokafka.connections.frames import AT_ONCE_BYTES
from reactive_kafka.broker.wire import codec
from reactive_kafka.broker.wire.definitions import API_VERSIONS
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.broker.wire.requests import Request
from reactive_kafka.testing import FakeClock
from tests.broker.security.certificates import make_certificates
from tests.harness.open_connections import take_left_open

PATIENCE_S = 5.0
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


KNOWS_VERSIONS = codec.encode(
    API_VERSIONS.response,
    0,
    {
        "error_code": 0,
        "api_keys": [{"api_key": API_VERSIONS.key, "min_version": 0, "max_version": 0}],
    },
)


def test_connections_to_brokers_of_the_same_versions_share_one_table() -> None:
    rows = ((0, 3, 13), (1, 4, 18))
    assert version_table(rows) == {0: (3, 13), 1: (4, 18)}
    assert version_table((rows[0], rows[1])) is version_table(rows)
    assert version_table(rows[:1]) == {0: (3, 13)}


def frame(number: int, body: bytes) -> bytes:
    return pack(">ii", 4 + len(body), number) + body


class Node:
    """Answers the question for versions, and then what a test says.

    Args:
        then: Called with the number of each further request. Returns the bytes that are written;
            None: none.
        closes: Closes the connection after the first further answer.
        server_tls: Of the node.
        tls: Of the connection to it.

    Attributes:
        closed: Why the connection was closed, each time.
    """

    def __init__(
        self,
        then: Callable[[int], bytes | None],
        *,
        closes: bool = False,
        server_tls: ssl.SSLContext | None = None,
        tls: ssl.SSLContext | None = None,
        **settings: Any,
    ) -> None:
        self._server_tls = server_tls
        self._tls = tls
        self._then = then
        self._closes = closes
        self._settings = ClientSettings(**settings)
        self.closed: list[ClosedBecause] = []
        self.numbers: list[int] = []

    async def __aenter__(self) -> Node:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", ssl=self._server_tls)
        host, port = self._server.sockets[0].getsockname()
        self.connection = BrokerConnection(host, port, self._settings, self.closed.append)
        await self.connection.connect(self._tls, PATIENCE_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.connection.close()
        await self.connection.wait_closed()
        self._server.close()

    async def ask(self) -> Any:
        answer = await self.connection.send(Request(API_VERSIONS, {}))
        return answer.values

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(frame(await self._request(reader), KNOWS_VERSIONS))
            while True:
                written = self._then(await self._request(reader))
                if written is not None:
                    writer.write(written)
                if self._closes:
                    break
        except (IncompleteReadError, ConnectionResetError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> int:
        content = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        number = int.from_bytes(content[4:8])
        self.numbers.append(number)
        return number


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (b"\xff\xff\xff\xfb", ValueError),
        (b"", IncompleteReadError),
        (b"\0\0\1\0half", IncompleteReadError),
    ],
)
async def test_who_waits_for_an_answer_hears_why_there_is_none(
    then: bytes, reason: type[Exception]
) -> None:
    async with Node(lambda number: then, closes=True) as node:
        with pytest.raises(aiokafka.errors.KafkaConnectionError) as raised:
            await node.ask()
        assert isinstance(raised.value.__cause__, reason)
        assert not node.connection.is_open
        assert node.closed == [ClosedBecause.BROKEN]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("length", [0, 12_000, AT_ONCE_BYTES + 1])
def test_answers_of_any_length_come_over_either_loop(
    loop: Callable[[], asyncio.AbstractEventLoop], length: int
) -> None:
    body = b"." * length

    async def ask() -> bytes:
        async with Node(lambda number: frame(number, body)) as node:
            answer = await node.connection.send(Request(API_VERSIONS, {}))
            content: bytes = answer.content
            return content

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(ask()) == body


@pytest.mark.parametrize("loop", LOOPS)
def test_sending_over_a_connection_that_the_broker_has_closed_is_a_connection_error(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Row D12 of the faults. uvloop itself raises RuntimeError."""

    async def send() -> list[ClosedBecause]:
        async with Node(lambda number: None) as node:
            transport = node.connection._transport
            assert transport is not None
            transport.abort()
            with pytest.raises(aiokafka.errors.KafkaConnectionError):
                await node.ask()
            return node.closed

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(send()) == [ClosedBecause.BROKEN]


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.mark.parametrize("loop", LOOPS)
def test_answers_of_any_length_come_over_tls(
    loop: Callable[[], asyncio.AbstractEventLoop], issued: Path
) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(issued / "server.crt", issued / "server.key")
    ours = ssl.create_default_context(cafile=issued / "ours.crt")
    body = b"." * (AT_ONCE_BYTES + 1)

    async def ask() -> bytes:
        async with Node(lambda number: frame(number, body), server_tls=theirs, tls=ours) as node:
            answer = await node.connection.send(Request(API_VERSIONS, {}))
            content: bytes = answer.content
            return content

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(ask()) == body


async def test_an_answer_to_another_request_closes_the_connection() -> None:
    async with Node(lambda number: frame(number + 1, KNOWS_VERSIONS)) as node:
        with pytest.raises(aiokafka.errors.CorrelationIdError, match="request 3 instead of 2"):
            await node.ask()
        assert node.closed == [ClosedBecause.OUT_OF_STEP]


async def test_an_answer_that_was_not_asked_for_closes_the_connection() -> None:
    async with Node(lambda number: 2 * frame(number, KNOWS_VERSIONS)) as node:
        await node.ask()
        assert node.closed == [ClosedBecause.BROKEN]


async def test_an_answer_to_a_request_that_wants_none_is_dropped() -> None:
    async with Node(lambda number: frame(number, KNOWS_VERSIONS)) as node:
        await node.connection.send(Request(API_VERSIONS, {}), expects_answer=False)
        await node.ask()
        await node.connection.send(Request(API_VERSIONS, {}), expects_answer=False)
        await node.ask()
        assert node.closed == []


async def test_an_answer_whose_caller_has_given_up_is_dropped_and_the_next_one_arrives() -> None:
    late: list[bytes] = []

    def then(number: int) -> bytes | None:
        late.append(frame(number, KNOWS_VERSIONS))
        return b"".join(late) if len(late) == 2 else None

    async with Node(then) as node:
        node.connection.answer_timeout_s = 0.01
        with pytest.raises(TimeoutError):
            await node.ask()
        assert [sent.number for sent in node.connection.unanswered] == [2]
        node.connection.answer_timeout_s = PATIENCE_S
        await node.ask()
        assert not node.connection.unanswered


async def test_closing_fails_the_requests_without_an_answer() -> None:
    async with Node(lambda number: None) as node:
        asking = asyncio.ensure_future(node.ask())
        await asyncio.sleep(0)
        node.connection.close(ClosedBecause.TIMED_OUT)
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            await asking
        node.connection.close()
        assert node.closed == [ClosedBecause.TIMED_OUT]
        with pytest.raises(aiokafka.errors.KafkaConnectionError, match="no connection to"):
            await node.ask()


class DeafNode(Node):
    """Reads nothing after the question for versions, so that what is sent to it does not go out."""

    def __init__(self) -> None:
        super().__init__(lambda number: None)
        self._done = asyncio.Event()

    async def __aexit__(self, *_: object) -> None:
        self._done.set()
        await super().__aexit__()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(await self._request(reader), KNOWS_VERSIONS))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await self._done.wait()
        writer.transport.abort()

    def fill(self) -> None:
        """Write more than the sockets take."""
        self.connection._write(bytes(32_000_000))


async def test_a_connection_to_a_node_that_reads_nothing_is_closed_at_once() -> None:
    """Its socket and what waits to be sent would be kept until TCP gives up, after minutes."""
    async with DeafNode() as node:
        node.fill()
        node.connection.close(ClosedBecause.TIMED_OUT)
        async with asyncio.timeout(PATIENCE_S):
            await node.connection.wait_closed()


async def test_who_does_not_wait_any_more_for_what_was_written_closes_the_socket() -> None:
    async with DeafNode() as node:
        node.fill()
        socket = node.connection.socket
        assert socket is not None
        node.connection.close()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await node.connection.wait_closed()
        async with asyncio.timeout(PATIENCE_S):
            await node.connection.wait_closed()
        assert socket.fileno() == -1


async def test_a_request_that_the_broker_does_not_have_is_not_sent() -> None:
    async with Node(lambda number: frame(number, KNOWS_VERSIONS)) as node:
        with pytest.raises(NoCommonVersionError):
            node.connection.send(Request(API_VERSIONS, {}, "1+"))
        await node.ask()
        assert node.numbers == [1, 2]


async def test_a_connection_that_rests_for_long_is_closed() -> None:
    async with Node(lambda number: None, connections_max_idle_ms=10) as node:
        async with asyncio.timeout(PATIENCE_S):
            await node.connection.wait_closed()
        assert node.closed == [ClosedBecause.IDLE]


async def test_a_connection_that_waits_for_an_answer_does_not_rest() -> None:
    async with Node(lambda number: None, connections_max_idle_ms=10) as node:
        node.connection.answer_timeout_s = 0.1
        with pytest.raises(TimeoutError):
            await node.ask()
        assert node.connection.is_open


async def test_a_connection_whose_requests_want_no_answer_does_not_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as that of a producer with ``acks = 0``."""
    clock = FakeClock()
    monkeypatch.setattr(broker_connection, "time", clock)
    async with Node(lambda number: None, connections_max_idle_ms=60_000) as node:
        connection = node.connection
        clock.advance(59.0)
        await connection.send(Request(API_VERSIONS, {}), expects_answer=False)
        clock.advance(2.0)
        connection._look_for_idleness()
        assert connection.is_open
        clock.advance(59.0)
        connection._look_for_idleness()
        assert node.closed == [ClosedBecause.IDLE]


async def test_numbers_of_requests_start_again_after_the_last_one() -> None:
    async with Node(lambda number: frame(number, KNOWS_VERSIONS)) as node:
        node.connection._number = LAST_NUMBER
        await node.ask()
        assert node.numbers == [1, 1]


async def test_a_request_without_an_answer_waits_for_room_in_the_transport() -> None:
    async with Node(lambda number: None) as node:
        protocol = node.connection._protocol
        assert protocol is not None
        protocol.pause_writing()
        sent = asyncio.ensure_future(
            node.connection.send(Request(API_VERSIONS, {}), expects_answer=False)
        )
        done, _ = await asyncio.wait([sent], timeout=0.05)
        assert not done
        protocol.resume_writing()
        await sent
        assert not node.connection.unanswered


async def test_the_memory_of_an_answer_is_let_go_of_when_the_next_one_is_there() -> None:
    """Not before: its pages would go back to the system, and the next large answer would pay for
    new ones.
    """
    answer = b"." * 12_000
    async with Node(lambda number: frame(number, answer)) as node:
        protocol = node.connection._protocol
        assert isinstance(protocol, FrameProtocol)
        before = protocol.last_frame
        await node.connection.send(Request(API_VERSIONS, {}))
        assert protocol.last_frame != before
        assert protocol.last_frame[4:] == answer


async def test_the_log_has_names_of_requests_and_none_of_their_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with Node(lambda number: frame(number, KNOWS_VERSIONS), client_id="me") as node:
            await node.ask()
    assert "request 2: ApiVersionsRequest v0 (0 bytes)" in caplog.text


def test_a_connection_that_nobody_closes_before_its_loop_ends_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as accepted:

        def answer() -> None:
            peer = accepted.enter_context(server.accept()[0])
            content = peer.recv(1000)
            peer.sendall(frame(int.from_bytes(content[8:12]), KNOWS_VERSIONS))

        answering = threading.Thread(target=answer)
        answering.start()
        connection = BrokerConnection(*server.getsockname(), ClientSettings())
        asyncio.run(connection.connect(None, PATIENCE_S))
        answering.join()
        address = f"{connection.host}:{connection.port}"
        assert take_left_open() == [address]
        assert take_left_open() == []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            # Python closes its socket.
            del connection
            gc.collect()
