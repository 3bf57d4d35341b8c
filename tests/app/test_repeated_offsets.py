"""A client that gives out an offset twice: its record is handled once, and positions never go
back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.testing import TestApp
from tests.app.brokers import BrokerWithWrappedConsumers, WrappedConsumer
from tests.app.handlers import note_places
from tests.app.helpers import facts, in_virtual_time, make_app, positions, send, until


class Repeats(WrappedConsumer):
    """Gives out each chunk twice at once, and with the next chunk of its partition all that came
    before once more.
    """

    def __init__(self, inner: Any, repeated: list[int]) -> None:
        super().__init__(inner)
        # The offsets that came again.
        self._repeated = repeated
        self._before: dict[TopicPartition, list[Any]] = {}

    async def poll(
        self,
        budgets: Mapping[TopicPartition, int],
        timeout_s: float,
        most: int | None = None,
        byte_room: Any = None,
    ) -> Any:
        poll = await self._inner.poll(budgets, timeout_s, most, byte_room)
        chunks = list[Any]()
        for chunk in poll.chunks:
            before = self._before.setdefault(chunk.partition, [])
            whole = chunk._replace(records=[*before, *chunk.records])
            self._repeated += [record.offset for record in (*before, *chunk.records)]
            before += chunk.records
            chunks += [whole, chunk]
        return replace(poll, chunks=chunks)


class RepeatingBroker(BrokerWithWrappedConsumers):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.repeated: list[int] = []

    def wrapped(self, consumer: Any) -> Repeats:
        return Repeats(consumer, self.repeated)


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_an_offset_that_the_client_gives_out_twice_is_handled_once(ordering: str) -> None:
    """Row F15 of the faults."""
    broker, seen = RepeatingBroker(partitions=2), list[tuple[int, int]]()
    app = make_app(ordering=ordering, commit_interval="100ms")
    note_places(app, seen)

    async with TestApp(app, broker=broker) as test:
        # More than one poll.
        for count in (3, 1, 5):
            for partition in (0, 1):
                await send(test, *[b""] * count, partition=partition)
            await test.settled()
        await until(lambda: positions(broker, 0)[-1:] == positions(broker, 1)[-1:] == [9])
        assert len(broker.repeated) > 18, "nothing was given out twice"
        assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(9)]
        assert all(
            positions(broker, partition) == sorted(positions(broker, partition))
            for partition in (0, 1)
        )
        assert facts(test).state == "running"
    await broker.close()
