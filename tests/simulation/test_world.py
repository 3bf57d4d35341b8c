"""What the simulation sees, and what it makes of that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import RecordBytes, TopicPartition
from reactive_kafka.subscription import Partitions
from reactive_kafka.testing import FakeClock
from tests.simulation.checker import Headers, Place
from tests.simulation.disturb import Disturbances
from tests.simulation.loop import run_seeded
from tests.simulation.member import encode
from tests.simulation.run import scenario_of
from tests.simulation.scenario import GROUP, LETTERS, RETRY_TOPICS, TOPIC, Fault, Load
from tests.simulation.seam import Seam
from tests.simulation.world import LOOK_S, World

FIRST, SECOND = RETRY_TOPICS
RETRIED: Headers = (
    ("delayed-retry-topic", TOPIC.encode()),
    ("delayed-retry-partition", b"0"),
    ("delayed-retry-offset", b"0"),
    ("delayed-retry-count", b"1"),
)
DEAD: Headers = tuple(
    (name.replace("delayed-retry", "dead-letter"), value) for name, value in RETRIED
)
RECORD = Load("a", 0.0, 0, "k", "quick", 0, 0.0, headers=(("trace", b"1"),))


class Reader:
    """Reads a partition as an application in no group does."""

    def __init__(self, world: World, topic: str) -> None:
        seam = self.seam = Seam(
            "A1",
            world.broker.connector(),
            world.note,
            world.called,
            world.next_request,
            sent=world.sent,
        )
        self._partition = TopicPartition(topic, 0)
        self._consumer = seam.consumer(
            name="reader", subscription=Partitions((self._partition,)), group_id=None, properties={}
        )
        self.producer = seam.producer(name="writer", properties={})

    async def start(self) -> None:
        await self._consumer.start(self)
        self._consumer.start_at({self._partition: 0})
        self._consumer.resume([self._partition])
        await self.producer.start()

    async def on_assigned(self, *_: Any) -> None:
        """It is in no group, and has its partition from the start."""

    async def records(self) -> list[Any]:
        polled = await self._consumer.poll({self._partition: 10}, 1.0)
        return [record for chunk in polled.chunks for record in chunk.records]

    async def write(self, topic: str, record: Any, ours: Headers) -> None:
        """As an application does for a record that has failed: its own headers stand behind
        ours.
        """
        own = tuple(
            header for header in record.headers if not header[0].startswith("delayed-retry")
        )
        answer = await self.producer.send(
            topic,
            record.value,
            key=record.key,
            partition=0,
            headers=(*ours, *own),
            timestamp_ms=None,
        )
        await answer

    async def stop(self) -> None:
        await self._consumer.stop()
        await self.producer.stop()


def ended(kind: str, world: World) -> list[Place]:
    world.look_at_copies()
    return [(event.tp, event.offset) for event in world.events if event.kind == kind]


async def two_copies(world: World) -> Reader:
    """One record that stands in a retry topic twice, and whoever reads them there."""
    for topic in (TOPIC, *RETRY_TOPICS, LETTERS):
        world.broker.create_topic(topic, 1)
    world.produce(RECORD)
    for _ in range(2):
        world.broker.produce(
            FIRST, encode(RECORD), key=b"k", partition=0, headers=(*RETRIED, *RECORD.headers)
        )
    reader = Reader(world, FIRST)
    await reader.start()
    return reader


def played(story: Any) -> World:
    async def main(clock: FakeClock) -> World:
        world = World(scenario_of(1), clock, can_restart=False)
        reader = await two_copies(world)
        await story(world, reader)
        await reader.stop()
        await world.broker.close()
        return world

    return run_seeded(main, 1)


def test_of_two_copies_of_one_record_that_one_is_ended_that_the_next_copy_was_made_of() -> None:
    async def story(world: World, reader: Reader) -> None:
        _, second = await reader.records()
        await reader.write(SECOND, second, RETRIED)
        await reader.write(LETTERS, second, DEAD)

    world = played(story)
    assert ended("copy", world)[-1] == ((FIRST, 0), 1)
    assert ended("letter", world) == [((FIRST, 0), 1)]


def test_copies_that_are_written_in_a_batch_each_end_the_record_that_they_were_made_of() -> None:
    async def story(world: World, reader: Reader) -> None:
        records = await reader.records()
        batch = [
            RecordBytes(one.value, one.key, (*DEAD, *one.headers[len(RETRIED) :]))
            for one in records
        ]
        assert await reader.producer.partitions(LETTERS) == 1
        hold = world.broker.hold("send")
        writing = asyncio.ensure_future(reader.producer.write(TopicPartition(LETTERS, 0), batch))
        await hold.arrived()
        assert ended("letter", world) == []
        hold.release()
        assert await writing == (0, 2)

    world = played(story)
    assert ended("letter", world) == [((FIRST, 0), 0), ((FIRST, 0), 1)]


def test_an_application_that_is_cut_off_writes_no_batch() -> None:
    async def story(world: World, reader: Reader) -> None:
        reader.seam.is_cut = True
        for call in (
            reader.producer.partitions(LETTERS),
            reader.producer.write(TopicPartition(LETTERS, 0), [RecordBytes(b"x")]),
        ):
            with pytest.raises(TransientBrokerError, match="cut off"):
                await call
        reader.seam.is_cut = False
        assert world.broker.end(TopicPartition(LETTERS, 0)) == 0

    played(story)


def test_copies_of_one_failed_send_after_the_other_all_end_the_same_record() -> None:
    async def story(world: World, reader: Reader) -> None:
        _, second = await reader.records()
        for _ in range(3):
            await reader.write(SECOND, second, RETRIED)
            await asyncio.sleep(1.0)

    assert ended("copy", played(story))[-3:] == 3 * [((FIRST, 0), 1)]


def test_a_copy_is_judged_by_the_headers_that_it_has_without_those_of_the_simulation() -> None:
    async def story(world: World, reader: Reader) -> None:
        first, _ = await reader.records()
        await reader.write(LETTERS, first, DEAD)

    world = played(story)
    assert ended("letter", world) == [((FIRST, 0), 0)]
    assert world.letters[-1].headers == (*DEAD, *RECORD.headers)


def test_a_copy_that_has_lost_the_headers_of_its_record_is_of_the_one_that_it_names() -> None:
    async def story(world: World, reader: Reader) -> None:
        first, _ = await reader.records()
        await reader.write(LETTERS, replace(first, headers=()), DEAD)

    assert ended("letter", played(story)) == [((TOPIC, 0), 0)]


class Stand(World):
    """A world of two applications that only say how they are: one is dead, and takes long to be
    started again.
    """

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(scenario_of(1), clock, can_restart=True)
        self.looked: list[float] = []
        self.dead = SimpleNamespace(
            who="A1",
            is_leaving=False,
            is_restarting=False,
            looks_down=0,
            look=lambda: False,
            restart=self.takes_long,
            stop=self.takes_long,
        )
        self.well = SimpleNamespace(
            who="A2", is_leaving=False, is_restarting=False, look=self.is_looked_at
        )
        self.members = [self.dead, self.well]  # type: ignore[list-item]

    async def takes_long(self) -> None:
        self.dead.is_restarting = True
        await asyncio.sleep(5.0)
        self._is_over = True

    async def join(self) -> Any:
        """Nobody comes for it."""

    def is_looked_at(self) -> bool:
        self.looked.append(self.clock.monotonic())
        return True


class Replacing(World):
    """A world whose only application takes long to leave, and that counts those that join."""

    joins = 0

    async def join(self) -> Any:
        self.joins += 1


def test_an_application_that_is_being_replaced_when_all_is_healed_is_replaced_by_one() -> None:
    async def main(clock: FakeClock) -> int:
        world = Replacing(scenario_of(1), clock, can_restart=False)
        world.broker.create_topic(TOPIC, world.scenario.partitions)
        leaving = SimpleNamespace(stop=lambda: asyncio.sleep(5.0))
        world.members = [leaving]  # type: ignore[list-item]
        replaced = asyncio.create_task(world._start_again(leaving))  # type: ignore[arg-type]
        await asyncio.sleep(1.0)
        await world._heal()
        await replaced
        await world.broker.close()
        return world.joins

    assert run_seeded(main, 1) == 1


def test_while_one_application_is_started_again_the_others_are_looked_at() -> None:
    async def main(clock: FakeClock) -> Stand:
        stand = Stand(clock)
        await stand._supervise()
        return stand

    looked = run_seeded(main, 1).looked
    assert len(looked) >= 5.0 / LOOK_S
    assert max(after - before for before, after in pairwise(looked)) <= 2 * LOOK_S


def test_no_commit_fails_after_the_end_of_the_fault_and_what_others_hold_up_stays() -> None:
    async def story(world: World, _: Reader) -> None:
        fault = Fault("commit-fails", at=0.0, at_call=0, lasts_s=0.0, times=2, pick=0.5)
        faults = world.broker._state.faults
        await Disturbances(world).run(fault)
        assert faults.is_quiet("commit", GROUP)
        world.broker.hold("commit")
        await Disturbances(world).run(fault)
        assert not faults.is_quiet("commit", GROUP)

    world = played(story)
    assert [event.kind for event in world.events if event.note] == ["fault", "calm"] * 2


@pytest.mark.parametrize("pick", [number / 6 for number in range(6)])
def test_no_call_fails_after_the_end_of_its_fault(pick: float) -> None:
    async def story(world: World, _: Reader) -> None:
        fault = Fault("call-fails", at=0.0, at_call=0, lasts_s=0.0, times=3, pick=pick)
        await Disturbances(world).run(fault)
        scripts = world.broker._state.faults._scripts
        assert [call for (call, _), script in scripts.items() if script] == []

    world = played(story)
    assert [event.kind for event in world.events if event.note] == ["fault", "calm"]
