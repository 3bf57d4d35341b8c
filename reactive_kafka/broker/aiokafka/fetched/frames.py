"""Answers of brokers as they come off a connection: each is read into its own memory, and cut up
there.

aiokafka reads through asyncio's streams. Those copy what comes twice, into memory that is new each
time, pause and resume the transport, and wake a task for each piece; then the client copies it once
more. For a record of 100 bytes that is a seventh of what it costs.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import Future, IncompleteReadError
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from aiokafka.conn import AIOKafkaConnection, AIOKafkaProtocol, CloseReason
from aiokafka.protocol.fetch import FetchRequest

from reactive_kafka.broker.aiokafka.fetched.answers import VERSIONS, fetched
from reactive_kafka.broker.aiokafka.fetched.repeated import Repeated

SMALL_BYTES = 4 << 10
"""Most answers are no longer, those to fetches too where few records come at a time: they are read
in one piece. What is longer gets memory of its own, and waits for another turn of the loop. Each
connection has so much, and each channel four connections: of 100 channels 16 KB would be 6 MB."""

AT_ONCE_BYTES = 8 << 20
"""Memory for an answer is made as it comes, beyond this: a length may be anything where no Kafka
answers.
"""

_LENGTH = Struct(">i")


class Frames:
    """Cuts a stream of bytes into frames, each of which begins with its length. No I/O.

    Bytes are written to :meth:`room`, and told of by :meth:`came`.
    """

    def __init__(self) -> None:
        self.whole: deque[bytes | bytearray] = deque()
        # What comes is no frame; nothing more is cut.
        self.error: ValueError | None = None
        self._small = bytearray(SMALL_BYTES)
        # Bytes of what is being filled, which is ``_small`` or ``_large``
        self._filled = 0
        self._large: bytearray | None = None
        # Of the frame that ``_large`` is for.
        self._length = 0

    @property
    def begun(self) -> int:
        """How many bytes have come of a frame that is not whole."""
        return self._filled

    def room(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        large = self._large
        if large is None:
            return memoryview(self._small)[self._filled :]
        if self._filled == len(large):
            large.extend(bytes(min(self._filled, self._length - self._filled)))
        return memoryview(large)[self._filled :]

    def add(self, data: bytes) -> None:
        """Copy bytes that have come by themselves."""
        rest = memoryview(data)
        while rest:
            # released: memory that somebody looks into cannot grow.
            with self.room() as room:
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
                rest = rest[count:]
            self.came(count)

    def came(self, count: int) -> None:
        """The first *count* bytes of the room were written."""
        self._filled += count
        if self._large is None:
            self._cut()
        elif self._filled == self._length:
            self.whole.append(self._large)
            self._large = None
            self._filled = 0

    def _cut(self) -> None:
        at = 0
        small = self._small
        while self._filled - at >= _LENGTH.size and self.error is None:
            (length,) = _LENGTH.unpack_from(small, at)
            if length < 0:
                self.error = ValueError(f"an answer of {length} bytes")
            elif at + _LENGTH.size + length <= self._filled:
                at += _LENGTH.size + length
                self.whole.append(bytes(memoryview(small)[at - length : at]))
            elif length + _LENGTH.size <= len(small):
                break
            else:
                begun = memoryview(small)[at + _LENGTH.size : self._filled]
                self._large = bytearray(min(length, AT_ONCE_BYTES))
                self._length = length
                at = self._filled
                self._large[: len(begun)] = begun
                self._filled = len(begun)
                return
        rest = self._filled - at if self.error is None else 0
        small[:rest] = small[at : at + rest]
        self._filled = rest


# Aiokafka is not typed.
class FrameProtocol(AIOKafkaProtocol, asyncio.BufferedProtocol):  # type: ignore[misc]
    """Has the transport read into the frames themselves."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._frames = Frames()
        self._connection: Callable[[], AIOKafkaConnection | None] = lambda: None
        # Of the task that reads; it waits for nothing but the end.
        self._ended: Future[None] | None = None
        self._over: BaseException | None = None
        # The memory of an answer is let go of when the next one is there. Before that malloc gives
        # it back to the system, and each large answer pays for new pages: a tenth of a microsecond
        # a record.
        self._last: bytes | bytearray = b""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.came(nbytes)
        self._look()

    def data_received(self, data: bytes) -> None:
        # uvloop hands out buffers only to protocols that cannot take this.
        self._frames.add(data)
        self._look()

    def eof_received(self) -> bool | None:
        self._ends(None)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ends(exc)
        super().connection_lost(exc)

    @property
    def begun(self) -> int:
        """How many bytes have come of the answer that is on its way."""
        return self._frames.begun

    async def answers(self, connection: Callable[[], AIOKafkaConnection | None]) -> None:
        """Give each answer to whoever waits for it, from now on as it comes; returns when the
        connection is gone.

        Raises:
            IncompleteReadError: The connection is closed, or the error that has closed it.
            ValueError: What comes is no Kafka.
        """
        self._connection = connection
        self._ended = asyncio.get_running_loop().create_future()
        self._look()
        await self._ended

    def _ends(self, error: Exception | None) -> None:
        self._over = self._over or error or IncompleteReadError(b"", _LENGTH.size)
        self._look()

    def _look(self) -> None:
        # At once, and not in a task that would have to be woken for each answer.
        frames = self._frames
        ended = self._ended
        if ended is None or ended.done():
            return
        found = self._connection()
        try:
            while frames.whole and found is not None and found._reader is not None:
                self._last = frames.whole.popleft()
                answer_from(found, self._last)
            if (why := frames.error or self._over) is not None:
                raise why
        except Exception as error:
            # Else the connection was closed meanwhile, which has told all that wait.
            if not ended.done():
                ended.set_exception(error)
        else:
            if found is None:
                ended.set_result(None)


async def read_frames(connection: Callable[[], AIOKafkaConnection | None]) -> None:
    """Takes the place of the task that reads a connection's answers; *connection* is a weak
    reference, as there.
    """
    if (found := connection()) is None:
        return
    protocol = found._protocol
    del found
    await protocol.answers(connection)


def answer_from(connection: AIOKafkaConnection, frame: bytes | bytearray) -> None:
    """Give the answer to whoever waits for it."""
    number, request, answer = connection._requests[0]
    kind = None if number is None else request.RESPONSE_TYPE
    is_awaited = number is not None and not answer.done() and len(frame) >= _LENGTH.size
    is_awaited = is_awaited and _LENGTH.unpack_from(frame)[0] == number
    if is_awaited and isinstance(kind, Repeated) and kind.stands(memoryview(frame)):
        _send_again(connection, kind)
        return
    if not (
        is_awaited and request.API_KEY == FetchRequest.API_KEY and request.API_VERSION in VERSIONS
    ):
        connection._handle_frame(bytes(frame))
        return
    content = memoryview(frame)
    told = kind.fetched(content) if isinstance(kind, Repeated) else fetched(kind, content)
    if (session := getattr(request, "session", None)) is not None:
        session.answered(request.asked, told.error_code, told.session_id)
    answer.set_result(told)
    connection._last_action = time.monotonic()
    connection._requests.popleft()


def _send_again(connection: AIOKafkaConnection, repeated: Repeated) -> None:
    """Send the request that was answered once more, for whoever waits for that answer, and has
    missed nothing.
    """
    _, request, answer = connection._requests.popleft()
    connection._last_action = time.monotonic()
    number = connection._next_correlation_id()
    connection._requests.append((number, request, answer))
    try:
        connection._writer.write(repeated.message(number, connection._client_id))
    except (OSError, RuntimeError):
        # Uvloop raises the latter for a socket that is closed.
        connection.close(reason=CloseReason.CONNECTION_BROKEN)
    else:
        repeated.sent_again()
