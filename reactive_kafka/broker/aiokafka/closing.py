"""Closes an aiokafka consumer, whatever state it is in."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
from aiokafka.protocol.group import LeaveGroupRequest

from reactive_kafka.broker.aiokafka.setup import LEAVE_DEADLINE_S, STOP_DEADLINE_S
from reactive_kafka.broker.finish import cancel, finish

_TASKS = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")


async def close(
    client: aiokafka.AIOKafkaConsumer, caller: asyncio.Task[Any] | None, *, group_id: str | None, is_in_listener: bool
) -> None:
    """Leave the group and close; no task and no socket of the client is left.

    Args:
        client: Connected, or not quite.
        caller: The task that waits for this. It may be one of the client's own, in a listener's call.
        group_id: The group that it has joined, if any.
        is_in_listener: Whether a listener's call is going on.
    """
    if group_id is not None and (is_in_listener or client._subscription.reassignment_in_progress):
        await _leave_in_a_rebalance(client, caller, group_id)
    await finish(client.stop(), STOP_DEADLINE_S)  # H6: it may raise CancelledError, or leave tasks
    tasks = [getattr(client._coordinator, name, None) for name in _TASKS]
    if client._fetcher is not None:
        tasks += [client._fetcher._fetch_task, *client._fetcher._pending_tasks]
    await cancel([task for task in tasks if task is not None and not task.done()])
    await finish(client._client.close(), 2.0)


async def _leave_in_a_rebalance(
    client: aiokafka.AIOKafkaConsumer, caller: asyncio.Task[Any] | None, group_id: str
) -> None:
    """Leave in the middle of a rebalance, which the client's own stop would wait for first, without bound (H13).

    A member that just went away would be given partitions, and hold them until its session ends.
    """
    coordinator = client._coordinator
    task = getattr(coordinator, "_coordination_task", None)
    if task is None or task is caller:
        return
    await cancel([task])
    node, member = coordinator.coordinator_id, coordinator.member_id
    if node is not None and member and coordinator._group_instance_id is None:
        # Not on the join's connection: the broker reads nothing more from it before the join is answered.
        await finish(client._client.send(node, LeaveGroupRequest(group_id, member)), LEAVE_DEADLINE_S)
        coordinator.reset_generation()
