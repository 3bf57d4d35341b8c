"""The answers to scrapes: made one at a time, shared by all who asked before it was begun, sent in
pieces.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

if TYPE_CHECKING:
    from reactive_kafka.observe.prometheus import Registry

PIECE_BYTES = 65_536
MOST_TEXTS = 4
"""Texts that are being sent. While scrapers are slow, further ones get the newest of these: one may
be of 10 MB.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    number: int
    body: bytes
    content_type: str


class Scrapes:
    """What ``/metrics`` answers, as text and as OpenMetrics."""

    def __init__(self, registry: Callable[[], Registry]) -> None:
        self._registry = registry
        self._turn = asyncio.Lock()
        # Our own: blocking handlers may use up the default one.
        self._thread = anyio.CapacityLimiter(1)
        self._begun = self._asking = 0
        # By whether it is OpenMetrics, as long as anybody asks or takes one.
        self._newest: dict[bool, _Text] = {}
        self._sent: Counter[_Text] = Counter()

    async def answer(self, accept: str) -> Response:
        """The metrics at a time after this call, unless scrapers do not take what they have asked
        for.
        """
        # With the first scrape, not on the way to it.
        from reactive_kafka.observe.prometheus import is_openmetrics

        begun = self._begun
        kind = is_openmetrics(accept)
        self._asking += 1
        try:
            async with self._turn:
                text = self._newest.get(kind)
                if text is None or (text.number <= begun and len(self._sent) < MOST_TEXTS):
                    text = self._newest[kind] = await self._make(accept)
            self._sent[text] += 1
        finally:
            self._asking -= 1
        return _InPieces(text, self._is_sent)

    async def _make(self, accept: str) -> _Text:
        from reactive_kafka.observe.prometheus import render, snapshot

        self._begun += 1
        # Read here, on the loop.
        number = self._begun
        families = snapshot(self._registry())
        return _Text(
            number, *await anyio.to_thread.run_sync(render, families, accept, limiter=self._thread)
        )

    def _is_sent(self, text: _Text) -> None:
        self._sent[text] -= 1
        # Without those that nobody has.
        self._sent += Counter()
        if not self._sent and not self._asking:
            self._newest.clear()


class _InPieces(Response):
    """A slow client holds a piece of its own, and its share of the text."""

    def __init__(self, text: _Text, is_sent: Callable[[_Text], None]) -> None:
        headers = {"Content-Type": text.content_type, "Content-Length": str(len(text.body))}
        super().__init__(headers=headers)
        self._text = text
        self._is_sent = is_sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = self._text.body
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            for start in range(0, len(body), PIECE_BYTES):
                end = start + PIECE_BYTES
                await send(
                    {
                        "type": "http.response.body",
                        "body": body[start:end],
                        "more_body": end < len(body),
                    }
                )
        finally:
            self._is_sent(self._text)
