"""A consumer that hands out offsets keeps the contract of every other one, and fetches no
record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, cast

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import Consumer, Poll
from reactive_kafka.broker.ranges import RangesConsumer
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    OffsetOutOfRangeError,
    TransientBrokerError,
)
from reactive_kafka.subscription import Partitions, Topics
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import in_virtual_time, make_broker
from tests.broker.contract import (
    CommitContract,
    EagerGroupContract,
    LogContract,
    ReadingContract,
    group,
)
from tests.broker.contract_assignments import (
    AutoCommitContract,
    EagerPatternContract,
    StaticContract,
    TimesContract,
)
from tests.broker.members import Member
from tests.broker.reading_ranges import ReadingConnector
from tests.broker.test_memory import MemoryCluster

__all__ = ["group"]


@pytest.fixture
async def cluster(memory_broker: MemoryBroker) -> AsyncIterator[MemoryCluster]:
    cluster = MemoryCluster(memory_broker)
    cluster.connector = ReadingConnector(cluster.connector)
    yield cluster
    await memory_broker.close()


class TestContractInMemory(
    ReadingContract,
    CommitContract,
    EagerGroupContract,
    LogContract,
    StaticContract,
    EagerPatternContract,
    TimesContract,
    AutoCommitContract,
):
    """Read again by their offsets the records are those that any other consumer brings."""


P = TopicPartition("topic", 0)
Q = TopicPartition("topic", 1)


class Spy:
    """A consumer that notes, with the loop's time, what it is asked; everything is done by the one
    inside.
    """

    def __init__(self, inner: Consumer) -> None:
        self._inner: Any = inner
        self.calls: list[tuple[str, float]] = []
        self.polled: list[dict[TopicPartition, int]] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append((name, asyncio.get_running_loop().time()))
        return getattr(self._inner, name)

    async def poll(
        self, budgets: Mapping[TopicPartition, int], timeout_s: float, most: int | None = None
    ) -> Poll:
        self.polled.append(dict(budgets))
        self.calls.append(("poll", asyncio.get_running_loop().time()))
        poll: Poll = await self._inner.poll(budgets, timeout_s, most)
        return poll

    def times(self, name: str) -> list[float]:
        return [at for called, at in self.calls if called == name]


class Reader(Member):
    """A member of ranges, and what stands beneath it."""

    consumer: RangesConsumer

    def __init__(self, spy: Spy) -> None:
        super().__init__(RangesConsumer(cast(Consumer, spy)))
        self.spy = spy

    async def offsets(
        self, budgets: Mapping[TopicPartition, int], timeout_s: float = 0.5
    ) -> dict[int, range]:
        """partition's number -> what one poll hands out; it must be without errors."""
        poll = await self.consumer.poll(budgets, timeout_s)
        assert poll.errors == {}
        taken: dict[int, Any] = {chunk.partition.partition: chunk.records for chunk in poll.chunks}
        return taken


@asynccontextmanager
async def reading(
    broker: MemoryBroker, *, partitions: int = 1, named: Collection[TopicPartition] = ()
) -> AsyncIterator[Reader]:
    broker.create_topic("topic", partitions)
    inner = broker.connector().consumer(
        name="ranges",
        subscription=Partitions(tuple(named)) if named else Topics(("topic",)),
        group_id="group",
        properties={},
    )
    reader = Reader(Spy(inner))
    reader.starts_by_itself = not named
    await reader.consumer.start(reader)
    try:
        await reader.until_assigned(len(named) or partitions)
        yield reader
    finally:
        await reader.consumer.stop()
        await broker.close()


def produce(broker: MemoryBroker, records: int, partition: TopicPartition = P) -> None:
    for _ in range(records):
        broker.produce(partition.topic, b"x", partition=partition.partition)


@in_virtual_time
async def test_the_client_underneath_is_only_ever_polled_for_nothing_and_its_partitions_never_begin() -> (
    None
):
    broker = make_broker()
    async with reading(broker) as reader:
        produce(broker, 500)
        assert await reader.offsets({P: 9999}) == {0: range(500)}
        reader.consumer.pause([P])
        reader.consumer.resume([P])
        reader.consumer.start_at({P: 3})
        assert await reader.offsets({P: 9999}) == {0: range(3, 500)}
        assert reader.spy.polled
        assert not any(reader.spy.polled)
        asked = {name for name, _ in reader.spy.calls}
        assert asked.isdisjoint({"start_at", "resume", "pause"})


@in_virtual_time
async def test_a_record_each_millisecond_costs_one_look_in_a_fifth_of_a_second() -> None:
    broker = make_broker()
    loop = asyncio.get_running_loop()
    async with reading(broker) as reader:
        began = loop.time()

        async def trickle() -> None:
            while loop.time() < began + 4.0:
                produce(broker, 1)
                await asyncio.sleep(0.001)

        producing = asyncio.create_task(trickle())
        taken: list[int] = []
        polls = 0
        while loop.time() < began + 4.0:
            polls += 1
            taken += [
                offset
                for offsets in (await reader.offsets({P: 9999})).values()
                for offset in offsets
            ]
        await producing
        assert len(taken) > 3_500
        assert taken == list(range(len(taken)))
        assert 15 <= len(reader.spy.times("end_offsets")) <= 22
        assert polls <= 22


@in_virtual_time
async def test_an_idle_member_is_polled_all_the_time_with_budgets_and_without() -> None:
    broker = make_broker()
    loop = asyncio.get_running_loop()
    async with reading(broker) as reader:
        for budgets in ({}, {P: 9}):
            began = loop.time()
            while loop.time() < began + 60.0:
                assert await reader.offsets(budgets) == {}
            polled = [at for at in reader.spy.times("poll") if at >= began]
            assert max(later - earlier for earlier, later in pairwise(polled)) <= 0.5
            assert len(polled) < 1_000
        # Of the second minute alone.
        assert 250 < len(reader.spy.times("end_offsets")) <= 302
        # The test's own: nothing new, nothing to look up.
        assert reader.spy.times("beginning_offsets") == [0.0]


@in_virtual_time
async def test_a_backlog_is_handed_out_by_budgets_without_a_look_for_each() -> None:
    broker = make_broker()
    async with reading(broker) as reader:
        produce(broker, 1000)
        began = asyncio.get_running_loop().time()
        taken: list[int] = []
        while len(taken) < 1000:
            [offsets] = (await reader.offsets({P: 10})).values()
            assert len(offsets) == 10
            taken += offsets
        assert taken == list(range(1000))
        assert asyncio.get_running_loop().time() == began
        assert len(reader.spy.times("end_offsets")) == 1


@in_virtual_time
async def test_a_backlog_does_not_keep_another_partition_from_being_looked_at() -> None:
    broker = make_broker(2)
    async with reading(broker, partitions=2) as reader:
        produce(broker, 10_000, P)
        assert await reader.offsets({P: 1, Q: 9}) == {0: range(1)}
        produce(broker, 3, Q)
        for _ in range(10):
            taken = await reader.offsets({P: 1, Q: 9})
            if 1 in taken:
                break
            await asyncio.sleep(0.1)
        assert taken[1] == range(3)


@in_virtual_time
async def test_a_look_that_is_held_up_holds_up_no_poll_and_no_wake() -> None:
    broker = make_broker()
    loop = asyncio.get_running_loop()
    async with reading(broker) as reader:
        produce(broker, 5)
        hold = broker.hold("end_offsets")
        began = loop.time()
        assert await reader.offsets({P: 9}) == {}
        assert loop.time() == began + 0.5
        waiting = asyncio.create_task(reader.offsets({P: 9}, 60.0))
        await asyncio.sleep(0.1)
        reader.consumer.wake()
        assert await waiting == {}
        assert loop.time() == began + 0.6
        waiting = asyncio.create_task(reader.offsets({P: 9}, 60.0))
        await asyncio.sleep(0.1)
        hold.release()
        assert await waiting == {0: range(5)}
        assert loop.time() == began + 0.7


@in_virtual_time
async def test_an_answer_from_before_a_seek_says_nothing_about_the_place_of_after_it() -> None:
    broker = make_broker()
    async with reading(broker) as reader:
        produce(broker, 5)
        # The broker has said 5; the answer is on its way.
        hold = broker.hold("end_offsets", answer=True)
        assert await reader.offsets({P: 9}) == {}
        produce(broker, 5)
        reader.consumer.start_at({P: 10})
        hold.release()
        # And no error.
        assert await reader.offsets({P: 9}) == {}
        assert reader.consumer.positions() == {P: 10}
        produce(broker, 1)
        assert await reader.offsets({P: 9}) == {0: range(10, 11)}


@in_virtual_time
async def test_an_answer_from_before_a_rebalance_says_nothing_about_the_next_assignment() -> None:
    broker = make_broker()
    async with reading(broker) as reader:
        produce(broker, 5)
        hold = broker.hold("end_offsets", answer=True)
        assert await reader.offsets({P: 9}) == {}
        broker.delete_records(P, 5)
        reader.starts_by_itself = False
        before = reader.generation
        broker.rebalance("group")
        await reader.until(lambda: reader.generation > before and bool(reader.owned))
        hold.release()
        assert await reader.offsets({P: 9}) == {}
        assert reader.consumer.positions() == {}
        reader.consumer.start_at({P: 5})
        assert await reader.offsets({P: 9}) == {}


@in_virtual_time
async def test_a_log_that_was_cut_off_below_the_position_is_told_once_a_look() -> None:
    broker = make_broker()
    loop = asyncio.get_running_loop()
    async with reading(broker) as reader:
        produce(broker, 8)
        assert await reader.offsets({P: 9}) == {0: range(8)}
        broker.truncate(P, 3)
        began = loop.time()
        errors: list[BrokerError] = []
        while loop.time() < began + 2.0:
            poll = await reader.consumer.poll({P: 9}, 0.5)
            assert poll.chunks == []
            errors += poll.errors.values()
        assert 5 <= len(errors) <= 11
        assert {(type(error), getattr(error, "offset", None)) for error in errors} == {
            (OffsetOutOfRangeError, 8)
        }
        reader.consumer.start_at({P: 1})
        assert await reader.offsets({P: 9}) == {0: range(1, 3)}


@in_virtual_time
async def test_after_a_seek_the_log_s_beginning_is_looked_up_before_anything_is_handed_out() -> (
    None
):
    broker = make_broker()
    async with reading(broker) as reader:
        produce(broker, 8)
        assert await reader.offsets({P: 2}) == {0: range(2)}
        broker.delete_records(P, 4)
        reader.consumer.start_at({P: 1})
        poll = await reader.consumer.poll({P: 9}, 0.5)
        assert (poll.chunks, list(poll.errors)) == ([], [P])
        reader.consumer.start_at({P: 4})
        assert await reader.offsets({P: 9}) == {0: range(4, 8)}


@in_virtual_time
async def test_an_error_that_nobody_has_asked_for_yet_is_forgotten_at_a_seek() -> None:
    broker = make_broker()
    async with reading(broker) as reader:
        produce(broker, 8)
        assert await reader.offsets({P: 9}) == {0: range(8)}
        broker.truncate(P, 3)
        await asyncio.sleep(1.0)
        # A look begins.
        await reader.offsets({P: 9}, 0.0)
        await asyncio.sleep(0.1)
        # And is over, and its partition left out.
        await reader.offsets({}, 0.0)
        reader.consumer.start_at({P: 1})
        assert await reader.offsets({P: 9}) == {0: range(1, 3)}


@in_virtual_time
async def test_a_look_that_fails_is_made_again_and_missing_rights_are_told() -> None:
    broker = make_broker()
    async with reading(broker) as reader:
        produce(broker, 5)
        broker.fail_next("end_offsets", TransientBrokerError("away"), times=3)
        taken: dict[int, range] = {}
        while not taken:
            taken = await reader.offsets({P: 9})
        assert taken == {0: range(5)}
        assert asyncio.get_running_loop().time() == pytest.approx(0.6, abs=0.01)
        produce(broker, 1)
        broker.fail_next("end_offsets", FatalBrokerError("no right"))
        with pytest.raises(FatalBrokerError, match="no right"):
            await reader.offsets({P: 9})
        while not (taken := await reader.offsets({P: 9})):
            pass
        assert taken == {0: range(5, 6)}


@in_virtual_time
async def test_a_partition_that_does_not_exist_yet_flows_when_it_does_and_holds_up_nobody() -> None:
    broker = make_broker()
    async with reading(broker, named=[P, Q]) as reader:
        reader.consumer.start_at({P: 0, Q: 0})
        produce(broker, 5)
        assert await reader.offsets({P: 9, Q: 9}) == {0: range(5)}
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began + 10.0:
            assert await reader.offsets({P: 9, Q: 9}) == {}
        assert len(reader.spy.times("topics")) <= 6
        broker.create_topic("topic", 2)
        produce(broker, 2, Q)
        created = asyncio.get_running_loop().time()
        while not (taken := await reader.offsets({P: 9, Q: 9})):
            pass
        assert taken == {1: range(2)}
        assert asyncio.get_running_loop().time() - created <= 2.5


@in_virtual_time
async def test_stop_ends_a_look_that_is_held_up() -> None:
    broker = make_broker()
    before = asyncio.all_tasks()
    async with reading(broker) as reader:
        broker.hold("end_offsets")
        await reader.offsets({P: 9})
        assert any(task.get_name() == "look at the ends of logs" for task in asyncio.all_tasks())
        await reader.consumer.stop()
        assert reader.consumer.positions() == {}
        assert not any(
            task.get_name() == "look at the ends of logs" for task in asyncio.all_tasks()
        )
    assert asyncio.all_tasks() == before


@in_virtual_time
async def test_a_partition_whose_leader_does_not_answer_holds_up_no_other_one() -> None:
    broker = make_broker()
    async with reading(broker, partitions=2) as reader:
        both = {P: 10, Q: 10}
        broker.leader_away(P)
        produce(broker, 5, Q)
        assert await reader.offsets(both) == {}
        # A channel looks every two seconds.
        await reader.consumer.look([P, Q])
        assert await reader.offsets(both) == {1: range(5)}
        broker.leader_back(P)
        produce(broker, 2)
        await reader.consumer.look([P, Q])
        assert await reader.offsets(both) == {0: range(2)}
