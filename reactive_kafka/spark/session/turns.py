"""Which jobs may run: any number at once, or one alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Gives turns in the order in which they are asked for: a job that waits to be alone is not overtaken."""

    def __init__(self) -> None:
        self._running = 0
        self._one_is_alone = False
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Hold a turn for as long as the block lasts; with *alone* no other is held meanwhile.

        Cancellation:
            Safe: the turn goes to the next one.
        """
        await self._enter(alone)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, alone: bool) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((alone, granted))
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._grant()  # to the next ones
            else:  # the turn and the cancellation came at the same moment
                self._leave()
            raise

    def _leave(self) -> None:
        self._running -= 1
        self._one_is_alone = False
        self._grant()

    def _grant(self) -> None:
        while self._waiting and not self._one_is_alone:
            alone, granted = self._waiting[0]
            if alone and self._running and not granted.cancelled():
                return
            self._waiting.popleft()
            if not granted.cancelled():
                self._running += 1
                self._one_is_alone = alone
                granted.set_result(None)
