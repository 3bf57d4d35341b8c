"""Closes clients that may hang, raise what they should not, or leave tasks behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

logger = logging.getLogger(__name__)


async def finish(call: Coroutine[Any, Any, Any], deadline_s: float) -> None:
    """Run a client's own closing in a task of its own, whatever it raises, and not beyond the deadline."""
    task = asyncio.ensure_future(call)
    await asyncio.wait([task], timeout=deadline_s)
    if not task.done():
        await cancel([task])
    elif not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("closing the Kafka client: %r", error)


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, two seconds at most."""
    for task in tasks:
        task.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=2.0)
        for task in done:
            if not task.cancelled():
                task.exception()  # looked at, so that it is not reported as never retrieved
