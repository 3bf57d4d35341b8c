"""Asks for metadata with pauses, where aiokafka's fetcher asks as fast as the broker answers (H15).

A partition without a leader (its topic was deleted, its only replica's node is away) has the fetcher ask for metadata,
look, and ask again, thousands of times a second, for as long as it is assigned.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import Any

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
"""Between two questions: doubling, from the first up to the second; a while without one, and it begins anew."""


class Sparing:
    """aiokafka's client, as its fetcher has it: all of it, but that it asks for metadata with pauses."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pause_s = FIRST_PAUSE_S
        self._next_at = 0.0
        self._later: Future[bool] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def force_metadata_update(self) -> Future[bool]:
        """Ask now, or say when it may be asked again: the fetcher looks then, and asks where it is needed still."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._next_at:
            is_repeated = now < self._next_at + LONGEST_PAUSE_S
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if is_repeated else FIRST_PAUSE_S
            self._next_at = now + self._pause_s
            asked: Future[bool] = self._client.force_metadata_update()
            return asked
        if self._later is None or self._later.done():
            self._later = loop.create_future()
            loop.call_at(self._next_at, _complete, self._later)
        return self._later


def spare(consumer: Any) -> None:
    """Let the fetcher of a consumer that has started ask with pauses."""
    consumer._fetcher._client = Sparing(consumer._client)


def _complete(later: Future[bool]) -> None:
    if not later.done():
        later.set_result(False)
