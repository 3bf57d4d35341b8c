"""Answers scrapes. One answer is rendered at a time, shared by those who wait, and sent in pieces.

An answer may be as large as 10 MB, and rendering takes long. So scrapers that ask while another
answer is rendered share the next one.
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
MOST_ANSWERS = 4
"""How many answers are kept in memory while they are sent. When slow scrapers still take so many,
later scrapers get the newest of these.
"""


@dataclass(frozen=True, slots=True, eq=False)
class RenderedScrape:
    """The body of an answer. ``number`` counts the answers that were rendered."""

    number: int
    body: bytes
    content_type: str


class Scrapes:
    """The answers of ``/metrics``, as text and as OpenMetrics."""

    def __init__(self, registry: Callable[[], Registry]) -> None:
        self._registry = registry
        self._rendering = asyncio.Lock()
        # A thread of its own, because blocking handlers may use up the default ones.
        self._thread = anyio.CapacityLimiter(1)
        self._started = 0
        # How many scrapers wait for an answer.
        self._waiting = 0
        # Is it OpenMetrics -> the newest answer, kept while a scraper waits for one or takes one.
        self._newest: dict[bool, RenderedScrape] = {}
        # Answer -> how many scrapers are taking it.
        self._receivers: Counter[RenderedScrape] = Counter()

    async def answer(self, accept: str) -> Response:
        """Return metrics read after this call, or older ones if slow scrapers hold too many."""
        # Imported by the first scrape, because prometheus_client takes long to import.
        from reactive_kafka.observe.prometheus import is_openmetrics

        started_before = self._started
        kind = is_openmetrics(accept)
        self._waiting += 1
        try:
            async with self._rendering:
                rendered = self._newest.get(kind)
                if rendered is None or (
                    rendered.number <= started_before and len(self._receivers) < MOST_ANSWERS
                ):
                    rendered = await self._render(accept)
                    self._newest[kind] = rendered
            self._receivers[rendered] += 1
        finally:
            self._waiting -= 1
            # If this caller was cancelled, no sent answer will clean up after it.
            self._drop_unneeded()
        return _ResponseInPieces(rendered, self._is_sent)

    async def _render(self, accept: str) -> RenderedScrape:
        from reactive_kafka.observe.prometheus import render, snapshot

        self._started += 1
        number = self._started
        # The application may be read on its loop only; the rendering is left to the thread.
        families = snapshot(self._registry())
        body, content_type = await anyio.to_thread.run_sync(
            render, families, accept, limiter=self._thread
        )
        return RenderedScrape(number, body, content_type)

    def _is_sent(self, rendered: RenderedScrape) -> None:
        self._receivers[rendered] -= 1
        # Adding an empty counter drops the entries that are 0.
        self._receivers += Counter()
        self._drop_unneeded()

    def _drop_unneeded(self) -> None:
        """Drop the answers once no caller receives one or waits for one."""
        if not self._receivers and not self._waiting:
            self._newest.clear()


class _ResponseInPieces(Response):
    """Sends a shared body piece by piece, so that a slow client holds only one piece of its own."""

    def __init__(self, rendered: RenderedScrape, is_sent: Callable[[RenderedScrape], None]) -> None:
        headers = {
            "Content-Type": rendered.content_type,
            "Content-Length": str(len(rendered.body)),
        }
        super().__init__(headers=headers)
        self._rendered = rendered
        self._is_sent = is_sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = self._rendered.body
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
            self._is_sent(self._rendered)
