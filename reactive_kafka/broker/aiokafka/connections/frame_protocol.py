"""Reads the answers of a broker off a socket, without a task and without copying them.

asyncio's streams would copy the bytes twice into newly allocated memory, pause and resume the
transport, and wake a task for each piece. For a record of 100 bytes that is a seventh of its cost.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, IncompleteReadError
from collections.abc import Callable

from reactive_kafka.broker.aiokafka.connections.frames import LENGTH_BYTES, Frames
from reactive_kafka.tasks import Flag

Frame = bytes | bytearray


class FrameProtocol(asyncio.BufferedProtocol):
    """Has the transport read directly into frames.

    Attributes:
        closed: Done when the transport is closed.
        last_frame: The last answer that was delivered. Its buffer is kept until the next one is
            there. Freed earlier, malloc would return it to the system, and each large answer would
            pay for new pages: a tenth of a microsecond per record.
    """

    def __init__(self) -> None:
        self.closed: Future[None] = asyncio.get_running_loop().create_future()
        self.last_frame: Frame = b""
        self._frames = Frames()
        self._receive: Callable[[Frame], None] | None = None
        self._tell_end: Callable[[Exception], None] | None = None
        self._end_error: Exception | None = None
        self._may_write = Flag()
        self._may_write.set()

    @property
    def partial_bytes(self) -> int:
        """How many bytes have come of an incomplete answer."""
        return self._frames.partial_bytes

    def deliver_to(
        self, receive: Callable[[Frame], None], tell_end: Callable[[Exception], None]
    ) -> None:
        """Deliver each answer as it comes; those that have come already at once.

        Args:
            receive: Called with each answer, in the transport's callback: a task would have to be
                woken for each. What it raises ends the delivery.
            tell_end: Called once, with the reason, when no further answer can come:
                IncompleteReadError if the broker has closed the connection, ValueError if the other
                side does not speak Kafka's protocol, or what *receive* has raised.
        """
        self._receive = receive
        self._tell_end = tell_end
        self._deliver()

    def stop_delivering(self) -> None:
        """Drop all further answers, and do not tell the end."""
        self._receive = None
        self._tell_end = None

    async def drained(self) -> None:
        """Wait until the transport has room for more. Returns at once after the end."""
        await self._may_write.wait()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.advance(nbytes)
        self._deliver()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        self._may_write.set()
        if not self.closed.done():
            self.closed.set_result(None)

    def _end(self, error: Exception | None) -> None:
        self._end_error = self._end_error or error or IncompleteReadError(b"", LENGTH_BYTES)
        self._deliver()

    def _deliver(self) -> None:
        frames = self._frames
        why: Exception | None = None
        try:
            while frames.whole and self._receive is not None:
                self.last_frame = frames.whole.pop(0)
                self._receive(self.last_frame)
        except Exception as error:
            why = error
        tell_end = self._tell_end
        why = why or frames.error or self._end_error
        if why is not None and tell_end is not None:
            self.stop_delivering()
            tell_end(why)
