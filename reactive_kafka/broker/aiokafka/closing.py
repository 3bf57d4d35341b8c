"""Closes aiokafka's clients, which may hang, raise, or leave tasks behind (H6)."""

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
    """Run a client's own closing in a separate task until a deadline. Logs what it raises."""
    task = asyncio.ensure_future(call)
    await asyncio.wait([task], timeout=deadline_s)
    if not task.done():
        await cancel([task])
    elif not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("closing the Kafka client: %r", error)


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


async def close(
    client: aiokafka.AIOKafkaConsumer,
    caller: asyncio.Task[Any] | None,
    *,
    group_id: str | None,
    is_in_listener: bool,
) -> None:
    """Leave the group, if the consumer has joined one, and close all of its tasks and sockets.

    The client may be half connected. The *caller*, the task that waits for this, may be one of the
    client's own tasks, in a call of the listener.
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
    """Leave the group in the middle of a rebalance.

    The client's own stop would wait for the end of the rebalance first, without a deadline (H13). A
    member that disappears without leaving would get partitions, and hold them until its session
    ends.
    """
    coordinator = client._coordinator
    task = getattr(coordinator, "_coordination_task", None)
    if task is None or task is caller:
        return
    await cancel([task])
    node = coordinator.coordinator_id
    member = coordinator.member_id
    if node is not None and member and coordinator._group_instance_id is None:
        # Sent on another connection than the join: the broker reads nothing more from that one
        # until it answers the join.
        await finish(
            client._client.send(node, LeaveGroupRequest(group_id, member)), LEAVE_DEADLINE_S
        )
        coordinator.reset_generation()
