"""Reads the answers of brokers off a connection, each into a buffer of its own.

aiokafka reads through asyncio's streams. These copy the bytes twice into newly allocated memory,
pause and resume the transport, and wake a task for each piece; then the client copies them once
more. For a record of 100 bytes that is a seventh of its cost.
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

from reactive_kafka.broker.consumer.fetching.node_fetch import PreparedFetch

SMALL_BYTES = 4 << 10
"""Size of the buffer that each connection keeps. Most answers fit into it, also those to fetches if
few records come at a time, and are read in one piece. A longer answer gets its own buffer and needs
another turn of the loop. A channel has four connections: 16 KB each would be 6 MB for 100 channels.
"""

AT_ONCE_BYTES = 8 << 20
"""A buffer for a longer answer starts at this size and grows as bytes arrive: what is no Kafka may
send any length.
"""

_LENGTH = Struct(">i")


class Frames:
    """Cuts a stream of bytes into frames, each of which begins with its length. No I/O.

    The transport writes bytes into :meth:`room`, then :meth:`advance` is called.
    """

    def __init__(self) -> None:
        self.whole: deque[bytes | bytearray] = deque()
        # Set if the stream cannot be Kafka's. Then nothing more is cut.
        self.error: ValueError | None = None
        self._small = bytearray(SMALL_BYTES)
        # How much of ``_small``, or of ``_large`` if there is one, is filled.
        self._filled_bytes = 0
        self._large: bytearray | None = None
        # The length of the frame that ``_large`` is for.
        self._large_length = 0

    @property
    def partial_bytes(self) -> int:
        """How many bytes of an incomplete frame have come."""
        return self._filled_bytes

    def room(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        large = self._large
        if large is None:
            return memoryview(self._small)[self._filled_bytes :]
        if self._filled_bytes == len(large):
            large.extend(bytes(min(self._filled_bytes, self._large_length - self._filled_bytes)))
        return memoryview(large)[self._filled_bytes :]

    def add(self, data: bytes) -> None:
        """Copy bytes that arrived in another buffer."""
        rest = memoryview(data)
        while rest:
            # Released at once, because memory with an open view cannot grow.
            with self.room() as room:
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
                rest = rest[count:]
            self.advance(count)

    def advance(self, count: int) -> None:
        """Take note that *count* bytes were written into the room."""
        self._filled_bytes += count
        if self._large is None:
            self._cut()
        elif self._filled_bytes == self._large_length:
            self.whole.append(self._large)
            self._large = None
            self._filled_bytes = 0

    def _cut(self) -> None:
        """Move complete frames out of the small buffer, and start a large one for a long frame."""
        pos = 0
        small = self._small
        while self._filled_bytes - pos >= _LENGTH.size and self.error is None:
            (length,) = _LENGTH.unpack_from(small, pos)
            if length < 0:
                self.error = ValueError(f"an answer of {length} bytes")
            elif pos + _LENGTH.size + length <= self._filled_bytes:
                pos += _LENGTH.size + length
                self.whole.append(bytes(memoryview(small)[pos - length : pos]))
            elif length + _LENGTH.size <= len(small):
                break
            else:
                first_part = memoryview(small)[pos + _LENGTH.size : self._filled_bytes]
                self._large = bytearray(min(length, AT_ONCE_BYTES))
                self._large_length = length
                pos = self._filled_bytes
                self._large[: len(first_part)] = first_part
                self._filled_bytes = len(first_part)
                return
        rest = self._filled_bytes - pos if self.error is None else 0
        small[:rest] = small[pos : pos + rest]
        self._filled_bytes = rest


# aiokafka is untyped.
class FrameProtocol(AIOKafkaProtocol, asyncio.BufferedProtocol):  # type: ignore[misc]
    """Has the transport read directly into the frames."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._frames = Frames()
        self._connection: Callable[[], AIOKafkaConnection | None] = lambda: None
        # Belongs to the task that aiokafka starts for reading. It waits for nothing but the end.
        self._ended: Future[None] | None = None
        self._end_error: BaseException | None = None
        # Keeps the buffer of an answer until the next one is there. Freed earlier, malloc would
        # return it to the system, and each large answer would pay for new pages: a tenth of a
        # microsecond per record.
        self._last_frame: bytes | bytearray = b""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.advance(nbytes)
        self._deliver()

    def data_received(self, data: bytes) -> None:
        # uvloop uses the buffers only for protocols that do not have this method.
        self._frames.add(data)
        self._deliver()

    def eof_received(self) -> bool | None:
        self._end(None)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        super().connection_lost(exc)

    @property
    def partial_bytes(self) -> int:
        """How many bytes have come of an incomplete answer."""
        return self._frames.partial_bytes

    async def deliver_answers(
        self, weak_connection: Callable[[], AIOKafkaConnection | None]
    ) -> None:
        """Deliver each answer to its request as it comes, until the connection is gone.

        Raises:
            IncompleteReadError: The connection was closed. Or the error that closed it.
            ValueError: The other side does not speak Kafka's protocol.
        """
        self._connection = weak_connection
        self._ended = asyncio.get_running_loop().create_future()
        self._deliver()
        await self._ended

    def _end(self, error: Exception | None) -> None:
        self._end_error = self._end_error or error or IncompleteReadError(b"", _LENGTH.size)
        self._deliver()

    def _deliver(self) -> None:
        # Runs in the transport's callback. A task would have to be woken for each answer.
        frames = self._frames
        ended = self._ended
        if ended is None or ended.done():
            return
        connection = self._connection()
        try:
            while frames.whole and connection is not None and connection._reader is not None:
                self._last_frame = frames.whole.popleft()
                handle_answer(connection, self._last_frame)
            if (why := frames.error or self._end_error) is not None:
                raise why
        except Exception as error:
            # A connection that was closed meanwhile has told its waiting requests already.
            if not ended.done():
                ended.set_exception(error)
        else:
            if connection is None:
                ended.set_result(None)


async def read_frames(connection: Callable[[], AIOKafkaConnection | None]) -> None:
    """Read a connection until its end; replaces the connection's own reading task.

    *connection* is a weak reference, as in aiokafka.
    """
    if (found := connection()) is None:
        return
    protocol = found._protocol
    del found
    await protocol.deliver_answers(connection)


def handle_answer(connection: AIOKafkaConnection, frame: bytes | bytearray) -> None:
    """Decode the next answer of a connection and give it to the request that waits for it."""
    number, request, answer = connection._requests[0]
    is_awaited = number is not None and not answer.done() and len(frame) >= _LENGTH.size
    is_awaited = is_awaited and _LENGTH.unpack_from(frame)[0] == number
    if not (is_awaited and isinstance(request, PreparedFetch)):
        connection._handle_frame(bytes(frame))
        return
    content = memoryview(frame)
    if request.is_repeated(content):
        _send_again(connection, request)
        return
    answer.set_result(request.read_answer(content))
    connection._last_action = time.monotonic()
    connection._requests.popleft()


def _send_again(connection: AIOKafkaConnection, fetch: PreparedFetch) -> None:
    """Send an answered fetch again on behalf of its caller, who keeps waiting."""
    _, _, answer = connection._requests.popleft()
    connection._last_action = time.monotonic()
    number = connection._next_correlation_id()
    connection._requests.append((number, fetch, answer))
    try:
        connection._writer.write(fetch.next_message(number, connection._client_id))
    except (OSError, RuntimeError):
        # uvloop raises RuntimeError for a closed socket.
        connection.close(reason=CloseReason.CONNECTION_BROKEN)
    else:
        fetch.sent_again()
