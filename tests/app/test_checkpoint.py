"""Positions and states in a store of the user's own: where reading begins, and when what is
written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from reactive_kafka import App, Checkpoint, Committed, Message, TopicPartition
from reactive_kafka.errors import CheckpointError, NotOwnerError, TransientBrokerError
from reactive_kafka.events import (
    CheckpointFenced,
    CheckpointFound,
    KafkaCommitFailed,
    OffsetReset,
    PositionsUnknown,
    StateDropped,
    StoreAvailable,
    StoreUnavailable,
)
from reactive_kafka.testing import TestApp
from tests.app.checkpoints import GROUP, MemoryStore, Outcome, Rows, Write, app_on, row, store_of
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_broker,
    now,
    positions,
    rebalanced,
    running,
    send,
    tp,
    until,
)
from tests.app.spark_stage import Job, spark_app
from tests.tracking.stored import plans_in

# Offset, state.
Seen = list[tuple[int, Any]]


def counting(app: App, seen: Seen) -> None:
    """A handler whose state is the number of records before it."""

    @app.incoming("orders")
    async def count(message: Message[bytes]) -> None:
        state = message.checkpoint.get() or 0
        seen.append((message.offset, state))
        message.checkpoint.set(state + 1)


@in_virtual_time
async def test_what_the_store_has_is_where_the_next_owner_goes_on_with_the_state() -> None:
    rows, broker, seen = Rows(), make_broker(), Seen()
    for who in ("a", "b"):
        app = app_on(rows, who=who)
        counting(app, seen)
        async with running(app, broker=broker) as test:
            await send(test, b"1", b"2", b"3")
            await test.settled()
    assert seen == [(offset, offset) for offset in range(6)]
    assert row(rows) == (2, 6, "6", "")
    # At the end, beside the store.
    assert broker.committed(GROUP) == {tp(): Committed(6)}
    await broker.close()


@in_virtual_time
async def test_a_group_moves_to_the_store_with_the_position_that_kafka_has_and_from_then_on_the_store_counts() -> (
    None
):
    """Row G5 of the faults."""
    rows, broker, seen, recorder = Rows(), make_broker(), Seen(), Recorder()
    for value in range(10):
        broker.produce("orders", b"%d" % value, partition=0)
    await commit_to_kafka(broker, 4)
    app = app_on(rows, recorder, checkpoint={"kafka_commit_interval": "1h"})
    counting(app, seen)
    async with running(app, broker=broker) as test:
        assert row(rows) == (1, 4, None, "")
        await test.settled()
    assert [offset for offset, _ in seen] == list(range(4, 10))
    assert recorder.of(CheckpointFound) == []

    seen.clear()
    again = app_on(rows, recorder, who="b")
    counting(again, seen)
    rows.put(GROUP, tp(), Checkpoint(7, 8, "50"))
    async with running(again, broker=broker) as test:
        await test.settled()
    assert seen == [(8, 50), (9, 51)]
    assert [(one.position, one.in_kafka) for one in recorder.of(CheckpointFound)] == [(8, 10)]
    await broker.close()


async def commit_to_kafka(broker: Any, position: int) -> None:
    """Have the group commit a position, by an application without a store."""
    from tests.app.helpers import make_app

    app = make_app(max_in_flight=1000)
    stuck = asyncio.Event()

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        if message.offset >= position:
            await stuck.wait()

    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).partitions and facts(test).partitions[0].in_flight)
        await test.app.channel("orders").commit()
        assert committed(test) == position
        await test.app.stop(drain=False)


@in_virtual_time
async def test_a_revocation_writes_the_store_before_the_partition_is_let_go_and_it_comes_straight_back() -> (
    None
):
    rows, order, recorder = Rows(), list[tuple[str, int | None]](), Recorder()
    app = app_on(rows, recorder, commit_interval="1h", checkpoint={"unsynced_max_age": "2h"})
    seen = Seen()
    counting(app, seen)

    @app.on_revoked("orders")
    async def revoked(partitions: object) -> None:
        order.append(("hook", row(rows).position))

    @app.on_assigned("orders")
    async def assigned(partitions: object) -> None:
        order.append(("assigned", None if rows.row(GROUP, tp()) is None else row(rows).position))

    async with running(app) as test:
        await send(test, b"1", b"2")
        await until(lambda: len(seen) == 2)
        await rebalanced(test)
        assert order == [("assigned", None), ("hook", None), ("assigned", 2)]
        # Nobody else had it: the token is the same.
        assert row(rows) == (1, 2, "2", "")
        await send(test, b"3")
        await until(lambda: len(seen) == 3)
    assert seen == [(0, 0), (1, 1), (2, 2)]


@in_virtual_time
async def test_a_zombies_late_write_is_refused_and_the_record_it_settled_is_handled_by_the_owner() -> (
    None
):
    rows, recorder, seen = Rows(), Recorder(), Seen()
    app = app_on(rows, recorder)
    counting(app, seen)
    async with running(app) as test:
        await send(test, b"1", b"2")
        await test.settled()
        # The next owner, who has come less far.
        rows.put(GROUP, tp(), Checkpoint(9, 1, "77"))
        await send(test, b"3")
        await until(lambda: recorder.of(CheckpointFenced))
        assert row(rows) == Checkpoint(9, 1, "77")
        since = now()
        assert test.committed("orders") == {}
        await until(
            lambda: any("taken orders-0 over" in reason for reason in facts(test).not_ready)
        )
        # Still assigned: it claims again, after a while.
        await until(lambda: facts(test).partitions, 30, to_the_moment=True)
        assert 0.9 <= now() - since <= 2
        await test.settled()
        assert row(rows) == Checkpoint(10, 3, "79")
    assert seen == [(0, 0), (1, 1), (2, 2), (1, 77), (2, 78)]
    assert recorder.of(CheckpointFenced)[0].found == 9


@in_virtual_time
async def test_an_owner_whose_membership_is_over_does_not_claim_again() -> None:
    rows, recorder, seen = Rows(), Recorder(), Seen()
    app = app_on(rows, recorder)
    counting(app, seen)
    broker = make_broker()
    async with running(app, broker=broker) as test:
        await send(test, b"1")
        await test.settled()
        await send(test, b"2")
        await until(lambda: len(seen) == 2)
        (member,) = broker.members(GROUP)
        broker.expire(GROUP, member, notice_after_s=10)
        # By the member that has the partition now.
        rows.put(GROUP, tp(), Checkpoint(9, 1, "77"))
        await until(lambda: recorder.of(CheckpointFenced))
        await until(lambda: row(rows).token == 10, 30)
        # It had asked the group, was told, and has joined again.
        assert broker.members(GROUP)
        await test.settled(20)
    assert seen == [(0, 0), (1, 1), (1, 77)]
    await broker.close()


@in_virtual_time
async def test_with_the_store_away_at_the_start_nothing_is_delivered_and_it_begins_by_itself() -> (
    None
):
    rows, seen = Rows(), Seen()
    rows.faults.away = True
    app = app_on(rows)
    counting(app, seen)
    broker = make_broker()
    broker.produce("orders", b"1", partition=0)

    async def come_back() -> None:
        await asyncio.sleep(30)
        assert seen == []
        health = app.health()
        assert health.live.status == "UP"
        assert health.ready.status == "DOWN"
        assert any(
            "in-memory store is away" in reason
            for reason in app.channel("orders").facts().not_ready
        )
        rows.faults.away = False

    back = asyncio.create_task(come_back())
    async with TestApp(app, broker=broker, start_timeout_s=60) as test:
        assert now() < 40
        await until(lambda: facts(test).partitions[0].committed == 1)
        assert app.health().ready.status == "UP"
    await back
    assert seen == [(0, 0)]
    await broker.close()


@in_virtual_time
async def test_with_the_store_away_later_acks_pile_up_until_max_in_flight_and_are_stored_when_it_is_back() -> (
    None
):
    """Row G4 of the faults."""
    rows, seen = Rows(), Seen()
    app = app_on(rows, max_in_flight=20, checkpoint={"unsynced_max_age": "3s"})
    counting(app, seen)
    async with running(app) as test:
        await send(test, b"0")
        await test.settled()
        rows.faults.away = True
        await send(test, b"1")
        # It has noticed.
        await asyncio.sleep(3)
        assert facts(test).unsynced_age_s is not None
        await send(test, *[b"x"] * 100)
        await asyncio.sleep(30)
        assert len(seen) == 21
        assert row(rows).position == 1
        assert any(
            "settled records are not stored for 3" in reason for reason in facts(test).not_ready
        )
        assert test.app.health().live.status == "UP"
        assert test.app.health().ready.status == "DOWN"
        rows.faults.away = False
        await test.settled(20)
        assert row(rows)[1:3] == (102, "102")
        assert facts(test).unsynced_age_s is None
        assert test.app.health().ready.status == "UP"


@in_virtual_time
async def test_a_stop_with_the_store_away_ends_in_its_time_and_nothing_is_ahead_in_kafka() -> None:
    rows, seen = Rows(), Seen()
    app = app_on(
        rows, drain_timeout="3s", commit_interval="1h", checkpoint={"unsynced_max_age": "2h"}
    )
    counting(app, seen)
    broker = make_broker()
    async with running(app, broker=broker) as test:
        await send(test, b"1")
        await until(lambda: seen)
        rows.faults.away = True
        since = now()
    assert now() - since < 15
    assert broker.committed(GROUP) == {}
    rows.faults.away = False
    again = app_on(rows, who="b")
    counting(again, seen)
    async with running(again, broker=broker) as test:
        await test.settled()
    assert seen == [(0, 0), (0, 0)]
    await broker.close()


@in_virtual_time
async def test_a_state_is_stored_with_a_position_behind_its_record_and_never_before() -> None:
    rows, held = Rows(), list[tuple[Message[bytes], Any]]()
    app = app_on(rows, commit_interval="100ms")

    @app.incoming("orders", ack="manual")
    async def hold(message: Message[bytes]) -> None:
        message.checkpoint.set(message.offset)
        assert message.checkpoint.get() == message.offset
        held.append((message, message.checkpoint.get()))

    async with running(app) as test:
        await send(test, *[b"x"] * 4)
        await until(lambda: len(held) == 4)
        await held[2][0].ack()
        await held[0][0].ack()
        await asyncio.sleep(1)
        assert row(rows) == (1, 1, "0", "")
        await held[1][0].ack()
        await asyncio.sleep(1)
        assert row(rows) == (1, 3, "2", "")
    assert row(rows) == (1, 3, "2", "")


@in_virtual_time
async def test_after_a_seek_back_the_records_are_a_replay_and_the_state_begins_anew() -> None:
    rows, seen, recorder = Rows(), Seen(), Recorder()
    app = app_on(rows, recorder)
    counting(app, seen)
    async with running(app) as test:
        await send(test, *[b"x"] * 5)
        await test.settled()
        await test.app.channel("orders").seek(tp(), 2)
        # A seek alone moves nothing.
        assert row(rows) == (1, 5, "5", "")
        await until(lambda: len(seen) == 8)
        await asyncio.sleep(2)
        assert seen[5:] == [(2, 0), (3, 1), (4, 2)]
        assert row(rows)[1:3] == (5, "3")
        assert facts(test).duplicates_dropped == 0
        assert [(one.from_offset, one.to_offset) for one in recorder.of(StateDropped)] == [(5, 2)]


@in_virtual_time
async def test_a_position_that_goes_back_takes_a_new_token_and_kafka_follows() -> None:
    rows = Rows()
    app = app_on(rows, commit_interval="100ms", checkpoint={"kafka_commit_interval": "2s"})
    held: list[Message[bytes]] = []

    @app.incoming("orders", ack="manual")
    async def hold(message: Message[bytes]) -> None:
        held.append(message)
        if len(held) <= 6:
            message.ack()

    async with running(app) as test:
        await send(test, *[b"x"] * 5)
        await test.settled()
        # The write that goes back.
        store_of(app).faults.script("write", "lost")
        await test.app.channel("orders").seek(tp(), 2)
        await until(lambda: row(rows).position == 3)
        assert row(rows).token == 2
        await until(lambda: facts(test).partitions[0].committed == 3)
        await until(lambda: positions(test.broker)[-1:] == [3])
        held[6].ack()
        await until(lambda: row(rows) == Checkpoint(2, 4))


@in_virtual_time
async def test_a_seek_forward_keeps_the_state() -> None:
    rows, seen = Rows(), Seen()
    app = app_on(rows, commit_interval="1h", checkpoint={"unsynced_max_age": "2h"})
    counting(app, seen)
    async with running(app) as test:
        await send(test, *[b"x"] * 3)
        # None of it is stored yet.
        await until(lambda: len(seen) == 3)
        # And that is no way back before what is.
        await test.app.channel("orders").seek(tp(), 2)
        await until(lambda: len(seen) == 4)
        await send(test, b"y")
        await until(lambda: len(seen) == 5)
    assert seen[3:] == [(2, 2), (3, 3)]
    assert row(rows)[1:3] == (4, "4")


@pytest.mark.parametrize("outcome", ["away", "lost", "late"])
@in_virtual_time
async def test_a_write_of_unknown_outcome_is_made_good_and_nothing_goes_back(
    outcome: Outcome,
) -> None:
    rows, seen = Rows(), Seen()
    app = app_on(rows, commit_interval="100ms")
    counting(app, seen)
    async with running(app) as test:
        for number in range(20):
            if number % 3 == 1:
                store_of(app).faults.script("write", outcome)
            await send(test, b"x")
            await asyncio.sleep(0.15)
            rows.land()
        await until(lambda: row(rows)[1:3] == (20, "20"))
        stored = [one.write.checkpoint for one in rows.history if one.stored]
        assert [one.position for one in stored if one.position is not None] == sorted(
            one.position for one in stored if one.position is not None
        )
        assert {one.token for one in stored} == {1}
        assert facts(test).commits["unknown"] >= 6
    assert seen == [(offset, offset) for offset in range(20)]


@pytest.mark.parametrize("outcome", ["away", "lost", "late"])
@in_virtual_time
async def test_a_claim_of_unknown_outcome_is_not_believed(outcome: Outcome) -> None:
    rows, seen = Rows(), Seen()
    rows.put(GROUP, tp(), Checkpoint(5, 0, "7"))
    app = app_on(rows)
    store_of(app).faults.script("write", outcome)
    counting(app, seen)
    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: seen)
        rows.land()
        await test.settled()
    assert seen == [(0, 7)]
    assert row(rows) == Checkpoint(7 if outcome == "lost" else 6, 1, "8")


@in_virtual_time
async def test_what_an_earlier_owner_stores_while_the_row_is_claimed_is_not_written_over() -> None:
    rows, seen = Rows(), Seen()
    rows.put(GROUP, tp(), Checkpoint(5, 0))
    app = app_on(rows)
    counting(app, seen)
    broker = make_broker()
    for _ in range(3):
        broker.produce("orders", b"x", partition=0)
    held = store_of(app).faults.hold("write")

    async def move() -> None:
        await held.arrived()
        # Its transaction ended now.
        rows.put(GROUP, tp(), Checkpoint(5, 1, "1"))
        held.release()

    moving = asyncio.create_task(move())
    async with running(app, broker=broker) as test:
        await test.settled()
    await moving
    assert seen == [(1, 1), (2, 2)]
    await broker.close()


@in_virtual_time
async def test_kafka_gets_the_stored_positions_on_stop_although_the_group_has_just_moved_on() -> (
    None
):
    rows, seen = Rows(), Seen()
    app = app_on(rows, checkpoint={"kafka_commit_interval": "1h"})
    counting(app, seen)
    broker = make_broker()
    async with running(app, broker=broker) as test:
        await send(test, b"1")
        await test.settled()
        broker.fail_next("commit", TransientBrokerError("the group may have moved on"))
        await test.app.stop()
    assert positions(broker) == [1]
    await broker.close()


@in_virtual_time
async def test_kafka_gets_the_stored_positions_now_and_then_and_its_failure_is_told_and_tried_again() -> (
    None
):
    rows, seen, recorder = Rows(), Seen(), Recorder()
    app = app_on(rows, recorder, checkpoint={"kafka_commit_interval": "10s"})
    counting(app, seen)
    broker = make_broker()
    async with running(app, broker=broker) as test:
        broker.fail_next("commit", TransientBrokerError("the coordinator moves"))
        await send(test, b"1")
        await test.settled()
        await asyncio.sleep(9)
        assert broker.committed(GROUP) == {}
        await asyncio.sleep(2)
        assert [one.reason for one in recorder.of(KafkaCommitFailed)] == ["the coordinator moves"]
        assert facts(test).not_ready == ()
        await asyncio.sleep(10)
        assert positions(broker) == [1]
        rows.faults.away = True
        await send(test, b"2")
        await asyncio.sleep(30)
        assert len(seen) == 2
        # Not ahead of the store.
        assert positions(broker) == [1]
        rows.faults.away = False
        await asyncio.sleep(20)
        assert positions(broker) == [1, 2]
    await broker.close()


@in_virtual_time
async def test_without_a_group_the_positions_are_in_the_store_alone() -> None:
    rows, broker = Rows(), make_broker()
    for _ in range(6):
        broker.produce("orders", b"x", partition=0)
    seen = Seen()
    for who in ("a", "b"):
        app = App(
            {
                "incoming": {
                    "orders": {
                        "assign": ["orders:0"],
                        "auto_offset_reset": "earliest",
                        "commit_strategy": "checkpoint",
                        "commit_interval": "1s",
                        "checkpoint": {"store": "memory://unused"},
                    }
                }
            }
        )
        app._stores = app_on(rows, who=who)._stores
        counting(app, seen)
        async with running(app, broker=broker) as test:
            await until(lambda: facts(test).partitions[0].position == broker.end(tp()))
            await test.app.channel("orders").commit()
            assert await test.app.channel("orders").committed() == {tp(): broker.end(tp())}
            assert await test.app.channel("orders").lag() == {tp(): 0}
        broker.produce("orders", b"y", partition=0)
    assert [offset for offset, _ in seen] == list(range(7))
    found = rows.row("orders", tp())
    assert found is not None
    assert found.position == 7
    await broker.close()


@pytest.mark.parametrize(("start", "end", "state"), [(8, 12, "5"), (0, 3, None)])
@in_virtual_time
async def test_a_stored_position_that_the_log_has_not_is_reset_and_the_state_dropped_where_it_goes_back(
    start: int, end: int, state: str | None
) -> None:
    """Row G5 of the faults."""
    rows, broker, recorder, states = Rows(), make_broker(), Recorder(), list[Any]()
    for _ in range(end):
        broker.produce("orders", b"x", partition=0)
    broker.delete_records(tp(), start)
    rows.put(GROUP, tp(), Checkpoint(1, 5, "5"))
    app = app_on(rows, recorder)

    @app.incoming("orders")
    async def look(message: Message[bytes]) -> None:
        states.append(message.checkpoint.get())

    async with running(app, broker=broker) as test:
        await test.settled()
    assert states == [None if state is None else 5] * (end - start)
    assert row(rows)[1:3] == (end, state)
    assert len(recorder.of(OffsetReset)) == 1
    assert len(recorder.of(StateDropped)) == (state is None)
    await broker.close()


@in_virtual_time
async def test_two_consumers_of_a_channel_have_one_store_and_rows_of_their_own() -> None:
    rows, seen = Rows(), Seen()
    app = app_on(rows, consumers=2)
    counting(app, seen)
    async with running(app, partitions=4) as test:
        for partition in range(4):
            await send(test, b"x", b"y", partition=partition)
        await test.settled()
        await rebalanced(test)
        await send(test, b"z")
        await test.settled()
    assert [row(rows, partition)[1:3] for partition in range(4)] == [
        (3, "3"),
        (2, "2"),
        (2, "2"),
        (2, "2"),
    ]


@in_virtual_time
async def test_with_the_store_away_readiness_says_once_that_positions_are_not_stored() -> None:
    rows, seen = Rows(), Seen()
    app = app_on(rows, checkpoint={"unsynced_max_age": "3s"})
    counting(app, seen)
    async with running(app, partitions=4) as test:
        await test.settled()
        rows.faults.away = True
        for partition in range(4):
            await send(test, b"x", partition=partition)
            await asyncio.sleep(1)
        await asyncio.sleep(20)
        (line,) = (line for line in facts(test).not_ready if "are not stored for" in line)
        assert line.startswith(f"{tp(0)}: settled records")
        assert line.endswith("the store has nothing (3 more like it)")
        rows.faults.away = False
        await test.settled(20)
        assert facts(test).not_ready == ()


@in_virtual_time
async def test_an_application_that_iterates_has_states_and_transactions_too() -> None:
    rows = Rows()
    app = app_on(rows, value_deserializer="bytes")

    async def consume() -> None:
        async for message in app.channel("orders"):
            async with message.transaction() as connection:
                connection[message.offset] = 1
                message.checkpoint.set((message.checkpoint.get() or 0) + 1)

    async with running(app) as test:
        consuming = asyncio.create_task(consume())
        await until(lambda: app.channel("orders").is_ready)
        await send(test, b"x", b"y")
        await until(lambda: rows.data == {0: 1, 1: 1})
    await consuming
    assert row(rows)[1:3] == (2, "2")


@in_virtual_time
async def test_a_channel_that_is_started_again_claims_anew_and_goes_on() -> None:
    rows, seen = Rows(), Seen()
    app = app_on(rows)

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        state = message.checkpoint.get() or 0
        seen.append((message.offset, state))
        if len(seen) == 2:
            raise ValueError("once")
        message.checkpoint.set(state + 1)

    async with running(app) as test:
        await send(test, b"x", b"y")
        await until(lambda: facts(test).state == "failed")
        await test.app.channel("orders").restart()
        await until(lambda: len(seen) == 3)
        await test.settled()
    assert seen == [(0, 0), (1, 1), (1, 1)]
    assert row(rows) == (2, 2, "2", "")


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@in_virtual_time
async def test_assigned_partitions_are_read_again_if_no_state_of_them_was_ever_stored(
    reset: str,
) -> None:
    """The channel knows in memory how far it has read, but the state of that is gone."""
    rows, seen, broker = Rows(), Seen(), make_broker(1)
    for _ in range(2):
        broker.produce("orders", b"before", partition=0)
    app = app_on(rows, auto_offset_reset=reset, group_id=None, topic=None, assign=["orders:0"])
    counting(app, seen)
    begins = 0 if reset == "earliest" else 2
    async with running(app, broker=broker) as test:
        await until(lambda: app.channel("orders").is_ready)
        await send(test, b"one", b"two")
        await until(lambda: len(seen) == 4 - begins)
        rows.faults.away = True
        # Twice: what the first start has kept in mind holds for the second one.
        for _ in range(2):
            await app.channel("orders").stop()
            broker.produce("orders", b"meanwhile", partition=0)
            await app.channel("orders").start()
        rows.faults.away = False
        seen.clear()
        await until(lambda: len(seen) == 6 - begins)
        await test.settled()
        assert seen == [(offset, offset - begins) for offset in range(begins, 6)]
    await broker.close()


@in_virtual_time
async def test_a_row_that_somebody_had_meanwhile_did_not_come_straight_back() -> None:
    rows = Rows()
    app = app_on(rows)
    held: list[Message[bytes]] = []
    keep_messages(app, held, ack="manual")

    async with running(app) as test:
        await send(test, b"1")
        await until(lambda: held)
        asked = store_of(app).faults.hold("read")
        test.broker.rebalance("billing")
        await asked.arrived()
        # At the same position.
        rows.put(GROUP, tp(), row(rows)._replace(token=5))
        asked.release()
        await until(lambda: len(held) == 2)
        assert row(rows).token == 6
        assert not await held[0].ack()
        assert await held[1].ack()
        await test.settled()


@in_virtual_time
async def test_at_a_revocation_kafka_gets_what_the_store_has() -> None:
    rows, seen = Rows(), Seen()
    app = app_on(rows, checkpoint={"kafka_commit_interval": "1h"})
    counting(app, seen)
    async with running(app) as test:
        await send(test, b"1")
        await until(lambda: seen)
        assert test.broker.committed(GROUP) == {}
        await rebalanced(test)
        assert test.broker.committed(GROUP) == {tp(): Committed(1)}
        assert row(rows).position == 1


@in_virtual_time
async def test_who_asks_for_positions_while_reading_begins_takes_no_row_away_from_that() -> None:
    rows, broker, recorder, seen, asked = (
        Rows(),
        make_broker(2),
        Recorder(),
        Seen(),
        list[asyncio.Task[Any]](),
    )
    app = app_on(rows, recorder)
    counting(app, seen)
    store_of(app).faults.slow_s = 0.1

    @app.on_assigned("orders")
    async def ask(partitions: Any) -> None:
        asked.extend(asyncio.ensure_future(app.channel("orders").committed()) for _ in range(3))

    async with running(app, broker=broker, partitions=2) as test:
        await send(test, b"x", b"y")
        await test.settled()
        assert [await one for one in asked] == [{tp(0): None, tp(1): None}] * 3
        assert row(rows) == Checkpoint(1, 2, "2")
    assert [offset for offset, _ in seen] == [0, 1]
    assert [
        event for event in recorder.events if isinstance(event, PositionsUnknown | CheckpointFenced)
    ] == []
    await broker.close()


@in_virtual_time
async def test_a_store_that_is_away_at_the_start_is_spared() -> None:
    rows, reads = Rows(), list[float]()

    class Counting(MemoryStore):
        async def read(
            self, group: str, partitions: Collection[TopicPartition]
        ) -> Mapping[TopicPartition, Checkpoint]:
            reads.append(now())
            return await super().read(group, partitions)

    app = app_on(rows)
    store = Counting(rows)
    app._stores = lambda _: store
    counting(app, Seen())
    rows.faults.away = True
    asyncio.get_running_loop().call_later(60, setattr, rows.faults, "away", False)
    async with TestApp(app, broker=make_broker(), start_timeout_s=120):
        assert 8 < len(reads) < 25
        assert now() < 67


@in_virtual_time
async def test_what_goes_on_being_stored_is_never_told_to_be_behind() -> None:
    rows, seen = Rows(), Seen()
    app = app_on(rows, checkpoint={"unsynced_max_age": "3s"})
    counting(app, seen)
    ages = []
    async with running(app) as test:
        # There is always something that it has not got.
        store_of(app).faults.slow_s = 0.3
        for _ in range(200):
            await send(test, b"x")
            await asyncio.sleep(0.05)
            ages.append(facts(test).unsynced_age_s or 0.0)
            assert facts(test).not_ready == ()
    assert 0.9 < max(ages) <= 2


@in_virtual_time
async def test_a_nacked_record_has_set_nothing() -> None:
    rows, seen = Rows(), list[Any]()
    app = app_on(rows, failure_strategy="ignore")

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        seen.append(message.checkpoint.get())
        message.checkpoint.set(message.offset)
        if message.offset == 1:
            raise ValueError("bad")

    async with running(app) as test:
        await send(test, b"1", b"2", b"3")
        await test.settled()
    assert seen == [None, 0, 0]
    assert row(rows)[1:3] == (3, "2")


@in_virtual_time
async def test_the_store_is_closed_at_the_end_and_opened_once() -> None:
    rows, told = Rows(), list[str]()

    class Told(MemoryStore):
        async def close(self) -> None:
            told.append("closed")

    app = app_on(rows)

    def opened(settings: object) -> MemoryStore:
        told.append("opened")
        return Told(rows)

    app._stores = opened
    counting(app, Seen())
    async with running(app) as test:
        await rebalanced(test)
        assert told == ["opened"]
    assert told == ["opened", "closed"]


@in_virtual_time
async def test_the_metadata_that_kafka_would_have_stands_beside_the_position() -> None:
    rows, broker, found = Rows(), make_broker(), list[Any]()
    for who in ("a", "b"):
        app = app_on(rows, who=who)

        @app.incoming("orders")
        async def handle(message: Message[bytes]) -> None:
            message.ack(metadata=f"done {message.offset}")

        async with running(app, broker=broker) as test:
            found.append(await test.app.channel("orders").offset_metadata(tp()))
            await send(test, b"1")
            await test.settled()
    assert found == ["", "done 0"]
    assert row(rows) == (2, 2, None, "done 1")
    assert broker.committed(GROUP) == {tp(): Committed(2, "done 1")}
    await broker.close()


@pytest.mark.parametrize("mode", ["records", "ranges"])
@in_virtual_time
async def test_the_plans_of_a_spark_channel_stand_in_the_store_before_its_function_runs(
    mode: str,
) -> None:
    rows, broker, seen = Rows(), make_broker(), list[tuple[int | None, int]]()
    checkpoint: dict[str, Any] = {
        "commit_strategy": "checkpoint",
        "checkpoint": {"store": "memory://unused"},
    }
    for who in ("a", "b"):
        app, engine = spark_app(broker, spark={"mode": mode}, **checkpoint)
        app._stores = app_on(rows, who=who)._stores

        def note(job: Job) -> BaseException | None:
            there = row(rows)
            plans = plans_in(there.metadata, there.position)
            seen.append((there.position, plans[0][1]))
            return None

        engine.judge = note
        async with running(app, broker=broker) as test:
            await send(test, 1, 2)
            await until(lambda: row(rows).position == broker.end(tp()))
    assert seen == [(None, 2), (2, 4)] or seen == [(0, 2), (2, 4)]
    await broker.close()


@in_virtual_time
async def test_no_function_runs_on_a_range_whose_plan_was_refused_beside_one_that_was_stored() -> (
    None
):
    rows, broker, unplanned = Rows(), make_broker(6), list[str]()
    settings: dict[str, Any] = {
        "commit_strategy": "checkpoint",
        "checkpoint": {"store": "memory://unused"},
    }
    app, engine = spark_app(broker, consumers=2, **settings)
    other, _ = spark_app(broker, **settings)
    app._stores, other._stores = app_on(rows)._stores, app_on(rows, who="b")._stores

    def note(job: Job) -> BaseException | None:
        for one in job.batch.ranges:
            there = row(rows, one.partition)
            plans = plans_in(there.metadata, there.position)
            unplanned.extend([] if (one.start, one.until) in plans else [str(one)])
        return None

    engine.judge = note
    async with running(app, broker=broker) as test, running(other, broker=broker):
        lost = await middle_member(broker, app)
        planning = store_of(app).faults.hold("write")
        for partition in (2, 3):
            await send(test, 1, partition=partition)
        await planning.arrived()
        store_of(other).faults.hold("read")
        tokens = row(rows, 2).token, row(rows, 3).token
        broker.expire(GROUP, lost, notice_after_s=30)
        # The first client of this channel has taken it over.
        await until(lambda: row(rows, 2).token > tokens[0])
        assert row(rows, 3).token == tokens[1]
        planning.release()
        await until(lambda: any(job.offsets == [(2, 0)] for job in engine.jobs), 60)
    assert unplanned == []
    await broker.close()


@in_virtual_time
async def test_nobody_is_told_that_a_position_is_stored_which_was_refused_beside_one_that_was() -> (
    None
):
    rows, broker, told = Rows(), make_broker(6), list[asyncio.Future[None]]()
    app, other = app_on(rows, consumers=2), app_on(rows, who="b")
    hold = asyncio.Event()

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        if message.partition == 2:
            told.append(asyncio.ensure_future(message.committed()))
            if len(told) > 1:
                await hold.wait()

    counting(other, Seen())
    async with running(app, broker=broker) as test, running(other, broker=broker):
        lost = await middle_member(broker, app)
        writing = store_of(app).faults.hold("write")
        for partition in (2, 3):
            await send(test, b"x", partition=partition)
        await writing.arrived()
        store_of(other).faults.hold("read")
        token = row(rows, 2).token
        broker.expire(GROUP, lost, notice_after_s=30)
        await until(lambda: row(rows, 2).token > token)
        writing.release()
        await until(lambda: len(told) == 2)
        assert row(rows, 2).position is None
        with pytest.raises(NotOwnerError):
            await told[0]
        hold.set()
        await told[1]
        assert row(rows, 2).position == 1
    await broker.close()


async def middle_member(broker: Any, app: App) -> str:
    """Wait until three members have two partitions each; the one whose part goes to both of its
    neighbours.
    """
    await until(lambda: [len(own) for own in broker.members(GROUP).values()] == [2, 2, 2])
    (lost,) = [one for one, own in broker.members(GROUP).items() if own == {tp(2), tp(3)}]
    await until(
        lambda: app.channel("orders").is_ready and len(app.channel("orders").assignment) == 4
    )
    assert app.channel("orders").assignment == {tp(number) for number in range(4)}
    return lost


@in_virtual_time
async def test_metadata_that_an_earlier_owner_stores_while_the_row_is_claimed_is_not_written_over() -> (
    None
):
    rows, held = Rows(), list[Message[bytes]]()
    first = app_on(rows, who="a", commit_interval="100ms")

    @first.incoming("orders", ack="manual")
    async def hold(message: Message[bytes]) -> None:
        held.append(message)

    broker = make_broker()
    async with running(first, broker=broker) as test:
        await send(test, b"1", b"2", b"3")
        await until(lambda: len(held) == 3)
        held[0].ack()
        await until(lambda: row(rows).position == 1)
        # What another owner has read by now.
        read = row(rows)
        # The position cannot move.
        held[2].ack(metadata="newer")
        await until(lambda: row(rows).metadata == "newer")
        assert row(rows).position == 1
        claim = Write(read.token, read._replace(token=read.token + 1), read.position)
        assert rows.write("b", GROUP, {tp(): claim}) == {tp()}
        assert row(rows).metadata == "newer"
        again = row(rows)
        await asyncio.sleep(2)
        # What changes nothing is not written.
        assert row(rows) == again
    await broker.close()


@in_virtual_time
async def test_a_message_whose_partition_is_gone_has_no_state() -> None:
    rows, held = Rows(), list[Message[bytes]]()
    app = app_on(rows)
    keep_messages(app, held, ack="manual")

    async with running(app) as test:
        await send(test, b"1")
        await until(lambda: held)
        await test.app.channel("orders").seek(tp(), 0)
        await until(lambda: len(held) == 2)
        with pytest.raises(NotOwnerError):
            held[0].checkpoint.get()
        with pytest.raises(NotOwnerError):
            held[0].checkpoint.set(1)
        assert held[1].checkpoint.get() is None
        held[1].checkpoint.set(1)
        await held[1].ack()
        with pytest.raises(CheckpointError, match="has its verdict"):
            held[1].checkpoint.set(2)


@in_virtual_time
async def test_who_has_no_partitions_does_not_wait_for_the_store() -> None:
    rows, broker = Rows(), make_broker()
    first, second = (app_on(rows, who=who) for who in ("a", "b"))
    counting(first, Seen())
    counting(second, Seen())
    async with running(first, broker=broker) as test, TestApp(second, broker=broker) as other:
        owner, idle = (test, other) if facts(test).partitions else (other, test)
        await send(test, b"1")
        await owner.settled()
        store_of(owner.app).faults.away = True
        await send(test, b"2")
        await until(lambda: any("store is away" in reason for reason in facts(owner).not_ready))
        named = dict(broker.members(GROUP))
        (member,) = [one for one, partitions in named.items() if partitions]
        broker.expire(GROUP, member, notice_after_s=1)
        await until(lambda: facts(idle).partitions, 60)
        await until(lambda: facts(owner).state == "running" and not facts(owner).partitions, 60)
        await until(lambda: owner.app.channel("orders").is_ready, 60)
        await until(lambda: facts(owner).not_ready == (), 60)
    await broker.close()


@in_virtual_time
async def test_a_partition_that_was_paused_when_another_owner_took_it_over_flows_again_when_it_begins_anew() -> (
    None
):
    rows, go_on, recorder = Rows(), asyncio.Event(), Recorder()
    app = app_on(rows, recorder, max_in_flight=2)

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        async with message.transaction() as connection:
            await go_on.wait()
            connection[message.offset] = 1

    async with running(app) as test:
        await send(test, *[b"x"] * 8)
        await until(lambda: facts(test).partitions[0].paused)
        rows.put(GROUP, tp(), Checkpoint(9, 0))
        go_on.set()
        await until(lambda: recorder.of(CheckpointFenced))
        await test.settled(30)
    assert rows.data == dict.fromkeys(range(8), 1)


@in_virtual_time
async def test_kafkas_position_does_not_go_back_to_what_an_earlier_assignment_knew() -> None:
    rows, seen = Rows(), Seen()
    app = app_on(rows, checkpoint={"kafka_commit_interval": "500ms"})
    counting(app, seen)
    async with running(app) as test:
        await send(test, *[b"x"] * 4)
        await test.settled()
        await until(lambda: positions(test.broker) == [4])

        # Longer than the interval.
        store_of(app).faults.slow_s = 3
        hold = test.broker.hold("committed")
        (member,) = test.broker.members(GROUP)
        test.broker.expire(GROUP, member)
        rows.put(GROUP, tp(), Checkpoint(5, 3))
        await hold.arrived()
        await asyncio.sleep(2)
        assert positions(test.broker) == [4]
        hold.release()
        await test.settled(60)


@in_virtual_time
async def test_a_broker_that_takes_less_metadata_has_the_position_all_the_same() -> None:
    rows = Rows()
    app = app_on(rows)

    @app.incoming("orders")
    async def handle(message: Message[bytes]) -> None:
        message.ack(metadata="a string that is too long for it")

    broker = make_broker()
    broker.limit_metadata(GROUP, 10)
    async with running(app, broker=broker) as test:
        await send(test, b"1")
        await test.settled()
    assert row(rows).metadata == "a string that is too long for it"
    assert broker.committed(GROUP) == {tp(): Committed(1)}
    await broker.close()


@in_virtual_time
async def test_of_two_clients_of_one_channel_only_the_one_that_has_the_row_writes_it() -> None:
    rows, seen, go_on = Rows(), Seen(), asyncio.Event()
    app = app_on(rows, consumers=2, commit_interval="2s")

    @app.incoming("orders")
    async def count(message: Message[bytes]) -> None:
        state = message.checkpoint.get() or 0
        seen.append((message.offset, state))
        if len(seen) > 10:
            await go_on.wait()
        message.checkpoint.set(state + 1)

    async with running(app, partitions=2) as test:
        await send(test, *[b"x"] * 5)
        await until(lambda: row(rows).position == 5)
        (member,) = [
            one for one, partitions in test.broker.members(GROUP).items() if tp() in partitions
        ]
        await send(test, *[b"x"] * 5)
        # Settled by the first client, and not stored yet.
        await until(lambda: len(seen) == 10)
        test.broker.expire(GROUP, member, notice_after_s=30)
        await until(lambda: len(seen) == 11)
        # The first client has tried to write what it has settled.
        await asyncio.sleep(5)
        assert row(rows) == Checkpoint(2, 5, "5")
        # And has given the partition up.
        assert sum(one.partition == tp() for one in facts(test).partitions) == 1
        go_on.set()
        await until(lambda: row(rows) == Checkpoint(2, 10, "10"), 60)
        assert facts(test).duplicates_dropped == 0
        assert [offset for offset, _ in seen] == [*range(10), *range(5, 10)]
        stored = [one.write for one in rows.history if one.stored and one.partition == tp()]
        assert [one.checkpoint.token for one in stored if one.checkpoint.position == 10] == [2]


@pytest.mark.parametrize("outcome", ["away", "corrupt"])
@in_virtual_time
async def test_a_store_that_cannot_be_used_is_told_once_and_so_is_its_coming_back(
    outcome: Outcome,
) -> None:
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder)
    counting(app, Seen())
    store_of(app).faults.script("read", outcome, outcome, outcome)
    async with TestApp(app, broker=make_broker(), start_timeout_s=60):
        assert len(recorder.of(StoreUnavailable)) == 1
        (back,) = recorder.of(StoreAvailable)
        assert back.away_s > 0


@pytest.mark.parametrize("outage_s", [1, 30, 400])
@pytest.mark.parametrize("kind", ["away", "frozen"])
@in_virtual_time
async def test_a_store_that_is_away_while_nothing_is_to_be_stored_is_told_and_so_is_its_return(
    kind: str, outage_s: int
) -> None:
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder)
    counting(app, Seen())
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: row(rows).position == 1)
        await asyncio.sleep(10)
        assert recorder.of(StoreUnavailable) == []
        faults = store_of(app).faults
        faults.away = kind == "away"
        faults.slow_s = 1e6 if kind == "frozen" else 0.0
        began = now()
        if outage_s > 7:
            await until(lambda: app.health().ready.status == "DOWN", 7)
            (check,) = [one for one in app.health().ready.checks if one.name == "orders"]
            assert "the checkpoint store is away" in str(check.data["reason"])
        await asyncio.sleep(began + outage_s - now())
        assert app.health().live.status == "UP"
        faults.away = False
        faults.slow_s = 0.0
        await until(lambda: app.health().ready.status == "UP", 7)
        assert len(recorder.of(StoreUnavailable)) == len(recorder.of(StoreAvailable)) <= 1


@in_virtual_time
async def test_a_store_that_answers_reads_and_takes_no_writes_stays_away_until_it_takes_them() -> (
    None
):
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder)
    counting(app, Seen())
    async with running(app) as test:
        await until(lambda: facts(test).partitions)
        store_of(app).faults.script("write", *["away"] * 30)
        await send(test, b"")
        await until(lambda: bool(recorder.of(StoreUnavailable)), 10)
        await asyncio.sleep(20)
        assert recorder.of(StoreAvailable) == []
        assert app.health().ready.status == "DOWN"
        await until(lambda: row(rows).position == 1, 300)
        assert len(recorder.of(StoreUnavailable)) == len(recorder.of(StoreAvailable)) == 1


def test_a_thread_that_outlives_the_application_is_told_that_there_is_no_state_any_more() -> None:
    app, kept, told = app_on(Rows(), drain_timeout="100ms"), list[Message[bytes]](), list[str]()
    keep_messages(app, kept, ack="manual")

    async def main() -> None:
        async with running(app) as test:
            await send(test, b"")
            await until(lambda: kept)

    def thread() -> None:
        state = kept[0].checkpoint
        for ask in (state.get, lambda: state.set(1)):
            with pytest.raises(NotOwnerError) as caught:
                ask()
            told.append(str(caught.value))

    asyncio.run(main())
    asker = threading.Thread(target=thread)
    asker.start()
    asker.join()
    assert told == ["channel 'orders' has ended: no partition is its own any more"] * 2


class SlowToCancel(MemoryStore):
    """A store whose writes do not end, and which cleans up after one that is cancelled."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.writes = 0
        self.cleaned = 0

    async def write(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> frozenset[TopicPartition]:
        if not all(write.checkpoint.position for write in writes.values()):
            return await super().write(group, writes)
        self.writes += 1
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(0.1)
            self.cleaned += 1
        return frozenset()


@in_virtual_time
async def test_a_write_that_is_on_its_way_at_the_end_is_cancelled_once_and_cleans_up() -> None:
    rows = Rows()
    app = app_on(rows, drain_timeout="1s")
    store = SlowToCancel(rows)
    app._stores = lambda _: store
    counting(app, [])
    async with running(app) as test:
        await send(test, b"")
        await until(lambda: store.writes)
    await asyncio.sleep(1)
    assert store.cleaned == store.writes


@in_virtual_time
async def test_a_partition_whose_row_another_owner_has_does_not_make_the_others_lost() -> None:
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder, revoke_grace="5s", concurrency=2)
    begun = asyncio.Event()
    continues = asyncio.Event()
    told: list[tuple[bool, int | None]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.partition == 1:
            begun.set()
            await continues.wait()

    @app.on_revoked("orders")
    async def gone(partitions: Collection[TopicPartition], lost: bool) -> None:
        told.append((lost, row(rows, 1).position))

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=1)
        await begun.wait()
        rows.put(GROUP, tp(0), Checkpoint(9))
        await send(test, b"", partition=0)
        await until(lambda: recorder.of(CheckpointFenced))
        asyncio.get_running_loop().call_later(2, continues.set)
        test.broker.rebalance("billing")
        await until(lambda: told)
        # The hook runs after the handler of the other partition, which it waits for.
        assert continues.is_set()
        assert told == [(False, None)]
        await until(lambda: row(rows, 1).position == 1)
