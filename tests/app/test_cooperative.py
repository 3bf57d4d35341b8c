"""Incremental rebalances: a revocation names the partitions that go, and the others do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reactive_kafka import App, Message, TopicPartition
from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.memory.broker import AssignmentKind
from reactive_kafka.testing import MemoryBroker, TestApp, VirtualTimeLoop
from tests.app.helpers import in_virtual_time, make_app, running, send, tp, until

Partitions = frozenset[TopicPartition]


class CooperativeBroker(MemoryBroker):
    """A broker whose clients are all of the incremental kind."""

    def connector(self, *, assignment: AssignmentKind = "cooperative") -> Connector:
        return super().connector(assignment=assignment)


def cooperative_broker(partitions: int) -> CooperativeBroker:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return CooperativeBroker(loop.clock, partitions=partitions)


@asynccontextmanager
async def another_member(broker: MemoryBroker) -> AsyncIterator[App]:
    app = make_app()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None: ...

    async with TestApp(app, broker=broker):
        yield app


@in_virtual_time
async def test_hooks_are_told_of_what_goes_and_of_what_comes_and_never_of_what_stays() -> None:
    app, told, broker = make_app(), list[tuple[str, Partitions]](), cooperative_broker(2)

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    @app.on_assigned("orders")
    async def assigned(partitions: Partitions) -> None:
        told.append(("assigned", partitions))

    @app.on_revoked("orders")
    async def revoked(partitions: Partitions) -> None:
        told.append(("revoked", partitions))

    both = frozenset({tp(0), tp(1)})
    async with running(app, broker=broker):
        async with another_member(broker) as other:
            await until(lambda: len(other.channel("orders").assignment) == 1, 60)
            stays = frozenset(app.channel("orders").assignment)
        await until(lambda: app.channel("orders").assignment == both, 60)
    goes = both - stays
    assert len(goes) == 1
    assert told == [("assigned", both), ("revoked", goes), ("assigned", goes), ("revoked", both)]


@in_virtual_time
async def test_what_stays_is_read_and_handled_while_what_goes_is_waited_for() -> None:
    app, broker = make_app(ordering="unordered", concurrency=4, revoke_grace="20s"), cooperative_broker(2)
    go_on, running_now, handled, in_time = asyncio.Event(), set[int](), list[int](), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.payload == b"wait":
            running_now.add(message.partition)
            await go_on.wait()
        handled.append(message.partition)

    async with running(app, broker=broker) as test:
        for partition in range(2):
            await send(test, b"wait", partition=partition)
        await until(lambda: running_now == {0, 1})

        async def send_while_it_drains() -> None:
            generation = broker.generation("billing")
            await until(lambda: broker.generation("billing") > generation, 60)
            await asyncio.sleep(1)  # what goes is told by now
            for partition in range(2):
                await send(test, b"", partition=partition)
            await asyncio.sleep(1)
            in_time.extend(handled)
            go_on.set()

        sending = asyncio.create_task(send_while_it_drains())
        async with another_member(broker) as other:
            await sending
            await until(lambda: other.channel("orders").assignment, 5)
            assert in_time == [partition for _, partition in app.channel("orders").assignment]
    assert handled.count(in_time[0]) == 2
