"""With ``latest``, what is written after a member is ready is read, whoever had the partition when
it joined.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from reactive_kafka.subscription import Topics
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import in_virtual_time, make_app, make_broker, running, send, until
from tests.broker.members import Member


@asynccontextmanager
async def owner_that_commits_nothing(broker: MemoryBroker) -> AsyncIterator[Any]:
    """Another member of the group, which has the only partition; it has left when this ends."""
    consumer = broker.connector().consumer(
        name="another", subscription=Topics(("orders",)), group_id="billing", properties={}
    )
    member = Member(consumer)
    await consumer.start(member)
    await member.until_assigned(1)
    try:
        yield consumer
    finally:
        await consumer.stop()


@in_virtual_time
async def test_a_member_that_joins_without_partitions_reads_what_comes_into_an_empty_topic() -> (
    None
):
    broker, seen = make_broker(1), list[int]()
    app = make_app(auto_offset_reset="latest")

    @app.incoming("orders")
    async def note(order: int) -> None:
        seen.append(order)

    async with owner_that_commits_nothing(broker) as owner, running(app, broker=broker) as test:
        assert not app.channel("orders").assignment
        assert app.health().ready.is_up
        await send(test, 1, 2)
        await owner.stop()
        await test.settled(60)
    await broker.close()
    assert seen == [1, 2]


@in_virtual_time
async def test_what_was_there_before_it_joined_stays_unread() -> None:
    broker, seen = make_broker(1), list[int]()
    app = make_app(auto_offset_reset="latest")

    @app.incoming("orders")
    async def note(order: int) -> None:
        seen.append(order)

    broker.produce("orders", b"0")
    async with owner_that_commits_nothing(broker) as owner, running(app, broker=broker) as test:
        await owner.stop()
        await until(lambda: bool(app.channel("orders").assignment), 60)
        await send(test, 1)
        await test.settled(60)
    await broker.close()
    assert seen == [1]
