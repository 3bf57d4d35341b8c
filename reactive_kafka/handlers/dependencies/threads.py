"""Calls in threads that are waited for, even by a caller that is cancelled meanwhile.

What ends a dependency has to wait for the thread that uses it. Only a second cancellation, as at
the end of the event loop, leaves the thread behind, and then nothing is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

from anyio import CapacityLimiter

from reactive_kafka.handlers.blocking_calls import as_async


class LeftInThreadError(asyncio.CancelledError):
    """The caller was cancelled twice, and has left a thread behind that is still running."""


async def in_thread(function: Callable[[], Any]) -> Any:
    """Call *function* in a thread of its own, and return what it returns.

    If it returns an awaitable, that is awaited here.

    Cancellation:
        It waits for the thread, and drops its outcome. A second cancellation meanwhile raises
        LeftInThreadError at once.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    # Who came first: the thread, or a caller that was cancelled before the thread has begun. In the
    # second case the function is not called at all.
    begun: dict[str, str] = {}

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def run() -> Any:
        if begun.setdefault("by", "thread") != "thread":
            return None
        try:
            return function()
        finally:
            try:
                loop.call_soon_threadsafe(end)
            except RuntimeError:
                # The loop is closed: this thread was left behind.
                pass

    try:
        return await as_async(run, CapacityLimiter(inf))()
    except asyncio.CancelledError as cancelled:
        if begun.setdefault("by", "caller") == "thread" and not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError:
                raise LeftInThreadError from cancelled
        raise
