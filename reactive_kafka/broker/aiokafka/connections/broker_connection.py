"""One connection to a broker. It sends requests, and gives each answer to its caller."""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import Future, Transport
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from functools import lru_cache
from io import BytesIO
from socket import socket as Socket
from ssl import SSLContext
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.broker.aiokafka.connections.frame_protocol import Frame, FrameProtocol
from reactive_kafka.broker.aiokafka.connections.frames import LENGTH_BYTES
from reactive_kafka.broker.aiokafka.connections.login import log_in
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.forked_clients import track
from reactive_kafka.broker.consumer.fetching.fetch_session import FetchSession
from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch, PreparedFetch
from reactive_kafka.broker.wire.definitions import API_VERSIONS
from reactive_kafka.broker.wire.requests import Answer, PreparedRequest, Request

logger = logging.getLogger("reactive_kafka.connections")

_LENGTH = Struct(">i")
LAST_NUMBER = 2**31 - 1
FIRST_VERSIONS = {API_VERSIONS.key: (0, 0)}
"""What every broker has. It says itself which other requests it has."""


@lru_cache(maxsize=64)
def version_table(rows: tuple[tuple[int, int, int], ...]) -> Mapping[int, tuple[int, int]]:
    """Return API key -> lowest and highest version, from rows of these three.

    Connections whose brokers have the same versions share a table, which takes 6 KB. Each channel
    has two connections at least.
    """
    return MappingProxyType({key: (lowest, highest) for key, lowest, highest in rows})


class ClosedBecause(Enum):
    """Why a connection was closed."""

    BROKEN = auto()
    TIMED_OUT = auto()
    OUT_OF_STEP = auto()
    IDLE = auto()
    NOT_NEEDED = auto()


class SentRequest(NamedTuple):
    """A request without an answer, and the future that gets the answer."""

    number: int
    request: Any
    answer: Future[Any]


class BrokerConnection:
    """A connection to one broker.

    Args:
        host: Of the broker.
        port: Of the broker.
        settings: How to connect and log in.
        on_close: Called once when a connection that was open is closed.

    Attributes:
        answer_timeout_s: How long the answers to the next requests are waited for.
        fetch_session: The session of the fetches that this connection sends.
        unanswered: The requests that the broker has not answered, in their order. It answers them
            one after the other. They are few, so this is no deque.
    """

    def __init__(
        self,
        host: str,
        port: int,
        settings: ClientSettings,
        on_close: Callable[[ClosedBecause], None] = lambda reason: None,
    ) -> None:
        self.host = host
        self.port = port
        self.answer_timeout_s = settings.request_timeout_s
        self.fetch_session = FetchSession()
        self.unanswered: list[SentRequest] = []
        self._settings = settings
        self._on_close = on_close
        # None: it was never open.
        self._protocol: FrameProtocol | None = None
        # None: it is not open.
        self._transport: Transport | None = None
        # For a connection that was closed: closes its socket although data waits to be sent.
        self._abort: Callable[[], None] = lambda: None
        self._versions: Mapping[int, tuple[int, int]] = FIRST_VERSIONS
        self._number = 0
        # The number of the last request to which no answer is expected.
        self._last_without_answer = 0
        self._last_action = time.monotonic()
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def socket(self) -> Socket | None:
        """The socket; None: the connection is not open."""
        if self._transport is None:
            return None
        return cast("Socket | None", self._transport.get_extra_info("socket"))

    @property
    def last_number(self) -> int:
        """The number of the request that was sent last. Numbers rise."""
        return self._number

    @property
    def progress(self) -> tuple[int, int]:
        """Values that change with each answer, and with each byte of one."""
        first = self.unanswered[0].number if self.unanswered else 0
        return first, 0 if self._protocol is None else self._protocol.partial_bytes

    async def connect(self, ssl_context: SSLContext | None, timeout_s: float) -> None:
        """Open the connection, ask which versions the broker has, and log in.

        Cancellation: it is closed, as after each error.

        Args:
            ssl_context: None: without TLS.
            timeout_s: How long to wait for the network, and then for each answer.

        Raises:
            OSError: The network refuses.
            aiokafka.errors.KafkaError: The broker refuses, or does not answer.
        """
        track(self)
        loop = asyncio.get_running_loop()
        protocol = FrameProtocol()
        async with asyncio.timeout(timeout_s):
            transport, _ = await loop.create_connection(
                lambda: protocol, self.host, self.port, ssl=ssl_context
            )
        self._protocol = protocol
        self._transport = transport
        self.answer_timeout_s = timeout_s
        try:
            asking = self.send(Request(API_VERSIONS, {}))
            protocol.deliver_to(self._receive, self._ended)
            answer: Answer = await asking
            if answer.values["error_code"]:
                raise class_for(answer.values["error_code"])()
            self._versions = version_table(
                tuple(
                    (row["api_key"], row["min_version"], row["max_version"])
                    for row in answer.values["api_keys"]
                )
            )
            if self._settings.uses_sasl:
                await log_in(self, self._settings)
        except BaseException:
            # A cancellation must close the connection, too: nobody else has it yet.
            self.close()
            raise
        self.answer_timeout_s = self._settings.request_timeout_s
        self._look_for_idleness()

    def send(self, request: Any, *, expects_answer: bool = True) -> Awaitable[Any]:
        """Send a request, and return an awaitable for its answer.

        Cancellation: the request was sent, and its answer is dropped.

        Args:
            request: Has a method ``prepare``, as :class:`Request` has.
            expects_answer: False: the broker sends none. The awaitable waits for room in the
                transport.

        Raises:
            aiokafka.errors.KafkaConnectionError: The connection is not open. Or it was closed; then
                the awaitable raises.
            TimeoutError: No answer has come in time. The awaitable raises.
            NoCommonVersionError: The broker does not have the request. Nothing was sent.
        """
        if self._transport is None or self._protocol is None:
            raise kafka_errors.KafkaConnectionError(f"no connection to {self.host}:{self.port}")
        if isinstance(request, NodeFetch):
            request.session = self.fetch_session
        prepared = request.prepare(self._versions)
        number = self._next_number()
        header = prepared.build_request_header(
            correlation_id=number, client_id=self._settings.client_id
        )
        message = header.encode() + prepared.encode()
        try:
            self._write(_LENGTH.pack(len(message)) + message)
        except kafka_errors.KafkaConnectionError:
            self.close(ClosedBecause.BROKEN)
            raise
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "to %s:%d, request %d: %s", self.host, self.port, number, request_name(prepared)
            )
        if not expects_answer:
            # No answer will show that the connection is used.
            self._last_action = time.monotonic()
            self._last_without_answer = number
            return self._drained(self._protocol)
        answer: Future[Any] = asyncio.get_running_loop().create_future()
        self.unanswered.append(SentRequest(number, prepared, answer))
        return _within(self.answer_timeout_s, answer)

    def close(
        self,
        reason: ClosedBecause = ClosedBecause.NOT_NEEDED,
        error: BaseException | None = None,
    ) -> None:
        """Close the connection, and fail the requests without an answer, because of *error*.

        If it is not needed any more, what was written is still sent. See :meth:`wait_closed`.
        """
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._transport is None or self._protocol is None:
            return
        self._protocol.stop_delivering()
        if reason in (ClosedBecause.IDLE, ClosedBecause.NOT_NEEDED):
            self._transport.close()
        else:
            # To a node that reads nothing, what was written would wait until TCP gives up.
            self._transport.abort()
        self._abort = self._transport.abort
        self._transport = None
        unanswered = self.unanswered
        self.unanswered = []
        for sent in unanswered:
            if not sent.answer.done():
                closed = kafka_errors.KafkaConnectionError(
                    f"Connection at {self.host}:{self.port} closed"
                )
                closed.__cause__ = error
                sent.answer.set_exception(closed)
        self._on_close(reason)

    async def wait_closed(self) -> None:
        """Wait until all that was written is sent, and the socket of a closed connection is closed.

        Cancellation: the socket is closed without that.
        """
        if self._protocol is None:
            return
        try:
            await asyncio.shield(self._protocol.closed)
        except asyncio.CancelledError:
            self._abort()
            raise

    def _next_number(self) -> int:
        self._number = 1 if self._number == LAST_NUMBER else self._number + 1
        return self._number

    def _write(self, data: bytes) -> None:
        assert self._transport is not None  # noqa: S101
        try:
            self._transport.write(data)
        except (OSError, RuntimeError) as error:
            # uvloop raises RuntimeError for a socket that the broker has closed.
            raise kafka_errors.KafkaConnectionError(
                f"Connection at {self.host}:{self.port} broken: {error}"
            ) from error

    async def _drained(self, protocol: FrameProtocol) -> None:
        await protocol.drained()
        if self._transport is None:
            raise kafka_errors.KafkaConnectionError(f"Connection at {self.host}:{self.port} closed")

    def _receive(self, frame: Frame) -> None:
        """Give an answer to the request that waits for it.

        Raises:
            ValueError: No request waits, or the answer cannot be read.
        """
        self._last_action = time.monotonic()
        number_in_answer = _LENGTH.unpack_from(frame)[0] if len(frame) >= LENGTH_BYTES else 0
        is_awaited = bool(self.unanswered) and self.unanswered[0].number == number_in_answer
        if not is_awaited and 0 < number_in_answer <= self._last_without_answer:
            # Kafka does not answer these requests, but the embedded broker does.
            return
        if not self.unanswered:
            raise ValueError(
                f"{self.host}:{self.port} has sent an answer that no request waits for"
            )
        number, request, answer = self.unanswered[0]
        if not is_awaited:
            self._receive_another(number_in_answer, number, answer)
            return
        # The answer is done already if the caller has given up.
        if isinstance(request, PreparedFetch) and not answer.done():
            content = memoryview(frame)
            if request.is_repeated(content):
                self._send_again(request)
                return
            answer.set_result(request.read_answer(content))
        elif not answer.done():
            content_buffer = BytesIO(frame)
            request.parse_response_header(content_buffer)
            answer.set_result(request.RESPONSE_TYPE.decode(content_buffer))
        self.unanswered.pop(0)

    def _receive_another(self, number_in_answer: int, number: int, answer: Future[Any]) -> None:
        """Close the connection: this is the answer to another request than the first one."""
        error = kafka_errors.CorrelationIdError(
            f"{self.host}:{self.port} has answered request {number_in_answer} instead of {number}"
        )
        if not answer.done():
            answer.set_exception(error)
        self.close(ClosedBecause.OUT_OF_STEP, error)

    def _send_again(self, fetch: PreparedFetch) -> None:
        """Send an answered fetch again on behalf of its caller, who keeps waiting."""
        _, _, answer = self.unanswered.pop(0)
        number = self._next_number()
        self.unanswered.append(SentRequest(number, fetch, answer))
        try:
            self._write(fetch.next_message(number, self._settings.client_id))
        except kafka_errors.KafkaConnectionError as error:
            self.close(ClosedBecause.BROKEN, error)
        else:
            fetch.sent_again()

    def _ended(self, error: Exception) -> None:
        """Close the connection: nothing more can be read from it."""
        if not isinstance(error, OSError | EOFError):
            # The server is not a Kafka broker, or its answer cannot be read.
            logger.warning("%s:%d: %r", self.host, self.port, error)
        self.close(ClosedBecause.BROKEN, error)

    def _look_for_idleness(self) -> None:
        """Close the connection if nothing has been asked for a long time.

        While a request waits for its answer it is not idle.
        """
        if self._settings.connections_max_idle_ms is None or not self.is_open:
            return
        longest_s = self._settings.connections_max_idle_ms / 1000
        idle_s = 0.0
        if not self.unanswered:
            idle_s = time.monotonic() - self._last_action
        if idle_s >= longest_s:
            self.close(ClosedBecause.IDLE)
            return
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(longest_s - idle_s, self._look_for_idleness)


async def _within(timeout_s: float, answer: Future[Any]) -> Any:
    async with asyncio.timeout(timeout_s):
        return await answer


def request_name(prepared: Any) -> str:
    """Return the name and the version of a request, for the log.

    Those of aiokafka's producer print all their values, which may be secret. Ours print none.
    """
    is_ours = isinstance(prepared, PreparedRequest | PreparedFetch)
    return repr(prepared) if is_ours else type(prepared).__name__
