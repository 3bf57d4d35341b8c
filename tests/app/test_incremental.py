"""Incremental rebalances (KIP-429): some partitions move, and nothing else stops."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from reactive_kafka import App, Message, TopicPartition
from reactive_kafka.events import HandlerAbandoned, Rebalanced
from reactive_kafka.testing import MemoryBroker
from tests.app.brokers import AssignmentKind
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    inside,
    make_app,
    make_broker,
    running,
    send,
    tp,
    until,
)

BOTH = {tp(0), tp(1)}


class CooperativeBroker(MemoryBroker):
    """A broker whose consumers keep what stays their own."""

    def connector(self, *, assignment: AssignmentKind = "cooperative") -> Any:
        return super().connector(assignment=assignment)


class Working:
    """An application whose handler waits where it is told to, and what it has handled."""

    def __init__(self, **orders: object) -> None:
        self.recorder = Recorder()
        self.app = make_app(self.recorder, concurrency=4, **orders)
        self.may_go_on: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.seen: list[tuple[int, int]] = []
        self.done: list[tuple[int, int]] = []
        # Records in flight or queued, of all partitions, at each call.
        self.held: list[int] = []

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            at = message.partition, message.offset
            self.seen.append(at)
            self.held.append(
                sum(
                    one.in_flight + one.queued
                    for one in self.app.channel("orders").facts().partitions
                )
            )
            if message.payload == b"slow":
                await self.may_go_on[message.partition].wait()
            self.done.append(at)

    def partitions(self) -> dict[str, list[Any]]:
        """State -> the partitions that are in it, of the application's only client."""
        found = defaultdict[str, list[Any]](list)
        for one in inside(self.app).session.clients.consumers[0].table:
            found[one.state.name].append(one)
        return found

    def rebalances(self) -> list[tuple[str, set[TopicPartition]]]:
        return [
            (event.kind, set(event.partitions))
            for event in self.recorder.events
            if isinstance(event, Rebalanced)
        ]


def cooperative(partitions: int) -> CooperativeBroker:
    made = make_broker(partitions)
    return CooperativeBroker(made._state.clock, partitions=partitions)


@in_virtual_time
async def test_members_of_the_consumer_protocol_say_so_and_keep_what_stays_theirs() -> None:
    broker = make_broker(2)
    first, second = (Working(group_protocol="consumer") for _ in range(2))
    async with running(first.app, broker=broker) as test:
        assert facts(test).protocol == "consumer"
        async with joining(second.app, broker):
            await until(lambda: second.app.channel("orders").assignment)
            moved = set(second.app.channel("orders").assignment)
            assert len(moved) == 1
            assert first.rebalances()[:2] == [("assigned", BOTH), ("revoked", moved)]
            assert all(partitions <= moved for _, partitions in first.rebalances()[1:])
    await broker.close()


@in_virtual_time
async def test_a_partition_that_stays_is_handled_and_committed_while_another_one_waits_for_its_handler() -> (
    None
):
    broker, first, second = (
        cooperative(2),
        Working(revoke_grace="40s", commit_interval="1s"),
        Working(),
    )
    async with running(first.app, broker=broker) as test:
        for partition in range(2):
            await send(test, b"slow", partition=partition)
        await until(lambda: len(first.seen) == 2)
        async with joining(second.app, broker):
            await until(lambda: first.partitions()["DRAINING"])
            (going,), (staying,) = (
                first.partitions()["DRAINING"],
                first.partitions()["READING"],
            )
            stays, goes = staying.id.partition, going.id.partition
            first.may_go_on[stays].set()
            await send(test, b"a", b"b", partition=stays)
            await until(lambda: (stays, 2) in first.done)
            await until(lambda: committed(test, stays) == 3, 20)
            assert going.state.name == "DRAINING", (
                "all that happened while its handler was waited for"
            )
            await send(test, b"c", partition=goes)
            first.may_go_on[goes].set()
            await until(lambda: (goes, 1) in second.done, 30)
            assert first.done == [(stays, 0), (stays, 1), (stays, 2), (goes, 0)]
            assert committed(test, goes) is not None
            assert first.rebalances()[:2] == [("assigned", BOTH), ("revoked", {going.id})]
            assert all(partitions <= {going.id} for _, partitions in first.rebalances()[1:])
    await broker.close()


@in_virtual_time
async def test_hooks_hear_of_what_comes_and_of_what_goes_and_of_nothing_else() -> None:
    broker, told = cooperative(2), list[tuple[str, set[TopicPartition]]]()
    first, second = Working(), Working()

    @first.app.on_assigned("orders")
    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        told.append(("assigned", set(partitions)))

    @first.app.on_revoked("orders")
    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        told.append(("revoked", set(partitions)))

    async with running(first.app, broker=broker) as test:
        await until(lambda: facts(test).state == "running")
        async with joining(second.app, broker):
            await until(lambda: len(told) == 2)
            ((_, all_of_it), (kind, gone)) = told
            assert (all_of_it, kind, len(gone)) == (BOTH, "revoked", 1)
        await until(lambda: len(told) == 3, 60)
        assert told[2] == ("assigned", gone), "the second one has left, and its partition is back"
    assert told[3] == ("revoked", BOTH)
    await broker.close()


@in_virtual_time
async def test_a_seek_in_a_partition_that_stays_outlives_a_rebalance_of_others() -> None:
    broker, first, second = cooperative(2), Working(), Working()
    async with running(first.app, broker=broker) as test:
        for partition in range(2):
            await send(test, b"a", b"b", b"c", partition=partition)
        await until(lambda: len(first.done) == 6)
        async with joining(second.app, broker):
            await until(lambda: len(test.app.channel("orders").assignment) == 1, 30)
            (stays,) = test.app.channel("orders").assignment
            await test.app.channel("orders").seek(stays, 1)
            await until(lambda: first.done.count((stays.partition, 2)) == 2)
            assert first.done.count((stays.partition, 0)) == 1
    await broker.close()


@in_virtual_time
async def test_what_is_about_to_go_takes_room_until_it_has_gone() -> None:
    broker, second = cooperative(2), Working()
    first = Working(revoke_grace="20s", max_in_flight=4)
    async with running(first.app, broker=broker) as test:
        for partition in range(2):
            await send(test, b"slow", *[b"quick"] * 30, partition=partition)
        await until(lambda: len(first.seen) == 2)
        async with joining(second.app, broker):
            await until(lambda: first.partitions()["DRAINING"])
            (staying,) = first.partitions()["READING"]
            first.may_go_on[staying.id.partition].set()
            await until(lambda: (staying.id.partition, 30) in first.done)
            assert first.partitions()["DRAINING"], "all the while"
            assert max(first.held) == 4
            for partition in range(2):
                first.may_go_on[partition].set()
                second.may_go_on[partition].set()
            await until(lambda: len(second.done) >= 30, 60)
    await broker.close()


@in_virtual_time
async def test_a_window_is_not_exceeded_while_so_many_partitions_are_about_to_go_that_few_are_left() -> (
    None
):
    broker, second = cooperative(4), Working()
    first = Working(revoke_grace="20s", max_in_flight=5)

    def held() -> list[int]:
        return [one.in_flight + one.queued for one in facts(test).partitions]

    async with running(first.app, broker=broker) as test:
        await send(test, b"slow", b"quick", partition=1)
        await send(test, b"slow", partition=3)
        await until(lambda: held() == [0, 2, 0, 1])
        await asyncio.gather(
            *(send(test, b"quick", b"quick", partition=partition) for partition in (1, 3))
        )
        await until(lambda: held() == [0, 3, 0, 2])
        async with joining(second.app, broker):
            await until(lambda: len(first.partitions()["DRAINING"]) == 2)
            assert tp(0) in {one.id for one in first.partitions()["READING"]}
            await send(test, b"quick", partition=0)
            await asyncio.sleep(5)
            assert len(first.partitions()["DRAINING"]) == 2, "all the while"
            assert (0, 0) not in first.seen, "five others are in flight"
            for partition in range(4):
                first.may_go_on[partition].set()
                second.may_go_on[partition].set()
            await until(lambda: (0, 0) in first.done)
    await broker.close()


@in_virtual_time
async def test_what_a_lost_client_is_assigned_before_it_has_left_does_not_stay_for_its_successor() -> (
    None
):
    broker, first = cooperative(2), Working()
    async with running(first.app, broker=broker):
        await until(lambda: len(first.partitions()["READING"]) == 2)
        client = inside(first.app).session.clients[0]

        async def leave() -> None:
            await client.assignment.on_assigned(frozenset({tp(0)}), 7)

        await client.assignment.lose(leave)
        await client.assignment.on_assigned(frozenset({tp(1)}), 8)
        assert {one.id for one in client.table if one.is_ours} == {tp(1)}
    await broker.close()


@in_virtual_time
async def test_a_stop_tells_how_long_it_waited_also_when_others_rebalance_meanwhile() -> None:
    broker, first = cooperative(1), Working(drain_timeout="5s")
    async with running(first.app, broker=broker) as test:
        await send(test, b"slow")
        await until(lambda: first.seen)
        stopping = asyncio.create_task(first.app.stop())
        await asyncio.sleep(2)
        assignments = len(first.rebalances())
        async with joining(Working().app, broker):
            await until(lambda: len(first.rebalances()) > assignments)
            assert not stopping.done()
            await stopping
    (event,) = (one for one in first.recorder.events if isinstance(one, HandlerAbandoned))
    assert (event.during, event.records, round(event.waited_s)) == ("stop", 1, 5)
    await broker.close()


# Reads as what it does.
class joining:
    """A second application in the group; entered at once, though it may have to wait for its
    partitions.
    """

    def __init__(self, app: App, broker: MemoryBroker) -> None:
        self._app, self._broker = app, broker

    async def __aenter__(self) -> None:
        self._app.configure(overrides={"http": {"enabled": False}})
        self._app._connector, self._app._clock = self._broker.connector(), self._broker._state.clock
        await self._app.start()

    async def __aexit__(self, *_: object) -> None:
        await self._app.stop()
