"""Closes clients, which may hang, raise, or leave tasks behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from reactive_kafka.broker.aiokafka.kafka_client import KafkaClient

STOP_DEADLINE_S = 5.0
CLOSE_DEADLINE_S = 2.0

logger = logging.getLogger(__name__)


async def finish(call: Coroutine[Any, Any, Any], deadline_s: float) -> None:
    """Run a client's own closing in a separate task until a deadline. Logs what it raises.

    Cancellation: the closing is cancelled, too.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=deadline_s)
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("closing the Kafka client: %r", error)
    finally:
        await cancel([task])


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, at most two seconds."""
    for task in tasks:
        task.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=2.0)
        for task in done:
            if not task.cancelled():
                # Retrieved, so that asyncio does not report it.
                task.exception()


async def close(client: KafkaClient) -> None:
    """Close the tasks and sockets of a client, which may be half connected."""
    await finish(client.close(), CLOSE_DEADLINE_S)
