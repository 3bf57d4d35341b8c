"""One client connection: uvicorn's, with a time limit on whatever a client can leave unfinished."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate

import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from reactive_kafka.http.asgi import is_stream, refused
from reactive_kafka.http.guard import PROBES, Refusal

CHUNK_BYTES = 1024

_log = logging.getLogger("reactive_kafka.http.requests")
# Below ERROR, uvicorn logs the mistakes of clients. A client could write as many lines as it likes.
_log.addFilter(lambda record: record.levelno >= logging.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of the server its clients may use."""

    # Open connections at a time. A quarter of the process's descriptors is the limit, too.
    connections: int = 256
    # More connections for probes only, when all of the others are taken.
    probes: int = 16
    # Size of a request's head. A head that is longer (by up to 1 KiB) is answered with 400.
    header_bytes: int = 8 * 1024
    # From the connection, or the end of its last answer, until the head of a request has arrived.
    head_s: float = 10.0
    # The same for a connection in the place of a probe.
    probe_head_s: float = 1.0
    # From the head until the body has arrived and the client has taken the answer. In a stream:
    # until the client has taken some of what was sent.
    body_s: float = 30.0
    # How long a connection may be idle between requests, in whole seconds.
    keep_alive_s: int = 5
    # How long running answers may take when the server closes.
    grace_s: float = 0.4


class ConnectionContext:
    """The limits, the configuration and the state that all connections of a server share."""

    def __init__(self, asgi: ASGIApp, limits: Limits) -> None:
        self.limits = limits
        self.state = ServerState()
        self.config = uvicorn.Config(
            asgi,
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            # Only the owner of the process configures logging.
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=limits.keep_alive_s,
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        self.config.load()


class Connection(H11Protocol):
    """Closes the connection if the client does not finish its request, or take its answer, in time.

    uvicorn limits only the time between an answer and the next request.
    """

    def __init__(self, context: ConnectionContext, leave: Callable[[Connection], None]) -> None:
        super().__init__(context.config, context.state, {})
        self.logger = _log
        # uvicorn's setting for this would silence the access log of the whole process.
        self.access_log = False
        self.for_probes = False
        self._limits = context.limits
        self._leave = leave
        self._asgi = self.app
        self.app = self._answer
        self._deadline: asyncio.TimerHandle | None = None
        self._is_stream = False
        self._is_closing = False
        self._is_dismissed = False

    @property
    def is_idle(self) -> bool:
        """True unless a request is being answered. The head of the next one may be incomplete."""
        return self.cycle is None or self.cycle.response_complete

    def dismiss(self) -> None:
        """Close the connection to make room for another one."""
        self._is_dismissed = True
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline(self._limits.probe_head_s if self.for_probes else self._limits.head_s)
        if self._is_dismissed:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        self._leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # h11 checks the size of a head only until its end arrives, so a head of any size would pass
        # in one piece.
        for start in range(0, len(data), CHUNK_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + CHUNK_BYTES])

    def send_400_response(self, msg: str) -> None:
        # uvicorn also calls this in the middle of an answer, or when the application has answered
        # already. Then h11 raises, and both would be logged as errors of ours.
        if not self.is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        state = self.conn.our_state
        can_answer = state is h11.IDLE or (
            state is h11.SEND_RESPONSE and self.scope["method"] != "HEAD"
        )
        if can_answer:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        self._is_stream = False
        self._set_deadline(self._limits.head_s)
        super().on_response_complete()

    def shutdown(self) -> None:
        """Close the connection when its answer is sent. A stream learns that it has to end."""
        super().shutdown()
        self._is_closing = True
        if self._is_stream:
            self.cycle.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._is_stream:
            self._must_take_some_of(self.transport.get_write_buffer_size())

    def _must_take_some_of(self, unsent_bytes: int) -> None:
        """Abort a stream whose client takes nothing of *unsent_bytes* in time."""

        def look() -> None:
            left = self.transport.get_write_buffer_size()
            if left < unsent_bytes:
                self._must_take_some_of(left)
            else:
                self.transport.abort()

        self._set_deadline(self._limits.body_s, look)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_stream:
            self._set_deadline(None)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose head has arrived."""
        self._set_deadline(self._limits.body_s)

        async def send_with_date(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    (b"date", formatdate(time.time(), usegmt=True).encode()),
                    *message["headers"],
                ]
                if self.for_probes:
                    headers.append((b"connection", b"close"))
                if is_stream(headers):
                    # A stream may last for ever. Only what it sends must be taken in time, see
                    # `pause_writing`.
                    self._is_stream = True
                    self._set_deadline(None)
                message = {**message, "headers": headers}
            await send(message)

        async def receive_until_closing() -> Message:
            message: Message = await receive()
            ends = self._is_stream and self._is_closing
            return {"type": "http.disconnect"} if ends else message

        if self.for_probes and scope["path"] not in PROBES:
            await _FULL(scope, receive, send_with_date)
        else:
            await self._asgi(scope, receive_until_closing, send_with_date)

    def _set_deadline(self, within_s: float | None, late: Callable[[], None] | None = None) -> None:
        """Call *late* after *within_s* seconds. None: there is no deadline.

        Args:
            late: Default: abort the connection.
        """
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if within_s is not None:
            self._deadline = self.loop.call_later(within_s, late or self.transport.abort)


_FULL = refused(
    Refusal(503, "all connections are taken: only probes are answered now", {"Retry-After": "1"})
)
