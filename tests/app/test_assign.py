"""Channels that read what they are told to, without a group's assignment, and channels that read by
a pattern.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from reactive_kafka import App, Committed, Message, TransientBrokerError
from reactive_kafka.events import OffsetReset
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import broker_with, keep_messages
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_broker,
    running,
    tp,
    until,
)

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
Seen = list[tuple[str, int, int]]


def assigned_app(recorder: Recorder | None = None, **orders: Any) -> App:
    """An application with the channel orders, and no handler yet."""
    settings = {"group_id": "billing", "commit_interval": "100ms", **orders}
    return App(
        {"incoming": {"orders": {name: value for name, value in settings.items() if value}}},
        observer=recorder,
    )


def noting_app(seen: Seen, recorder: Recorder | None = None, **orders: Any) -> App:
    """An application that notes topic, partition and offset of what it gets."""
    app = assigned_app(recorder, **orders)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.topic, message.partition, message.offset))

    return app


def stored(broker: MemoryBroker) -> dict[int, int]:
    """partition of orders -> what the group has."""
    return {
        partition.partition: kept.offset for partition, kept in broker.committed("billing").items()
    }


def offsets(seen: Seen, partition: int = 0) -> list[int]:
    return [offset for topic, number, offset in seen if (topic, number) == ("orders", partition)]


# -- where reading begins


@pytest.mark.parametrize(
    ("assigned", "first"),
    [
        ("orders:0:3", 3),
        ("orders:0:0", 0),
        ("orders:0:-1", 6),
        ("orders:0@2026-11-21T12:00:04Z", 4),
        ("orders:0@2030-01-01T00:00:00Z", 6),
    ],
)
@in_virtual_time
async def test_reading_begins_there_at_every_start_whatever_is_committed(
    assigned: str, first: int
) -> None:
    broker = broker_with(6, began=START)
    for start in range(2):
        seen: Seen = []
        async with running(noting_app(seen, assign=[assigned]), broker=broker) as test:
            await asyncio.sleep(1)
            broker.produce("orders", b"", partition=0)
            await asyncio.sleep(1)
            end = 7 + start
            assert offsets(seen) == list(range(end - 1 if first == 6 else first, end))
            assert stored(broker) == {0: end}
            assert test.app.health().status == "UP"
    await broker.close()


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 6)])
@in_virtual_time
async def test_without_a_place_it_begins_where_the_policy_says_and_later_where_it_had_come_to(
    policy: str, first: int
) -> None:
    broker = broker_with(6, began=START)
    for start in range(2):
        seen: Seen = []
        async with running(
            noting_app(seen, assign=["orders:0"], auto_offset_reset=policy), broker=broker
        ):
            await asyncio.sleep(1)
            broker.produce("orders", b"", partition=0)
            await asyncio.sleep(1)
            assert offsets(seen) == (list(range(first, 7)) if start == 0 else [7])
    assert stored(broker) == {0: 8}
    await broker.close()


@in_virtual_time
async def test_a_place_that_the_log_does_not_have_is_where_the_policy_says() -> None:
    recorder, seen, broker = Recorder(), Seen(), broker_with(6, began=START)
    async with running(
        noting_app(seen, recorder, assign=["orders:0:40"], auto_offset_reset="earliest"),
        broker=broker,
    ):
        await until(lambda: len(seen) == 6)
    assert [(event.from_offset, event.to_offset) for event in recorder.of(OffsetReset)] == [(40, 0)]
    await broker.close()


@in_virtual_time
async def test_only_the_partitions_that_are_named_are_read() -> None:
    seen, broker = Seen(), broker_with(2, 2, 2, began=START)
    async with running(
        noting_app(seen, assign=["orders:0:1", "orders:2:0"]), broker=broker
    ) as test:
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(5)
        assert sorted(seen) == [("orders", 0, 1), ("orders", 2, 0), ("orders", 2, 1)]
        assert test.app.channel("orders").assignment == {tp(0), tp(2)}
        assert not broker.members("billing")
    await broker.close()


# -- what is committed


@in_virtual_time
async def test_a_start_below_what_is_committed_commits_nothing_until_a_record_is_done_and_follows_then() -> (
    None
):
    kept, broker = list[Message[bytes]](), broker_with(5, began=START)
    async with running(noting_app([], assign=["orders:0:0"]), broker=broker):
        await until(lambda: stored(broker) == {0: 5})
    broker.produce("orders", b"", partition=0)
    app = assigned_app(assign=["orders:0:2"])
    keep_messages(app, kept, ack="manual")

    async with running(app, broker=broker):
        await until(lambda: len(kept) == 4)
        await asyncio.sleep(2)
        assert stored(broker) == {0: 5}
        kept[0].ack()
        kept[3].ack()
        await asyncio.sleep(1)
        assert stored(broker) == {0: 3}
        await app.stop(drain=False)
    await broker.close()


@in_virtual_time
async def test_without_a_group_nothing_is_looked_up_and_nothing_committed() -> None:
    seen, broker = Seen(), broker_with(3, began=START)
    app = noting_app(
        seen,
        group_id=None,
        assign=["orders:0"],
        commit_strategy="ignore",
        auto_offset_reset="earliest",
    )
    async with running(app, broker=broker) as test:
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(10)
        assert facts(test).commits == {"ok": 0, "failed": 0, "unknown": 0}
        assert test.app.health().status == "UP"
    await broker.close()


# -- a client that is built anew


@in_virtual_time
async def test_when_the_client_is_built_anew_reading_goes_on_where_it_was_and_nothing_runs_twice() -> (
    None
):
    seen, go_on, broker = Seen(), asyncio.Event(), broker_with(6, began=START)
    app = assigned_app(assign=["orders:0:2"], commit_interval="1h", revoke_grace="1s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.topic, message.partition, message.offset))
        await go_on.wait()

    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).partitions and facts(test).partitions[0].queued == 3)
        broker.fail_next("poll", TransientBrokerError("the client is broken"))
        await until(lambda: facts(test).rebalances["assigned"] == 2, 60)
        await until(lambda: test.app.channel("orders").is_ready)
        go_on.set()
        await until(lambda: len(seen) == 4)
        await asyncio.sleep(5)
        assert offsets(seen) == [2, 3, 4, 5]
    assert stored(broker) == {0: 6}
    await broker.close()


async def start_again(test: TestApp, how: str) -> None:
    """End the client of the channel, and wait until the next one reads."""
    channel = test.app.channel("orders")
    if how == "stop":
        await channel.stop()
        await channel.start()
    else:
        test.broker.fail_next("poll", TransientBrokerError("the client is broken"))
        await until(lambda: facts(test).rebalances["assigned"] == 2, 60)
    await until(lambda: channel.is_ready, 60)


@pytest.mark.parametrize("how", ["stop", "rebuild"])
@in_virtual_time
async def test_a_commit_of_the_client_before_that_lands_late_is_written_over(how: str) -> None:
    """No broker refuses it, because there is no group whose generation it could name."""
    seen, broker = Seen(), make_broker()
    broker.answer_timeout_s = 2.0
    async with running(noting_app(seen, assign=["orders:0:0"]), broker=broker) as test:
        late = broker.hold("commit")
        broker.produce("orders", b"", partition=0)
        await late.arrived()
        broker.produce("orders", b"", partition=0)
        await until(lambda: stored(broker) == {0: 2})
        await start_again(test, how)
        late.release()
        await until(lambda: stored(broker) == {0: 1})
        # Nothing is new, and the position comes back all the same.
        await until(lambda: stored(broker) == {0: 2}, 10)
        # By then nothing can be on its way any more.
        await asyncio.sleep(70)
        commits = len(broker.commits("billing"))
        await asyncio.sleep(70)
        assert (len(broker.commits("billing")), stored(broker)) == (commits, {0: 2})
    await broker.close()


@in_virtual_time
async def test_a_commit_that_is_on_its_way_at_a_stop_is_written_over_if_it_lands_late() -> None:
    seen, broker = Seen(), make_broker()
    app = noting_app(seen, assign=["orders:0:0"], drain_timeout="1s")
    async with running(app, broker=broker) as test:
        broker.produce("orders", b"", partition=0)
        await until(lambda: stored(broker) == {0: 1})
        late = broker.hold("commit")
        broker.produce("orders", b"", partition=0)
        await late.arrived()
        await start_again(test, "stop")
        broker.produce("orders", b"", partition=0)
        await until(lambda: stored(broker) == {0: 3})
        late.release()
        await until(lambda: stored(broker) == {0: 2})
        await until(lambda: stored(broker) == {0: 3}, 10)
    await broker.close()


@in_virtual_time
async def test_what_a_stop_could_not_store_is_committed_after_the_next_start() -> None:
    seen, broker = Seen(), broker_with(1, began=START)
    app = noting_app(seen, assign=["orders:0:0"], drain_timeout="1s")
    async with running(app, broker=broker) as test:
        await until(lambda: stored(broker) == {0: 1})
        broker.fail_next("commit", TransientBrokerError("the coordinator moves"), times=100)
        broker.produce("orders", b"", partition=0)
        await until(lambda: len(seen) == 2)
        await test.app.channel("orders").stop()
        assert stored(broker) == {0: 1}
        await test.app.channel("orders").start()
        await until(lambda: stored(broker) == {0: 2}, 300)
        assert offsets(seen) == [0, 1]
    await broker.close()


@pytest.mark.parametrize("position", [0, 1])
@in_virtual_time
async def test_records_that_went_from_before_a_stopped_channel_are_reported(position: int) -> None:
    """The position at which it stopped, 0 too, is none that an application has sought."""
    seen, recorder, broker = Seen(), Recorder(), broker_with(position, began=START)
    app = noting_app(seen, recorder, assign=["orders:0:0"], auto_offset_reset="earliest")
    async with running(app, broker=broker) as test:
        channel = test.app.channel("orders")
        await until(lambda: channel.is_ready and len(seen) == position)
        await channel.stop()
        for _ in range(8):
            broker.produce("orders", b"", partition=0)
        broker.delete_records(tp(0), 5)
        await channel.start()
        await until(lambda: stored(broker) == {0: 8 + position})
    assert offsets(seen) == [*range(position), *range(5, 8 + position)]
    (reset,) = [event for event in recorder.events if isinstance(event, OffsetReset)][-1:]
    assert (reset.from_offset, reset.to_offset, reset.skipped) == (position, 5, 5 - position)
    await broker.close()


@in_virtual_time
async def test_where_a_restarted_channel_continues_is_committed_if_its_position_has_gone() -> None:
    """No record comes, so nothing else would move the position."""
    seen, broker = Seen(), make_broker()
    app = noting_app(seen, assign=["orders:0:0"], auto_offset_reset="earliest")
    async with running(app, broker=broker) as test:
        channel = test.app.channel("orders")
        await until(lambda: channel.is_ready)
        assert stored(broker) == {}
        await channel.stop()
        for _ in range(5):
            broker.produce("orders", b"", partition=0)
        broker.delete_records(tp(0), 5)
        await channel.start()
        await until(lambda: stored(broker) == {0: 5}, 60)
    assert offsets(seen) == []
    await broker.close()


@in_virtual_time
async def test_a_commit_is_not_repeated_because_a_partition_was_added_meanwhile() -> None:
    seen, broker = Seen(), make_broker()
    app = noting_app(seen, assign=["orders:*"], auto_offset_reset="earliest")
    async with running(app, broker=broker) as test:
        await until(lambda: test.app.channel("orders").is_ready)
        broker.answer_timeout_s = 120.0
        slow = broker.hold("commit")
        broker.produce("orders", b"", partition=0)
        await slow.arrived()
        before = test.app.channel("orders").assignment
        broker.create_topic("orders", len(before) + 1)
        await until(lambda: len(test.app.channel("orders").assignment) > len(before), 60)
        slow.release()
        await until(lambda: stored(broker).get(0) == 1)
        await asyncio.sleep(70)
        of_first = [entry for entry in broker.commits("billing") if tp(0) in entry.offsets]
        assert len(of_first) == 1
    await broker.close()


@in_virtual_time
async def test_a_restart_of_the_channel_goes_on_where_it_stood_and_not_at_the_given_place() -> None:
    for start in ("1", "-1"):
        seen, broker = Seen(), broker_with(1 if start == "-1" else 3, began=START)
        app = assigned_app(assign=[f"orders:0:{start}"])

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            # Used before the next round.
            seen.append((message.topic, message.partition, message.offset))  # noqa: B023
            if len(seen) == 2:  # noqa: B023
                raise ValueError("no")

        async with running(app, broker=broker) as test:
            if start == "-1":
                await until(lambda: app.channel("orders").is_ready)  # noqa: B023
                for _ in range(2):
                    broker.produce("orders", b"", partition=0)
            await until(lambda: facts(test).state == "failed")
            await app.channel("orders").restart()
            await until(lambda: len(seen) == 3)  # noqa: B023
            assert offsets(seen) == [1, 2, 2]
            await until(lambda: stored(broker) == {0: 3})  # noqa: B023
        await broker.close()


@in_virtual_time
async def test_seeks_work_without_a_group_s_assignment() -> None:
    seen, broker = Seen(), broker_with(4, began=START)
    async with running(noting_app(seen, assign=["orders:0:0"]), broker=broker) as test:
        await until(lambda: len(seen) == 4 and stored(broker) == {0: 4})
        await test.app.channel("orders").seek(tp(), 3)
        await until(lambda: len(seen) == 5)
        await test.app.channel("orders").seek(tp(), 1)
        await until(lambda: len(seen) == 8)
        assert offsets(seen) == [0, 1, 2, 3, 3, 1, 2, 3]
    await broker.close()


# -- by pattern


@in_virtual_time
async def test_a_pattern_reads_every_topic_whose_whole_name_fits() -> None:
    seen, broker = Seen(), make_broker(1)
    for topic in ("orders-a", "orders-b", "my-orders-a", "orders", "other"):
        broker.produce(topic, b"", partition=0)
    app = noting_app(seen, pattern="orders-.*", auto_offset_reset="earliest")
    async with running(app, broker=broker):
        await until(lambda: len(seen) == 2)
        await asyncio.sleep(5)
        assert sorted(seen) == [("orders-a", 0, 0), ("orders-b", 0, 0)]
    await broker.close()


@in_virtual_time
async def test_a_topic_that_appears_later_is_read_from_its_beginning_and_one_that_was_there_is_not() -> (
    None
):
    seen, broker = Seen(), make_broker(1)
    broker.produce("orders-a", b"old", partition=0)
    app = noting_app(seen, pattern="orders-.*", auto_offset_reset="latest")
    async with running(app, broker=broker) as test:
        await until(lambda: test.app.channel("orders").is_ready)
        broker.produce("orders-b", b"", partition=0)
        broker.produce("orders-b", b"", partition=0)
        await until(lambda: len(seen) == 2, 120)
        assert sorted(seen) == [("orders-b", 0, 0), ("orders-b", 0, 1)]
        broker.produce("orders-a", b"new", partition=0)
        await until(lambda: ("orders-a", 0, 1) in seen)
    await broker.close()


@in_virtual_time
async def test_a_partition_that_another_member_had_is_not_new_when_it_comes() -> None:
    """Nothing is committed with ``ignore``: only what was there at the first look tells old from
    new.
    """
    seen, broker = Seen(), make_broker(2)
    for partition in range(2):
        broker.produce("orders-a", b"old", partition=partition)
    settings: dict[str, Any] = {
        "pattern": "orders-.*",
        "auto_offset_reset": "latest",
        "commit_strategy": "ignore",
    }
    first, second = noting_app(seen, **settings), noting_app(seen, **settings)
    async with running(second, broker=broker), running(first, broker=broker) as test:
        await until(lambda: [len(own) for own in broker.members("billing").values()] == [1, 1])
        await second.stop()
        await until(lambda: len(test.app.channel("orders").assignment) == 2, 60)
        await asyncio.sleep(5)
        assert seen == []
        for partition in range(2):
            broker.produce("orders-a", b"new", partition=partition)
        await until(lambda: sorted(seen) == [("orders-a", 0, 1), ("orders-a", 1, 1)])
    await broker.close()


@in_virtual_time
async def test_a_restart_takes_the_retry_topics_up_where_their_group_is_by_then() -> None:
    retries = {
        "failure_strategy": "delayed-retry-topic",
        "delayed_retry": {"topics": ["orders_retry_1000"]},
    }
    app = assigned_app(assign=["orders:0:0"], **retries, failure_routes={"KeyError": "fail"})
    group, retry = "kafka-delayed-retry-topic-billing", tp(0, "orders_retry_1000")
    seen: Seen = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.topic, message.partition, message.offset))
        if message.payload == b"again" and message.topic == "orders":
            raise ValueError("not now")
        if message.payload == b"stop" and seen.count(("orders", 0, 1)) == 1:
            raise KeyError("no")

    broker = broker_with(0, began=START)
    async with running(app, broker=broker) as test:
        broker.produce("orders", b"again", partition=0)
        await until(lambda: broker.committed(group).get(retry) is not None)
        broker.produce("orders", b"stop", partition=0)
        await until(lambda: facts(test).state == "failed")
        # Another member of that group has handled more of them meanwhile.
        for _ in range(4):
            broker.produce(retry.topic, b"", partition=0)
        asking = broker.connector().inspector(properties={})
        await asking.start()
        await asking.commit(group, {retry: Committed(4)})
        await app.channel("orders").restart()
        await until(lambda: (retry.topic, 0, 4) in seen)
        await until(lambda: broker.committed(group)[retry].offset == 5)
        positions = [
            entry.offsets[retry].offset for entry in broker.commits(group) if retry in entry.offsets
        ]
    assert positions == sorted(positions)
    assert [offset for topic, _, offset in seen if topic == retry.topic] == [0, 4]


# -- whole topics


@in_virtual_time
async def test_a_whole_topic_is_read_in_all_partitions_and_new_ones_from_their_beginning() -> None:
    broker, seen = broker_with(2, 1, began=START), Seen()
    app = noting_app(seen, assign=["orders:*"], auto_offset_reset="latest")
    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).has_joined and len(facts(test).partitions) == 2)
        broker.create_topic("orders", 4)
        for partition in range(4):
            broker.produce("orders", b"", partition=partition)
        await until(lambda: len(seen) == 4)
        assert sorted(seen) == [
            ("orders", 0, 2),
            ("orders", 1, 1),
            ("orders", 2, 0),
            ("orders", 3, 0),
        ]
        assert test.app.channel("orders").assignment == {tp(number) for number in range(4)}
        await asyncio.sleep(1)
        assert stored(broker) == {0: 3, 1: 2, 2: 1, 3: 1}
        assert broker.members("billing") == {}
    await broker.close()


@in_virtual_time
async def test_new_partitions_of_a_whole_topic_disturb_none_of_the_others_and_come_alone_in_hooks() -> (
    None
):
    broker, seen, assigned = broker_with(5, began=START), Seen(), list[frozenset[Any]]()
    app = assigned_app(
        assign=["orders:*", "refunds:1"], auto_offset_reset="earliest", revoke_grace="1s"
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition == 0:
            await asyncio.sleep(3)
        seen.append((message.topic, message.partition, message.offset))

    @app.on_assigned("orders")
    def note(partitions: frozenset[Any]) -> None:
        assigned.append(partitions)

    broker.create_topic("refunds", 2)
    async with running(app, broker=broker):
        await asyncio.sleep(1)
        broker.create_topic("orders", 2)
        broker.produce("orders", b"", partition=1)
        await until(lambda: len(seen) == 6, 60)
        assert offsets(seen) == [0, 1, 2, 3, 4]
        assert assigned == [{tp(), tp(1, "refunds")}, {tp(1)}]
    await broker.close()


@in_virtual_time
async def test_a_whole_topic_may_be_made_later_and_needs_no_group() -> None:
    broker, seen = MemoryBroker(broker_with(0, began=START)._state.clock, auto_create=False), Seen()
    async with running(
        noting_app(seen, assign=["orders:*"], group_id="", commit_strategy="ignore"), broker=broker
    ) as test:
        await asyncio.sleep(5)
        assert "does not exist" in str(test.app.health().ready.checks)
        broker.create_topic("orders", 2)
        broker.produce("orders", b"", partition=1)
        await until(lambda: seen == [("orders", 1, 0)])
        assert test.app.health().status == "UP"
    await broker.close()
