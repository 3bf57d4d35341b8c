"""``GET /api/stream``: sends the facts as server-sent events, once a second, to those who read.

There is no task and no queue. Each stream wakes up once a second and sends the newest facts, which
are rendered once for all streams. So nothing happens while no stream is open, and a client that
reads slowly misses facts instead of filling the memory with old ones.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

Partitions = frozenset[str] | None
"""The channels whose partitions a client asks for. None: all channels."""
Render = Callable[[Partitions], str]
"""Returns the facts as JSON, in one line."""

MOST_STREAMS = 32
"""How many streams may be open at a time. Each of them has one of the server's connections."""
MOST_SELECTIONS = 8
"""How many different selections of partitions are rendered at a time."""
_HEADERS = (
    (b"content-type", b"text/event-stream"),
    # nginx would collect the events before it passes them on.
    (b"x-accel-buffering", b"no"),
)
_COMMENT = b": the stream is open\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPace:
    """How often a stream sends something."""

    facts_s: float = 1.0
    comment_s: float = 15.0


class FactStreams:
    """The open streams of an application."""

    def __init__(
        self, render: Render, pace: StreamPace | None = None, most: int = MOST_STREAMS
    ) -> None:
        self.pace = pace or StreamPace()
        self._render = render
        self._most = most
        self._open = 0
        # The last turn in which the facts were rendered, and what was rendered in it.
        self._turn = -1
        self._rendered: dict[Partitions, bytes] = {}

    def answer(self, request: Request) -> Response:
        """Return a stream, or 503 if too many are open."""
        if self._open >= self._most:
            return PlainTextResponse(
                f"all {self._most} streams are taken: close one, or read /api/channels instead\n",
                503,
                {"Retry-After": "5"},
            )
        return _EventStream(self, _selection(request))

    def turn(self) -> int:
        """Return the number of the current turn. All streams have the same turns."""
        return int(asyncio.get_running_loop().time() / self.pace.facts_s)

    def event(self, partitions: Partitions) -> bytes:
        """Return the newest facts as an event. They are read and rendered once in each turn."""
        turn = self.turn()
        if turn != self._turn:
            self._turn = turn
            self._rendered = {}
        rendered = self._rendered.get(partitions)
        if rendered is None:
            rendered = f"event: facts\ndata: {self._render(partitions)}\n\n".encode("ascii")
            if len(self._rendered) < MOST_SELECTIONS:
                self._rendered[partitions] = rendered
        return rendered

    def opened(self) -> None:
        """Count a stream that begins."""
        self._open += 1

    def closed(self) -> None:
        """Count a stream that has ended. After the last one, nothing is kept."""
        self._open -= 1
        if not self._open:
            self._rendered = {}


class _EventStream(Response):
    """Sends the facts until the client disconnects or the server ends."""

    def __init__(self, streams: FactStreams, partitions: Partitions) -> None:
        super().__init__()
        self._streams = streams
        self._partitions = partitions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["method"] == "HEAD"
        self._streams.opened()
        gone = asyncio.create_task(_disconnected(receive), name="reader of /api/stream")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            if not is_head:
                await self._send_events(gone, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._streams.closed()

    async def _send_events(self, gone: asyncio.Task[None], send: Send) -> None:
        pace = self._streams.pace
        time = asyncio.get_running_loop().time
        commented_at = time()
        while not gone.done() and not _host_ends():
            # Nothing is sent by this, but it waits while the client does not read. The facts that
            # follow are the newest then.
            await _send_piece(send, b"")
            await _send_piece(send, self._streams.event(self._partitions))
            if time() - commented_at >= pace.comment_s:
                commented_at = time()
                await _send_piece(send, _COMMENT)
            next_turn_at = (self._streams.turn() + 1) * pace.facts_s
            await asyncio.wait([gone], timeout=max(0.0, next_turn_at - time()))


async def _send_piece(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _selection(request: Request) -> Partitions:
    """Return the channels that ``?partitions=NAME`` names. An empty name selects none."""
    names = request.query_params.getlist("partitions")
    return frozenset(names) - {""} if names else None


def _host_ends() -> bool:
    """Return whether uvicorn serves this application and has been asked to exit.

    At its end uvicorn waits for all answers without telling them, so an endless one would keep it
    from ending. Its handler of SIGTERM is a method of its server, which knows.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
