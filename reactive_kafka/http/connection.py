"""One connection of a client: uvicorn's, with an end to whatever a client can leave unfinished."""

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
# What is below an error tells of what clients send: a line for each of their mistakes would be
# theirs to write.
_log.addFilter(lambda record: record.levelno >= logging.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients may use of the server."""

    # At once; and not more than a quarter of the descriptors that the process may have.
    connections: int = 256
    # Further ones, for probes only, when those are taken.
    probes: int = 16
    # Size of a request's head; above it (by up to 1 KiB) the answer is 400.
    header_bytes: int = 8 * 1024
    # From the connection, or its last answer, until the head of a request is there.
    head_s: float = 10.0
    # The same in a probe's place.
    probe_head_s: float = 1.0
    # From there until its body is there and the answer is taken; of a stream, what is sent.
    body_s: float = 30.0
    # How long a connection may idle between requests; whole seconds.
    keep_alive_s: int = 5
    # How long running answers may take when the server closes.
    grace_s: float = 0.4


class Shared:
    """What the connections of one server share."""

    def __init__(self, asgi: ASGIApp, limits: Limits) -> None:
        self.limits = limits
        self.state = ServerState()
        self.config = uvicorn.Config(
            asgi,
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            # Logging belongs to the owner of the process.
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=limits.keep_alive_s,
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        self.config.load()


class Connection(H11Protocol):
    """Drops a client that does not end its request or take its answer: uvicorn limits the time
    between them only.
    """

    def __init__(self, shared: Shared, leave: Callable[[Connection], None]) -> None:
        super().__init__(shared.config, shared.state, {})
        self.logger = _log
        # Uvicorn's own setting would silence the access log of the whole process.
        self.access_log = False
        self.for_probes = False
        self._limits = shared.limits
        self._leave = leave
        self._asgi = self.app
        self.app = self._answer
        self._deadline: asyncio.TimerHandle | None = None
        self._is_stream = self._is_dismissed = False

    @property
    def is_idle(self) -> bool:
        """Whether there is no request to answer, or not all of its head."""
        return self.cycle is None or self.cycle.response_complete

    def dismiss(self) -> None:
        """Close it, for somebody else's sake."""
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
        # h11 checks the size of a head only while its end has not arrived: in one piece, a head of
        # any size passes.
        for start in range(0, len(data), CHUNK_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + CHUNK_BYTES])

    def send_400_response(self, msg: str) -> None:
        # uvicorn also says it in the middle of an answer, or twice where the application answers as
        # well; h11 raises then, and both are logged as errors of ours.
        if not self.is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        state = self.conn.our_state
        if state is h11.IDLE or (state is h11.SEND_RESPONSE and self.scope["method"] != "HEAD"):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        self._is_stream = False
        self._set_deadline(self._limits.head_s)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._is_stream:
            self._set_deadline(self._limits.body_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_stream:
            self._set_deadline(None)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The head of a request is there."""
        self._set_deadline(self._limits.body_s)

        async def send_with_date(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    (b"date", formatdate(time.time(), usegmt=True).encode()),
                    *message["headers"],
                ]
                if self.for_probes:
                    headers.append((b"connection", b"close"))
                # It ends when somebody ends it, and only what it sends has to be taken.
                if is_stream(headers):
                    self._is_stream = True
                    self._set_deadline(None)
                message = {**message, "headers": headers}
            await send(message)

        asgi = self._asgi if not self.for_probes or scope["path"] in PROBES else _FULL
        await asgi(scope, receive, send_with_date)

    def _set_deadline(self, within_s: float | None) -> None:
        """Abort the connection then; None: whenever it ends."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = (
            None if within_s is None else self.loop.call_later(within_s, self.transport.abort)
        )


_FULL = refused(
    Refusal(503, "all connections are taken: only probes are answered now", {"Retry-After": "1"})
)
