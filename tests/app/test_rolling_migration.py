"""A group moves from one protocol to the other, application by application, under load."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count

import pytest

from reactive_kafka import App, Message
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import in_virtual_time, make_broker

KEYS = [f"k{number}" for number in range(12)]
PARTITIONS = 4


class Migration:
    """Records that are produced all the while, and the applications that handle them."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.handled: dict[str, list[int]] = {key: [] for key in KEYS}
        self.produced = 0
        self._was_handled = asyncio.Event()

    def application(self, protocol: str) -> App:
        app = App(
            {
                "incoming": {
                    "orders": {
                        "group_id": "billing",
                        "group_protocol": protocol,
                        "auto_offset_reset": "earliest",
                        "ordering": "partition",
                    }
                }
            }
        )

        @app.incoming("orders")
        async def handle(message: Message[bytes]) -> None:
            assert message.key is not None
            number = int(message.payload)
            await asyncio.sleep(0.01)
            self.handled[message.key.decode()].append(number)
            self._was_handled.set()

        return app

    async def produce(self) -> None:
        for number in count():
            for key in KEYS:
                self.broker.produce("orders", b"%d" % number, key=key.encode())
            self.produced = number + 1
            await asyncio.sleep(0.5)

    async def until_all_is_handled(self) -> None:
        everything = set(range(self.produced))
        while any(set(numbers) != everything for numbers in self.handled.values()):
            self._was_handled.clear()
            await self._was_handled.wait()


@pytest.mark.parametrize(
    "protocols",
    [
        ("classic", "classic", "consumer", "consumer"),
        ("consumer", "consumer", "classic", "classic"),
        ("classic", "consumer", "classic", "consumer"),
    ],
)
@in_virtual_time
async def test_a_rolling_migration_loses_nothing_and_keeps_the_order(
    protocols: tuple[str, ...],
) -> None:
    broker = make_broker(PARTITIONS)
    migration = Migration(broker)
    producing = asyncio.create_task(migration.produce())
    async with AsyncExitStack() as last:
        running: list[AsyncExitStack] = []
        for protocol in protocols:
            stack = await last.enter_async_context(AsyncExitStack())
            await stack.enter_async_context(TestApp(migration.application(protocol), broker=broker))
            running.append(stack)
            await asyncio.sleep(15)
            if len(running) > 1:
                # The oldest one leaves, as in a rolling restart.
                await running.pop(0).aclose()
                await asyncio.sleep(15)
        producing.cancel()
        async with asyncio.timeout(60):
            await migration.until_all_is_handled()
        owners = broker.members("billing")
        assert len(owners) == 1
        assert {len(owned) for owned in owners.values()} == {PARTITIONS}
    for numbers in migration.handled.values():
        first_times = list(dict.fromkeys(numbers))
        assert first_times == sorted(first_times)
        # A member that was behind when its group became classic handles some records again.
        assert len(numbers) - len(first_times) <= len(first_times) / 10
    ends = {partition: broker.end(partition) for partition in broker.committed("billing")}
    assert {
        partition: stored.offset for partition, stored in broker.committed("billing").items()
    } == ends
    await broker.close()
