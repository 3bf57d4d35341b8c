"""Calls in threads whose end is waited for, also by a caller that is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

from anyio import CapacityLimiter

from reactive_kafka.handlers.blocking_calls import as_async


class LeftInThreadError(asyncio.CancelledError):
    """The caller was cancelled twice, and has left a thread behind that goes on with what it
    has.
    """


async def in_thread(function: Callable[[], Any]) -> Any:
    """What *function* returns or raises in a thread of its own; an awaitable is awaited here.

    Cancellation:
        It ends once the thread has come to its end, whose outcome is dropped. Where it is cancelled
        again meanwhile, it raises LeftInThreadError at once.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    # By whom: the thread, or a caller that was cancelled before; the first one counts.
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
                # The loop is closed: it was left behind.
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
