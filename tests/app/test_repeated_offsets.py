"""A client that gives out an offset twice: its record is handled once, and positions never go
back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest

from reactive_kafka import Message, TopicPartition
from reactive_kafka.broker.client import Chunk, Connector, Consumer, Poll
from reactive_kafka.broker.client_wrapper import ClientWrapper
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import facts, in_virtual_time, make_app, positions, send, until


class Repeats(ClientWrapper[Consumer]):
    """Gives out each chunk twice at once, and with the next chunk of its partition all that came
    before once more.
    """

    def __init__(self, inner: Consumer, repeated: list[int]) -> None:
        super().__init__(inner)
        # The offsets that came again.
        self._repeated = repeated
        self._before: dict[TopicPartition, list[Any]] = {}

    async def poll(
        self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None
    ) -> Poll:
        poll = await self._inner.poll(budgets, timeout_s, most)
        chunks = list[Chunk]()
        for chunk in poll.chunks:
            before = self._before.setdefault(chunk.partition, [])
            whole = chunk._replace(records=[*before, *chunk.records])
            self._repeated += [record.offset for record in (*before, *chunk.records)]
            before += chunk.records
            chunks += [whole, chunk]
        return Poll(chunks, poll.errors)


class RepeatingConnector(ClientWrapper[Connector]):
    def __init__(self, inner: Connector, repeated: list[int]) -> None:
        super().__init__(inner)
        self._repeated = repeated

    def consumer(self, **named: Any) -> Any:
        return Repeats(self._inner.consumer(**named), self._repeated)


class RepeatingBroker(MemoryBroker):
    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.repeated: list[int] = []

    def connector(self, *, assignment: Literal["eager", "cooperative"] = "eager") -> Any:
        return RepeatingConnector(super().connector(assignment=assignment), self.repeated)


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@in_virtual_time
async def test_an_offset_that_the_client_gives_out_twice_is_handled_once(ordering: str) -> None:
    """Row F15 of the faults."""
    broker, seen = RepeatingBroker(partitions=2), list[tuple[int, int]]()
    app = make_app(ordering=ordering, commit_interval="100ms")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))

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
