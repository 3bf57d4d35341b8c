"""H6: stop() raises though nobody cancelled, hangs, and leaves tasks and sockets."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import Committed
from reactive_kafka.errors import BrokerError
from tests.broker.hazards.faults import Rig, ends_within, tasks_but, until
from tests.broker.members import PATIENCE_S, Member, joined

PROMPTLY_S = 2.0
# The sum of the deadlines of each step of closing, and a little.
AT_LAST_S = 12.0


def killed(rig: Rig) -> None:
    """Connections end, and new ones are refused."""
    rig.broker.go_down()


def frozen(rig: Rig) -> None:
    """Connections stay, and nothing passes."""
    rig.proxy.hold()


def sockets() -> int:
    """How many sockets this process has open."""
    return sum(1 for link in Path("/proc/self/fd").iterdir() if _target(link).startswith("socket:"))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        # Closed meanwhile.
        return ""


def of_the_client(tasks: set[asyncio.Task[Any]]) -> set[str]:
    """The client's own among the tasks."""
    names = {getattr(task.get_coro(), "__qualname__", "") for task in tasks}
    return {name for name in names if name.startswith(("AIOKafka", "Fetcher"))}


async def test_h6_stop_raises_nothing_and_leaves_nothing_when_the_broker_is_gone(
    rig: Rig, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="reactive_kafka")
    topic = await rig.create_topic(1)
    tasks = asyncio.all_tasks()
    async with joined(rig, topic, group) as member:
        await member.until_assigned(1)
        connected = sockets()
        killed(rig)
        await until(lambda: "fetching from node" in caplog.text, "the client has noticed")
        await asyncio.wait_for(member.consumer.stop(), AT_LAST_S)
        await leaves_nothing(tasks, connected)


async def test_h6_a_stop_that_was_cancelled_goes_on_and_the_next_one_waits_until_nothing_is_left(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    tasks = asyncio.all_tasks()
    # A session in which it does not connect anew: the proxy, which is frozen, has sockets in this
    # process as well.
    async with joined(rig, topic, group, properties={"session_timeout_ms": 30_000}) as member:
        await member.until_assigned(1)
        connected = sockets()
        frozen(rig)
        for _ in range(3):
            stop = asyncio.ensure_future(member.consumer.stop())
            assert not await ends_within(stop, 0.1)
            stop.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stop
        await asyncio.wait_for(member.consumer.stop(), AT_LAST_S)
        await leaves_nothing(tasks, connected)


async def test_h6_the_end_of_the_loop_closes_the_sockets_of_a_consumer_that_is_being_closed(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    tasks = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        # Its own stop is told of the cancellation.
        stack.enter_context(pytest.raises(asyncio.CancelledError))
        member = await stack.enter_async_context(
            joined(rig, topic, group, properties={"session_timeout_ms": 30_000})
        )
        await member.until_assigned(1)
        client = member.consumer.client  # type: ignore[attr-defined]
        assert client.connected_nodes() == {1}
        connected = sockets()
        frozen(rig)
        stop = asyncio.ensure_future(member.consumer.stop())
        assert not await ends_within(stop, 0.1)
        await cancelled_by_the_loop("close a consumer", stop)
    assert not client.connected_nodes()
    await leaves_nothing(tasks, connected)


async def test_h6_the_end_of_the_loop_closes_the_sockets_of_a_producer_that_is_being_closed(
    rig: Rig,
) -> None:
    topic = await rig.create_topic(1)
    tasks = asyncio.all_tasks()
    producer = rig.connector.producer(name="x", properties={})
    await producer.start()
    await (await producer.send(topic, b"1"))
    connected = sockets()
    frozen(rig)
    unconfirmed = await producer.send(topic, b"2")
    stop = asyncio.ensure_future(producer.stop())
    assert not await ends_within(stop, 0.1)
    await cancelled_by_the_loop("close a producer", stop)
    await leaves_nothing(tasks, connected)
    with pytest.raises(BrokerError):
        await unconfirmed


async def cancelled_by_the_loop(name: str, *tasks: asyncio.Future[None]) -> None:
    """Cancel these tasks and those with the *name*, once, and wait for their ends."""
    ending = {task for task in asyncio.all_tasks() if task.get_name() == name} | {*tasks}
    assert len(ending) == len(tasks) + 1
    for task in ending:
        task.cancel()
    assert await ends_within(asyncio.gather(*ending, return_exceptions=True), AT_LAST_S)


async def leaves_nothing(tasks: set[asyncio.Task[Any]], sockets_before: int) -> None:
    assert not of_the_client(tasks_but(tasks))
    await until(lambda: sockets() < sockets_before, "its sockets are closed", within_s=PROMPTLY_S)


async def test_h6_stop_is_not_held_up_by_a_revocation_that_cannot_commit(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    tasks = asyncio.all_tasks()
    async with joined(rig, topic, group) as member:
        await member.until_assigned(1)
        is_revoking, has_failed = asyncio.Event(), asyncio.Event()

        async def commit() -> None:
            is_revoking.set()
            while True:
                try:
                    await member.consumer.commit(
                        dict.fromkeys(member.owned, Committed(1)), member.generation
                    )
                except BrokerError:
                    has_failed.set()
                await asyncio.sleep(0.05)

        member.while_revoked = commit
        rejoin(member)
        async with asyncio.timeout(PATIENCE_S):
            await is_revoking.wait()
            killed(rig)
            await has_failed.wait()
        await asyncio.wait_for(member.consumer.stop(), AT_LAST_S)
        assert not of_the_client(tasks_but(tasks))


def rejoin(member: Member) -> None:
    """Make the member join its group again, as when the broker says that there is a rebalance."""
    group = member.consumer.owned.group  # type: ignore[attr-defined]
    group.member._rejoin("a test asks for it")
    group._changed()
