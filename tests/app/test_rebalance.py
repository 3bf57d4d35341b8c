"""Partitions that come, go, and come straight back: what is in flight, what waits, and what is
committed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, TopicPartition
from reactive_kafka.events import HandlerAbandoned, Rebalanced
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    rebalanced,
    running,
    send,
    tp,
    until,
)


@asynccontextmanager
async def another_member(
    broker: MemoryBroker, **orders: Any
) -> AsyncIterator[list[Message[bytes]]]:
    """A second application in the group; what it handles."""
    app, seen = make_app(**orders), list[Message[bytes]]()
    keep_messages(app, seen)

    async with TestApp(app, broker=broker):
        yield seen


def manual_app(kept: list[Message[bytes]], recorder: Recorder | None = None, **orders: Any) -> App:
    """An application that keeps its messages, to be settled by the test."""
    app = make_app(recorder, ack="manual", **orders)
    keep_messages(app, kept)

    return app


def waiting_app(
    go_on: asyncio.Event, seen: list[int], recorder: Recorder | None = None, **orders: Any
) -> App:
    """An application whose handler waits for *go_on*."""
    app = make_app(recorder, **orders)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        await go_on.wait()

    return app


# -- letting go


@in_virtual_time
async def test_an_attempt_that_waits_for_a_worker_does_not_begin_in_a_revocation() -> None:
    story: list[str] = []
    app = make_app(
        concurrency=1, revoke_grace="10s", retry={"max_attempts": 2, "backoff": 1, "jitter": 0}
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        story.append(message.payload.decode())
        if message.payload == b"slow":
            await asyncio.sleep(4)
            story.append("slow has ended")
        elif story.count("failing") == 1:
            raise ValueError("the first time")

    @app.on_revoked("orders")
    async def hook(partitions: frozenset[TopicPartition]) -> None:
        story.append("revoked")

    async with running(app, partitions=2) as test:
        await send(test, b"failing", partition=0)
        await until(lambda: story)
        await send(test, b"slow", partition=1)
        # The next attempt is due now, and the only worker is busy.
        await asyncio.sleep(2)
        await rebalanced(test)
        await until(lambda: committed(test, 0) == 1)
    assert story[:5] == ["failing", "slow", "slow has ended", "revoked", "failing"]


@in_virtual_time
async def test_a_revocation_waits_for_handlers_then_hooks_then_the_rest_then_commits() -> None:
    story, kept = [], list[Message[bytes]]()
    app = make_app(revoke_grace="10s", commit_interval="100s", concurrency=2)

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        if message.partition == 0:
            await asyncio.sleep(4)
            story.append(("handler has ended", round(now() - began)))
            message.ack()
        kept.append(message)

    @app.on_revoked("orders")
    async def hook(partitions: frozenset[TopicPartition]) -> None:
        story.append(("hook", round(now() - began)))
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_later(2, ack_the_other)

    def ack_the_other() -> None:
        story.append(("last ack", round(now() - began)))
        next(message for message in kept if message.partition == 1).ack()

    async with running(app, partitions=2) as test:
        began = now()
        test.broker.watch_commits(
            "billing", lambda entry: story.append(("commit", round(entry.at - began)))
        )
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: kept)
        await rebalanced(test)
        assert (committed(test, 0), committed(test, 1)) == (1, 1)
    assert story[:4] == [("handler has ended", 4), ("hook", 4), ("last ack", 7), ("commit", 7)]
    assert positions(test.broker) == [1]


@in_virtual_time
async def test_a_revocation_with_nothing_in_flight_takes_no_time() -> None:
    app = manual_app([], revoke_grace="30s")
    async with running(app) as test:
        began = now()
        await rebalanced(test)
        assert now() - began < 0.1


@in_virtual_time
async def test_after_the_grace_it_goes_on_without_the_handler_and_says_so() -> None:
    """Row C7 of the faults."""
    recorder, go_on, seen = Recorder(), asyncio.Event(), list[int]()
    app = waiting_app(go_on, seen, recorder, revoke_grace="3s")
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: seen)
        began = now()
        await rebalanced(test)
        assert 3 <= now() - began < 3.2
        (event,) = recorder.of(HandlerAbandoned)
        assert (event.during, event.records, round(event.waited_s)) == ("revocation", 1, 3)
        assert facts(test).abandoned_handlers == 1
        go_on.set()
        await test.settled()
        assert seen == [0]


@in_virtual_time
async def test_what_waits_when_a_partition_is_revoked_waits_on_until_it_comes_straight_back() -> (
    None
):
    go_on, seen = asyncio.Event(), list[int]()
    app = waiting_app(go_on, seen, revoke_grace="1s")
    async with running(app) as test:
        await send(test, b"", b"", b"", b"")
        await until(lambda: facts(test).partitions and facts(test).partitions[0].queued == 3)
        began = asyncio.ensure_future(rebalanced(test))
        await asyncio.sleep(0.5)
        assert facts(test).partitions[0].queued == 3
        assert seen == [0]
        go_on.set()
        await began
        await test.settled()
    assert seen == [0, 1, 2, 3]


@in_virtual_time
async def test_no_handler_is_called_while_letting_go() -> None:
    go_on, seen = asyncio.Event(), list[int]()
    app = waiting_app(go_on, seen, revoke_grace="5s", concurrency=3)
    async with running(app, partitions=2) as test:
        await send(test, b"", b"", partition=0)
        await until(lambda: seen)
        letting_go = asyncio.ensure_future(rebalanced(test))
        await asyncio.sleep(1)
        await send(test, b"", partition=1)
        await send(test, b"", partition=0)
        await asyncio.sleep(1)
        assert seen == [0]
        go_on.set()
        await letting_go
        await test.settled()
    assert Counter(seen) == {0: 2, 1: 1, 2: 1}


# -- coming straight back


@in_virtual_time
async def test_what_is_in_flight_is_not_delivered_again_and_its_ack_counts() -> None:
    kept: list[Message[bytes]] = []
    app = manual_app(kept, revoke_grace="100ms", commit_interval="1s")
    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: len(kept) == 3)
        kept[1].ack()
        for _ in range(3):
            await rebalanced(test)
        assert [message.offset for message in kept] == [0, 1, 2]
        assert await kept[0].ack() is True
        await asyncio.sleep(1.5)
        assert committed(test) == 2
        assert await kept[2].ack() is True
        await test.settled()
        assert [message.offset for message in kept] == [0, 1, 2]


@in_virtual_time
async def test_a_batch_in_flight_is_not_delivered_again() -> None:
    app, seen, go_on = (
        make_app(revoke_grace="100ms", batch_max_records=3, batch_max_wait="100ms"),
        [],
        asyncio.Event(),
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        seen.append([message.offset for message in batch])
        await go_on.wait()

    async with running(app) as test:
        await send(test, *[b""] * 5)
        await until(lambda: seen)
        await rebalanced(test)
        go_on.set()
        await test.settled()
    assert seen == [[0, 1, 2], [3, 4]]


@in_virtual_time
async def test_an_ack_between_two_assignments_is_answered_when_the_partition_is_back() -> None:
    kept: list[Message[bytes]] = []
    app = manual_app(kept, revoke_grace="100ms")
    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: len(kept) == 2)
        asking = test.broker.hold("committed")
        test.broker.rebalance("billing")
        await asking.arrived()
        ack, nack = kept[0].ack(), kept[1].nack(ValueError("later"))
        second = kept[0].ack()
        assert (ack.done(), nack.done(), second.done()) == (False, False, True)
        asking.release()
        assert (await ack, await nack, await second) == (True, True, False)
        # The nack is carried out now.
        await until(lambda: facts(test).state == "failed")
        await until(lambda: committed(test) == 1)


@in_virtual_time
async def test_a_partition_that_was_elsewhere_in_between_answers_false_and_is_read_from_its_position() -> (
    None
):
    """Row C6 of the faults."""
    kept: list[Message[bytes]] = []
    app = manual_app(kept, revoke_grace="100ms")
    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: len(kept) == 2)
        # Which gets partition 1, and keeps it for a while.
        async with another_member(test.broker) as theirs:
            await until(lambda: theirs)
            assert theirs[0].topic_partition == tp(1)
            (lost,) = (message for message in kept if message.partition == 1)
            assert await lost.ack() is False
        await until(lambda: len(test.app.channel("orders").assignment) == 2)
        assert {known.partition: known.position for known in facts(test).partitions} == {
            tp(0): 1,
            tp(1): 1,
        }
        assert len(kept) == 2
        assert await lost.ack() is False
        assert await kept[1 - kept.index(lost)].ack() is True
        await test.settled()


@in_virtual_time
async def test_a_late_ack_of_a_handler_that_outlived_its_assignment_commits_nothing() -> None:
    """Row C6 of the faults."""
    go_on, seen = asyncio.Event(), list[int]()
    app = waiting_app(go_on, seen, revoke_grace="100ms", commit_interval="100ms", concurrency=2)
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: seen)
        (member,) = test.broker.members("billing")
        before = test.broker.generation("billing")
        test.broker.expire("billing", member, notice_after_s=0.5)
        await until(lambda: test.broker.generation("billing") >= before + 2 and len(seen) == 2)
        # Delivered again: nobody knows what became of it in between.
        assert seen == [0, 0]
        assert committed(test) is None
        go_on.set()
        await test.settled()
        assert positions(test.broker) == [1]


@in_virtual_time
async def test_acks_of_earlier_assignments_to_the_same_member_answer_false_and_count_as_nothing() -> (
    None
):
    """Row C6 of the faults."""
    kept: list[Message[bytes]] = []
    app = manual_app(kept, revoke_grace="100ms", commit_interval="100ms")
    async with running(app) as test:
        await send(test, b"", b"")
        # It is thrown out, and gets its partition anew, without anybody else having had it.
        for times in (1, 2):
            await until(lambda: len(kept) == 2 * times)  # noqa: B023
            (member,) = test.broker.members("billing")
            before = test.broker.generation("billing")
            test.broker.expire("billing", member, notice_after_s=0.5)
            await until(lambda: test.broker.generation("billing") >= before + 2)  # noqa: B023
        await until(lambda: len(kept) == 6)
        first, second, third = kept[:2], kept[2:4], kept[4:]
        assert [await message.ack() for message in (*first, *second)] == [False] * 4
        assert await first[0].nack(ValueError("late")) is False
        await asyncio.sleep(1)
        assert positions(test.broker) == []
        assert facts(test).totals[tp()].acked == 0
        assert facts(test).totals[tp()].nacked.get("fail", 0) == 0
        assert facts(test).rebalances["lost"] == 2
        assert facts(test).state == "running"
        assert [await message.ack() for message in third] == [True, True]
        await until(lambda: positions(test.broker) == [2])
        assert facts(test).totals[tp()].acked == 2


@in_virtual_time
async def test_a_member_that_was_thrown_out_has_lost_its_partitions_and_commits_nothing_of_them() -> (
    None
):
    """Row C4 of the faults."""
    recorder, kept = Recorder(), list[Message[bytes]]()
    app = manual_app(kept, recorder, revoke_grace="100ms", commit_interval="1s")
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: kept)
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member, notice_after_s=5.0)
        kept[0].ack()
        await until(lambda: len(kept) == 2)
        assert test.broker.commits("billing") == ()
        assert facts(test).rebalances["lost"] == 1
        assert [event.kind for event in recorder.of(Rebalanced)] == ["assigned", "lost", "assigned"]
        kept[1].ack()
        await test.settled()


# -- several members


@in_virtual_time
async def test_a_member_that_joins_and_leaves_gracefully_costs_no_record_and_no_duplicate() -> None:
    app, mine, broker = (
        make_app(concurrency=4, commit_interval="500ms"),
        list[Message[bytes]](),
        make_broker(4),
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await asyncio.sleep(0.05)
        mine.append(message)

    async with running(app, broker=broker) as test:
        produced = 0

        async def produce(count: int) -> None:
            nonlocal produced
            for _ in range(count):
                await send(test, b"", partition=produced % 4)
                produced += 1
                await asyncio.sleep(0.01)

        await produce(50)
        async with another_member(broker) as theirs:
            await until(lambda: len(test.app.channel("orders").assignment) == 2)
            await produce(50)
            await test.settled(timeout=30)
            assert len({message.partition for message in theirs}) == 2
            await produce(20)
        await produce(50)
        await test.settled(timeout=30)
    seen = Counter((message.partition, message.offset) for message in (*mine, *theirs))
    assert len(seen) == produced == 170
    assert set(seen.values()) == {1}


@in_virtual_time
async def test_nothing_is_handled_or_committed_for_partitions_of_others() -> None:
    app, seen, broker = make_app(commit_interval="100ms"), set[int](), make_broker(2)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        assert message.topic_partition in app.channel("orders").assignment
        seen.add(message.partition)

    async with running(app, broker=broker) as test, another_member(broker):
        await until(lambda: len(app.channel("orders").assignment) == 1)
        mine = {partition.partition for partition in app.channel("orders").assignment}
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await test.settled()
        assert seen == mine
        (first, _) = broker.members("billing")
        by_me = [entry for entry in broker.commits("billing") if entry.member == first]
        assert {partition.partition for entry in by_me for partition in entry.offsets} <= mine
        assert facts(test).has_joined
        assert app.health().status == "UP"


async def test_a_member_without_partitions_is_ready() -> None:
    broker = make_broker(1)
    async with another_member(broker), another_member(broker):
        apps = []
        app = manual_app([])
        async with running(app, broker=broker) as test:
            apps.append(test)
            assert test.app.channel("orders").assignment == frozenset()
            assert app.health().status == "UP"
            assert app.health().started.status == "UP"
    await broker.close()


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_storm_of_rebalances_loses_nothing_and_never_commits_ahead(seed: int) -> None:
    """Members come and go, rebalances come at any moment, acks come out of order: every record is
    handled.

    Row C2 of the faults.
    """
    chance, broker = random.Random(seed), make_broker(3)
    handled: set[tuple[int, int]] = set()
    ahead: list[object] = []

    def member(number: int) -> App:
        app = make_app(
            concurrency=3,
            ordering=chance.choice(["partition", "unordered"]),
            commit_interval="300ms",
            revoke_grace=chance.choice(["0s", "200ms", "2s"]),
            max_in_flight=chance.choice([4, 1000]),
        )

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await asyncio.sleep(chance.random() * 0.6)
            handled.add((message.partition, message.offset))

        return app

    def check(entry: Any) -> None:
        for partition, at in entry.offsets.items():
            missing = {(partition.partition, offset) for offset in range(at.offset)} - handled
            if missing:
                ahead.append((entry, missing))

    broker.watch_commits("billing", check)
    async with running(member(0), broker=broker) as test:
        sent = 0
        for _ in range(12):
            for _ in range(chance.randrange(15)):
                await send(test, b"", partition=chance.randrange(3))
                sent += 1
            happening: Callable[[], Any] = chance.choice(
                [
                    lambda: broker.rebalance("billing"),
                    lambda: rebalanced(test),
                    lambda: asyncio.sleep(1),
                ]
            )
            waiting = happening()
            if waiting is not None:
                await waiting
            if chance.random() < 0.4:
                async with TestApp(member(1), broker=broker):
                    await asyncio.sleep(chance.random())
            await asyncio.sleep(chance.random() * 0.3)
        await test.settled(timeout=60)
        for partition in range(3):
            assert positions(broker, partition) == sorted(positions(broker, partition)), (
                "a position went back"
            )
    assert len(handled) == sent
    assert ahead == []


@in_virtual_time
async def test_twenty_members_that_come_at_once_and_go_cost_no_record_and_no_commit() -> None:
    """Row C2 of the faults."""
    members, partitions = 20, 40
    broker, handled = make_broker(partitions), Counter[tuple[int, int]]()

    def member() -> App:
        app = make_app(commit_interval="300ms", revoke_grace="2s", concurrency=3)

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            await asyncio.sleep(0.05)
            handled[message.partition, message.offset] += 1

        return app

    async def load() -> None:
        while True:
            for partition in range(partitions):
                broker.produce("orders", b"", partition=partition)
            await asyncio.sleep(0.2)

    ahead: list[object] = []
    broker.watch_commits(
        "billing",
        lambda entry: ahead.extend(
            (tp, offset)
            for tp, at in entry.offsets.items()
            for offset in range(at.offset)
            if (tp.partition, offset) not in handled
        ),
    )
    async with TestApp(member(), broker=broker) as test:
        loading = asyncio.ensure_future(load())
        for _ in range(3):
            generation = broker.generation("billing")
            apps = [TestApp(member(), broker=broker) for _ in range(members - 1)]
            await asyncio.gather(*(app.__aenter__() for app in apps))
            assert len(broker.members("billing")) == members
            assert {len(owned) for owned in broker.members("billing").values()} == {
                partitions // members
            }
            assert broker.generation("billing") > generation
            stored = len(broker.commits("billing"))
            await asyncio.sleep(1)
            assert len(broker.commits("billing")) > stored, "commits do not go on"
            await asyncio.gather(*(app.__aexit__(None, None, None) for app in apps))
        loading.cancel()
        await test.settled(timeout=60)
        ends = {broker.end(tp(partition)) for partition in range(partitions)}
        assert {committed(test, partition) for partition in range(partitions)} == ends
    assert ahead == []
    assert set(handled) == {
        (partition, offset) for partition in range(partitions) for offset in range(max(ends))
    }
    assert set(handled.values()) == {1}, "handlers end within the grace: nothing is repeated"
    for partition in range(partitions):
        assert positions(broker, partition) == sorted(positions(broker, partition))


@in_virtual_time
async def test_a_revocation_does_not_wait_for_the_next_attempt_and_the_record_is_tried_again_when_it_is_back() -> (
    None
):
    calls: list[float] = []
    app = make_app(
        revoke_grace="30s", retry={"max_attempts": 5, "backoff": "1m", "max_backoff": "1m"}
    )

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        calls.append(now())
        if len(calls) == 1:
            raise ValueError("not yet")

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: calls)
        await asyncio.sleep(1)
        began = now()
        await rebalanced(test)
        assert now() - began < 0.5
        await test.settled()
        assert len(calls) == 3
        assert committed(test) == 2


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
@pytest.mark.parametrize("verdict", ["ack", "nack"])
@pytest.mark.parametrize("after", ["before it is back", "when it is back"])
@in_virtual_time
async def test_a_record_that_waits_to_be_tried_again_is_not_once_it_has_its_verdict(
    after: str, verdict: str, ordering: str
) -> None:
    recorder, calls = Recorder(), list[Message[bytes]]()
    app = make_app(
        recorder,
        ack="manual",
        ordering=ordering,
        revoke_grace="100ms",
        failure_strategy="ignore",
        commit_interval="100ms",
        retry={"max_attempts": 5, "backoff": "1m", "max_backoff": "1m"},
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        calls.append(message)
        if len(calls) == 1:
            raise ValueError("not yet")
        message.ack()

    async with running(app) as test:
        await send(test, b"", b"")
        await until(lambda: calls)
        asking = test.broker.hold("committed")
        test.broker.rebalance("billing")
        await asking.arrived()
        if after == "when it is back":
            app.channel("orders").pause()
            asking.release()
            await until(lambda: facts(test).partitions)
        first = calls[0]
        answer = first.ack() if verdict == "ack" else first.nack(ValueError("no"))
        if after == "when it is back":
            assert facts(test).partitions[0].in_flight == 0
            app.channel("orders").resume()
        asking.release()
        assert await answer is True
        await test.settled()
        assert [message.offset for message in calls] == [0, 1]
        assert committed(test) == 2
    assert recorder.of(HandlerAbandoned) == []


@in_virtual_time
async def test_a_batch_that_waits_to_be_tried_again_is_not_once_it_is_acked() -> None:
    batches = list[Batch[bytes]]()
    app = make_app(
        ack="manual",
        batch_max_records=2,
        revoke_grace="100ms",
        retry={"max_attempts": 5, "backoff": "1m", "max_backoff": "1m"},
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        batches.append(batch)
        if len(batches) == 1:
            raise ValueError("not yet")
        batch.ack()

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: batches)
        asking = test.broker.hold("committed")
        test.broker.rebalance("billing")
        await asking.arrived()
        answer = batches[0].ack()
        asking.release()
        assert await answer is True
        await test.settled()
        assert [[message.offset for message in batch] for batch in batches] == [[0, 1], [2]]


@in_virtual_time
async def test_a_batch_of_which_one_partition_has_gone_settles_the_records_of_the_others() -> None:
    app, go_on, broker = (
        make_app(batch_max_wait="10ms", revoke_grace="0s"),
        asyncio.Event(),
        make_broker(2),
    )
    sizes: list[int] = []

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        sizes.append(len({message.partition for message in batch}))
        await go_on.wait()

    async with running(app, broker=broker) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: sizes)
        assert sizes == [2]
        async with another_member(broker) as seen:
            await until(lambda: seen)
            mine = next(iter(test.app.channel("orders").assignment))
            go_on.set()
            await until(lambda: facts(test).partitions[0].committed == 1)
            assert mine.partition != seen[0].partition
            assert facts(test).partitions[0].in_flight == 0
    await broker.close()
