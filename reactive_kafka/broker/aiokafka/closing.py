"""Closes aiokafka's clients, which may hang, raise what they should not, or leave tasks behind
(H6).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import aiokafka
from aiokafka.protocol.group import LeaveGroupRequest

STOP_DEADLINE_S = 5.0
CLOSE_DEADLINE_S = 2.0
LEAVE_DEADLINE_S = 2.0
_TASKS = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")

logger = logging.getLogger(__name__)


async def finish(call: Coroutine[Any, Any, Any], deadline_s: float) -> None:
    """Run a client's own closing in a task of its own, whatever it raises, and not beyond the
    deadline.
    """
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
                # Looked at, so that it is not reported as never retrieved.
                task.exception()


async def close(
    client: aiokafka.AIOKafkaConsumer,
    caller: asyncio.Task[Any] | None,
    *,
    group_id: str | None,
    is_in_listener: bool,
) -> None:
    """Leave the group that it has joined, if any, and close; no task and no socket of the consumer
    is left.

    It may be not quite connected. The *caller*, the task that waits for this, may be one of the
    client's own, in a listener's call.
    """
    if group_id is not None and (is_in_listener or client._subscription.reassignment_in_progress):
        await _leave_in_a_rebalance(client, caller, group_id)
    await finish(client.stop(), STOP_DEADLINE_S)
    tasks = [getattr(client._coordinator, name, None) for name in _TASKS]
    if client._fetcher is not None:
        tasks += [client._fetcher._fetch_task, *client._fetcher._pending_tasks]
    await cancel([task for task in tasks if task is not None and not task.done()])
    await finish(client._client.close(), CLOSE_DEADLINE_S)


async def _leave_in_a_rebalance(
    client: Any, caller: asyncio.Task[Any] | None, group_id: str
) -> None:
    """Leave in the middle of a rebalance, which the client's own stop would wait for first, without
    bound (H13).

    A member that just went away would be given partitions, and hold them until its session ends.
    """
    coordinator = client._coordinator
    task = getattr(coordinator, "_coordination_task", None)
    if task is None or task is caller:
        return
    await cancel([task])
    node = coordinator.coordinator_id
    member = coordinator.member_id
    if node is not None and member and coordinator._group_instance_id is None:
        # Not on the join's connection: the broker reads nothing more from it before the join is
        # answered.
        await finish(
            client._client.send(node, LeaveGroupRequest(group_id, member)), LEAVE_DEADLINE_S
        )
        coordinator.reset_generation()
