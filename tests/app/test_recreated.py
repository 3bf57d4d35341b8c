"""A topic that was deleted and recreated is told by its id, and nothing of the new one is
skipped.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import App, Committed, Message
from reactive_kafka.events import ChannelFailed, KeptAcksDropped, OffsetReset
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    running,
    settle_down,
    tp,
    until,
)
from tests.tracking.stored import text_with_acks

TEN = [b"old-%d" % number for number in range(10)]


def fill(broker: MemoryBroker, values: list[bytes], partition: int = 0) -> None:
    for value in values:
        broker.produce("orders", value, partition=partition)


def recreate(broker: MemoryBroker, values: list[bytes], partitions: int = 1) -> None:
    """Delete the topic and make it anew, with records in its first partition."""
    broker.delete_topic("orders")
    broker.create_topic("orders", partitions)
    fill(broker, values)


def noting_app(recorder: Recorder, seen: list[bytes], **orders: Any) -> App:
    app = make_app(recorder, **orders)

    @app.incoming("orders")
    async def note(message: Message[bytes]) -> None:
        seen.append(message.payload)

    return app


def new_values(count: int) -> list[bytes]:
    return [b"new-%d" % number for number in range(count)]


def told(recorder: Recorder) -> list[OffsetReset]:
    return [reset for reset in recorder.of(OffsetReset) if reset.reason is not None]


async def until_all_of(seen: list[bytes], values: list[bytes], within_s: float = 30.0) -> None:
    await until(lambda: set(values) <= set(seen), within_s)


FOR_GROUPS = [{}, {"consumers": 2}, {"commit_strategy": "latest"}, {"keep_out_of_order_acks": True}]
STATIC = [
    {"assign": ["orders:0"]},
    {"assign": ["orders:0"], "enable_auto_commit": True},
    {"assign": ["orders:0"], "commit_strategy": "ignore"},
]


@pytest.mark.parametrize("orders", [*FOR_GROUPS, *STATIC])
@pytest.mark.parametrize("count", [3, 10, 50])
@pytest.mark.parametrize("partitions", [1, 3])
@in_virtual_time
async def test_under_a_running_reader_it_is_read_from_its_beginning(
    orders: dict[str, Any], count: int, partitions: int
) -> None:
    """Row F6 of the faults."""
    recorder, seen, broker = Recorder(), list[bytes](), make_broker(2)
    fill(broker, TEN)
    app = noting_app(recorder, seen, auto_offset_reset="earliest", **orders)
    async with running(app, broker=broker) as test:
        await until(lambda: seen == TEN)
        recreate(broker, new_values(count), partitions)
        await until_all_of(seen, new_values(count))
        if orders.get("commit_strategy") != "ignore":
            await until(lambda: committed(test) == count, 30)
    await broker.close()


@pytest.mark.parametrize("assign", [["orders:*"], ["orders:0", "orders:2"]])
@in_virtual_time
async def test_a_position_in_a_partition_that_the_recreated_topic_does_not_have_is_not_committed(
    assign: list[str],
) -> None:
    recorder, broker, may_go_on = Recorder(), make_broker(3), asyncio.Event()
    held, seen, places = list[int](), list[bytes](), list[tuple[int, int]]()
    app = make_app(recorder, auto_offset_reset="earliest", assign=assign, concurrency=2)

    @app.incoming("orders")
    async def note(message: Message[bytes]) -> None:
        if message.payload == b"held":
            held.append(message.partition)
            await may_go_on.wait()
        seen.append(message.payload)
        places.append((message.partition, message.offset))

    for number in (0, 2):
        fill(broker, [b"held"], number)
    async with running(app, broker=broker) as test:
        await until(lambda: sorted(held) == [0, 2])
        recreate(broker, [b"first"])
        may_go_on.set()
        await until_all_of(seen, [b"first"])
        await asyncio.sleep(60)
        assert test.app.health().ready.status == "UP"
        assert committed(test, 2) is None
        # Now the topic gets the partition, and a record in it.
        broker.create_topic("orders", 3)
        fill(broker, [b"second"], 2)
        await until_all_of(seen, [b"second"])
        assert places[-1] == (2, 0)
        await until(lambda: committed(test, 2) == 1, 30)
    await broker.close()


@in_virtual_time
async def test_records_below_the_position_of_a_reader_that_is_assigned_nothing_anew_are_read() -> (
    None
):
    """Row F6 of the faults, where nothing but the id tells: no rebalance comes, and the position is
    in the log.
    """
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    app = noting_app(recorder, seen, auto_offset_reset="latest", assign=["orders:0"])
    async with running(app, broker=broker) as test:
        fill(broker, [b"last"])
        await until(lambda: seen == [b"last"])
        await until(lambda: committed(test) == 11)
        recreate(broker, new_values(50))
        await until_all_of(seen, new_values(50), 5)
        [reset] = told(recorder)
        assert (reset.from_offset is not None, reset.to_offset, reset.to) == (True, 0, "earliest")
        assert (
            "topic 'orders' was deleted and recreated: its id was id-1, and is id-2" in reset.text()
        )
        assert facts(test).resets["earliest"] == 1
        await until(lambda: committed(test) == 50)
        await asyncio.sleep(30)
        assert len(told(recorder)) == 1
    await broker.close()


@pytest.mark.parametrize("is_deleted", [True, False])
@in_virtual_time
async def test_it_is_noticed_while_a_paused_partition_is_deleted_or_has_no_leader(
    is_deleted: bool,
) -> None:
    recorder = Recorder()
    seen: list[bytes] = []
    broker = make_broker()
    broker.create_topic("payments", 1)
    fill(broker, TEN)
    app = noting_app(recorder, seen, assign=["orders:0", "payments:0"])
    async with running(app, broker=broker) as test:
        await until(lambda: committed(test) == 10)
        app.channel("orders").pause(partitions=[tp(0, "payments")])
        if is_deleted:
            broker.delete_topic("payments")
        else:
            broker.leader_away(tp(0, "payments"))
        await until(lambda: facts(test).not_ready)
        recreate(broker, new_values(50))
        await until_all_of(seen, new_values(50), 10)
    await broker.close()


@in_virtual_time
async def test_what_was_read_of_the_old_topic_moves_no_position_of_the_new_one() -> None:
    """A handler that runs meanwhile acks a record that is no more: its ack counts for nothing."""
    recorder, broker, entered, go_on = Recorder(), make_broker(), asyncio.Event(), asyncio.Event()
    seen = list[bytes]()
    fill(broker, TEN)
    app = make_app(recorder, auto_offset_reset="earliest", assign=["orders:0"])

    @app.incoming("orders")
    async def note(message: Message[bytes]) -> None:
        seen.append(message.payload)
        if message.payload == TEN[9]:
            entered.set()
            await go_on.wait()
        elif message.payload == b"new-2":
            await asyncio.Event().wait()

    async with running(app, broker=broker) as test:
        await entered.wait()
        recreate(broker, new_values(50))
        await until(lambda: told(recorder))
        go_on.set()
        await until(lambda: b"new-2" in seen)
        await until(lambda: committed(test) == 2, 20)
        await asyncio.sleep(20)
        assert committed(test) == 2
        assert seen[10:] == new_values(3)
    await broker.close()


@in_virtual_time
async def test_a_commit_that_was_on_its_way_is_gone_back_behind() -> None:
    """A position of the old topic may be stored for the new one after all: the beginning is
    committed after it.
    """
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    app = noting_app(
        recorder, seen, auto_offset_reset="earliest", assign=["orders:0"], failure_strategy="fail"
    )
    async with running(app, broker=broker) as test:
        held = broker.hold("commit")
        fill(broker, TEN)
        await held.arrived()
        recreate(broker, [])
        await asyncio.sleep(3)
        held.release()
        await until(lambda: told(recorder), 20)
        await until(lambda: committed(test) == 0, 20)
        stored = [entry.offsets[tp()].offset for entry in broker.commits("billing")]
        assert stored == [10, 0]
    await broker.close()


@pytest.mark.parametrize("orders", [{}, {"assign": ["orders:0"]}])
@in_virtual_time
async def test_while_it_is_stopped_the_group_s_position_goes_with_the_topic(
    orders: dict[str, Any],
) -> None:
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    app = noting_app(recorder, seen, auto_offset_reset="earliest", **orders)
    async with running(app, broker=broker) as test:
        await until(lambda: committed(test) == 10)
    recreate(broker, new_values(50))
    async with running(
        noting_app(recorder, seen, auto_offset_reset="earliest", **orders), broker=broker
    ):
        await until_all_of(seen, new_values(50))
    await broker.close()


@in_virtual_time
async def test_a_channel_that_is_restarted_does_not_go_on_where_the_old_topic_stood() -> None:
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    app = make_app(
        recorder, auto_offset_reset="earliest", assign=["orders:0"], commit_strategy="ignore"
    )

    @app.incoming("orders")
    async def note(message: Message[bytes]) -> None:
        if message.payload == b"bad":
            raise ValueError("bad")
        seen.append(message.payload)

    async with running(app, broker=broker):
        await until(lambda: seen == TEN)
        fill(broker, [b"bad"])
        await until(lambda: recorder.of(ChannelFailed))
        await until(lambda: app.channel("orders").facts().state == "failed")
        recreate(broker, new_values(50))
        await app.channel("orders").restart()
        await until_all_of(seen, new_values(50))
        assert len(told(recorder)) == 1
    await broker.close()


@in_virtual_time
async def test_fail_stops_the_channel_and_names_both_ids() -> None:
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    app = noting_app(
        recorder, seen, auto_offset_reset="earliest", assign=["orders:0"], on_recreated_topic="fail"
    )
    async with running(app, broker=broker):
        await until(lambda: seen == TEN)
        recreate(broker, new_values(5))
        await until(lambda: recorder.of(ChannelFailed))
        [failed] = recorder.of(ChannelFailed)
        for part in ("'orders'", "id-1", "id-2", "on_recreated_topic = 'fail'", "'beginning'"):
            assert part in failed.text()
        assert (told(recorder), seen) == ([], TEN)
    await broker.close()


@pytest.mark.parametrize("strategy", ["throttled", "latest"])
@pytest.mark.parametrize("orders", [{}, {"consumers": 2}, {"assign": ["orders:0"]}])
@in_virtual_time
async def test_fail_holds_for_the_next_process_whatever_the_old_reader_committed_before_it_noticed(
    orders: dict[str, Any], strategy: str
) -> None:
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    settings = {
        "on_recreated_topic": "fail",
        "commit_interval": "100ms",
        "commit_strategy": strategy,
        **orders,
    }
    async with running(noting_app(recorder, seen, **settings), broker=broker):
        await until(lambda: seen == TEN)
        recreate(broker, new_values(50))
        await until(lambda: recorder.of(ChannelFailed))
    assert broker.committed("billing")[tp()].offset > 10
    for _ in range(2):
        seen.clear()
        app = noting_app(recorder, seen, **settings)
        async with running(app, broker=broker) as test:
            await until(lambda: facts(test).state == "failed")
            assert "set the group's position and restart" in str(facts(test).reason)
            assert seen == []
    leave(broker, Committed(3))
    async with running(noting_app(recorder, seen, **settings), broker=broker):
        await until(lambda: seen == new_values(50)[3:])
    await broker.close()


@pytest.mark.parametrize("interval", ["100ms", "100s"])
@pytest.mark.parametrize(
    "orders", [{}, {"assign": ["orders:0"]}, {"restart": {"max_attempts": 2, "backoff": "1s"}}]
)
@in_virtual_time
async def test_a_channel_that_fails_goes_on_once_somebody_has_set_a_position_and_not_by_a_restart(
    orders: dict[str, Any], interval: str
) -> None:
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    app = noting_app(recorder, seen, on_recreated_topic="fail", commit_interval=interval, **orders)
    async with running(app, broker=broker) as test:
        await until(lambda: seen == TEN)
        recreate(broker, new_values(50))
        await until(lambda: recorder.of(ChannelFailed))
        # It may come back by itself, and may not go on.
        await asyncio.sleep(30)
        assert facts(test).state == "failed"
        # As where nothing was committed meanwhile.
        broker._state.group("billing").commits.clear()
        await app.channel("orders").restart()
        await until(lambda: facts(test).state == "failed")
        assert "set the group's position and restart" in str(facts(test).reason)
        seen.clear()
        leave(broker, Committed(3))
        await app.channel("orders").restart()
        await until(lambda: seen == new_values(50)[3:])
        assert facts(test).state == "running"
    await broker.close()


@pytest.mark.parametrize("orders", [{}, {"consumers": 2}, {"assign": ["orders:0"]}])
@in_virtual_time
async def test_latest_skips_nothing_of_a_topic_that_is_made_anew_under_a_reader(
    orders: dict[str, Any],
) -> None:
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    app = noting_app(recorder, seen, auto_offset_reset="latest", **orders)
    async with running(app, broker=broker):
        fill(broker, TEN)
        await until(lambda: seen == TEN)
        recreate(broker, new_values(50))
        await until_all_of(seen, new_values(50))
    await broker.close()


@pytest.mark.parametrize("count", [3, 10, 50])
@in_virtual_time
async def test_a_member_that_was_out_of_its_group_meanwhile_skips_nothing(count: int) -> None:
    """Row F6 of the faults: the member hears late that it is out, and reads on until then."""
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    app = noting_app(recorder, seen, auto_offset_reset="latest")
    async with running(app, broker=broker) as test:
        fill(broker, [b"last"])
        await until(lambda: seen == [b"last"])
        [member] = broker.members("billing")
        broker.expire("billing", member, notice_after_s=10)
        recreate(broker, new_values(count))
        await until_all_of(seen, new_values(count))
        assert member not in broker.members("billing")
        await until(lambda: committed(test) == count, 60)
    await broker.close()


@in_virtual_time
async def test_a_seek_after_it_is_no_reason_to_begin_anew_again() -> None:
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    app = noting_app(recorder, seen, assign=["orders:0"])
    async with running(app, broker=broker):
        await until(lambda: seen == TEN)
        recreate(broker, new_values(50))
        await until_all_of(seen, new_values(50))
        await app.channel("orders").seek(tp(), 48)
        # 40 of them twice.
        await until(lambda: seen[-2:] == new_values(50)[48:] and len(seen) == 102)
        await asyncio.sleep(10)
        assert len(told(recorder)) == 1
    await broker.close()


# -- what is left of the old topic in the group


def leave(broker: MemoryBroker, stored: Committed) -> None:
    """Let the group have a position of the old topic: a commit of its last member landed after the
    topic had gone.
    """
    broker._state.group("billing").commits[tp()] = stored


@in_virtual_time
async def test_acks_that_were_kept_for_the_old_topic_skip_no_record_of_the_new_one() -> None:
    """Row F6 of the faults. The position is the log's beginning in both, so nothing but the id can
    tell.
    """
    recorder, seen, broker = Recorder(), list[bytes](), make_broker()
    fill(broker, TEN)
    orders = {
        "auto_offset_reset": "earliest",
        "keep_out_of_order_acks": True,
        "ordering": "unordered",
    }
    kept = Committed(0, text_with_acks(0, [0], 10, topic="id-1"))
    leave(broker, kept)
    async with running(noting_app(recorder, seen, **orders), broker=broker):
        # Of the same topic, it is taken over.
        await until(lambda: seen == TEN[:1])
    seen.clear()
    recreate(broker, new_values(10))
    leave(broker, kept)
    async with running(noting_app(recorder, seen, **orders), broker=broker):
        await until_all_of(seen, new_values(10))
    assert [(one.from_offset, one.to_offset) for one in told(recorder)] == [(0, 0)]
    assert [one.reason for one in recorder.of(KeptAcksDropped)] == ["reading begins at 0"]
    await broker.close()


@in_virtual_time
async def test_what_was_looked_up_of_a_recreated_topic_is_void_once_its_partition_drains() -> None:
    """By the time the answer comes the assignment that asked for it is about to end."""
    recorder, broker, entered, go_on = Recorder(), make_broker(), asyncio.Event(), asyncio.Event()
    fill(broker, TEN)
    app = make_app(recorder, auto_offset_reset="earliest", assign=["orders:0"], drain_timeout="30s")

    @app.incoming("orders")
    async def note(message: Message[bytes]) -> None:
        if message.payload == TEN[9]:
            entered.set()
            await go_on.wait()

    async with running(app, broker=broker) as test:
        await entered.wait()
        look = broker.hold("beginning_offsets")
        recreate(broker, new_values(50))
        await look.arrived()
        stopping = asyncio.create_task(test.app.channel("orders").stop())
        await asyncio.sleep(0.5)
        look.release()
        await settle_down()
        assert told(recorder) == []
        go_on.set()
        await stopping
    await broker.close()
