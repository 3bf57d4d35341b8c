"""``message.transaction()``: the application's rows and the position are stored together, once,
whatever happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reactive_kafka import App, Batch, Checkpoint, Message
from reactive_kafka.errors import (
    CheckpointError,
    CheckpointRefusedError,
    CommitRefusedError,
    StoreAwayError,
)
from reactive_kafka.events import RecordPoisoned
from tests.app.checkpoints import GROUP, Outcome, Rows, app_on, row, store_of
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    inside,
    make_app,
    make_broker,
    now,
    rebalanced,
    running,
    send,
    settle_down,
    tp,
    until,
)

# Offsets.
Calls = list[int]


def storing(app: App, calls: Calls, **settings: Any) -> None:
    """A handler that writes a row a record, and counts in it how often that was stored."""

    @app.incoming("orders", **settings)
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        async with message.transaction() as connection:
            stored = store_of(app).rows.data.get(message.offset, 0)
            connection[message.offset] = stored + 1
            message.checkpoint.set((message.checkpoint.get() or 0) + 1)


@in_virtual_time
async def test_rows_position_and_state_are_stored_by_the_end_of_the_block() -> None:
    rows = Rows()
    app = app_on(rows, commit_interval="1h", checkpoint={"unsynced_max_age": "2h"})

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        async with message.transaction() as connection:
            connection[message.offset] = 1
            message.checkpoint.set([message.offset])
            assert message.offset not in rows.data
        assert rows.data[message.offset] == 1
        assert row(rows) == (1, message.offset + 1, f"[{message.offset}]", "")
        await asyncio.wait_for(message.committed(), 1)

    async with running(app) as test:
        await send(test, *[b"x"] * 5)
        await until(lambda: facts(test).partitions[0].committed == 5)
        assert rows.data == dict.fromkeys(range(5), 1)
        assert facts(test).totals[tp()].acked == 5
        assert facts(test).partitions[0].in_flight == 0


@pytest.mark.parametrize("outcome", ["away", "lost", "late"])
@pytest.mark.parametrize("call", ["enter", "exit"])
@in_virtual_time
async def test_however_a_transaction_ends_each_record_is_stored_once(
    call: Any, outcome: Outcome
) -> None:
    rows, calls = Rows(), Calls()
    app = app_on(rows)
    storing(app, calls)
    async with running(app) as test:
        store_of(app).faults.script(call, "ok", "ok", outcome, "ok", outcome, outcome)
        for _ in range(10):
            await send(test, b"x")
            await asyncio.sleep(0.05)
            rows.land()
        await until(lambda: facts(test).partitions[0].committed == 10, 60)
        rows.land()
        assert rows.data == dict.fromkeys(range(10), 1)
        assert row(rows) == (1, 10, "10", "")
        assert not facts(test).totals[tp()].nacked
        if call == "exit" and outcome == "away":
            # It was handled again.
            assert len(calls) > 10


@in_virtual_time
async def test_a_transaction_that_lands_after_its_record_is_handled_again_is_found_and_the_record_dropped() -> (
    None
):
    rows, calls = Rows(), Calls()
    app = app_on(rows)
    storing(app, calls)
    async with running(app) as test:
        store_of(app).faults.script("exit", "late")
        await send(test, b"x")
        held = store_of(app).faults.hold("exit")
        await until(lambda: len(calls) == 2)
        await held.arrived()
        # Now, while the second one is about to end.
        assert [one.stored for one in rows.land()] == [True]
        held.release()
        await until(lambda: facts(test).duplicates_dropped == 1)
        await send(test, b"y")
        await until(lambda: facts(test).partitions[0].committed == 2)
        assert calls == [0, 0, 1]
        assert rows.data == {0: 1, 1: 1}
        assert not facts(test).totals[tp()].nacked


@in_virtual_time
@pytest.mark.parametrize("reads", ["before", "inside"])
@pytest.mark.parametrize("outcome", ["lost", "late"])
async def test_the_state_after_a_seek_has_what_a_transaction_before_it_turns_out_to_have_stored(
    outcome: Outcome, reads: str
) -> None:
    rows, calls = Rows(), Calls()
    app = app_on(rows)

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        state = message.checkpoint.get() if reads == "before" else None
        async with message.transaction() as connection:
            connection[message.offset] = 1
            if reads == "inside":
                state = message.checkpoint.get()
            message.checkpoint.set([*(state or ()), message.offset])

    async with running(app) as test:
        faults = store_of(app).faults
        await send(test, b"")
        await until(lambda: facts(test).partitions[0].committed == 1)
        faults.script("exit", outcome)
        look = faults.hold("read")
        await send(test, b"")
        await look.arrived()
        faults.away = True
        look.release()
        await send(test, b"", b"")
        await test.app.channel("orders").seek(tp(), 3)
        await until(lambda: calls[-1] == 3)
        rows.land()
        faults.away = False
        await until(lambda: facts(test).partitions[0].committed == 4)
        assert rows.data == {0: 1, 1: 1, 3: 1}
        assert row(rows).state == "[0,1,3]"


@in_virtual_time
async def test_a_record_whose_transaction_fails_is_nacked_and_nothing_of_it_is_stored() -> None:
    rows = Rows()
    app = app_on(rows, failure_strategy="ignore")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        async with message.transaction() as connection:
            connection[message.offset] = 1
            message.checkpoint.set(message.offset)
            if message.offset == 1:
                raise ValueError("bad")

    async with running(app) as test:
        await send(test, b"x", b"y", b"z")
        await test.settled()
        assert rows.data == {0: 1, 2: 1}
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
        assert row(rows) == (1, 3, "2", "")


@in_virtual_time
async def test_the_next_attempt_sees_the_state_of_before_the_one_that_failed() -> None:
    rows, seen = Rows(), list[tuple[int, Any]]()
    app = app_on(rows)

    @app.incoming("orders", retry=3)
    async def count(message: Message[bytes]) -> None:
        state = message.checkpoint.get() or 0
        seen.append((message.attempt, state))
        message.checkpoint.set(state + 1)
        if message.attempt < 3:
            raise ValueError("again")

    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        assert seen == [(1, 0), (2, 0), (3, 0)]
        assert row(rows).state == "1"


@in_virtual_time
async def test_a_transaction_past_an_unsettled_record_is_refused() -> None:
    rows, kept, refused = Rows(), list[Message[bytes]](), list[str]()
    app = app_on(rows)

    @app.incoming("orders", ack="manual")
    async def store(message: Message[bytes]) -> None:
        if message.offset == 0:
            kept.append(message)
            return
        try:
            async with message.transaction() as connection:
                connection[message.offset] = 1
        except CheckpointError as error:
            refused.append(str(error))
            if message.offset == 1:
                await message.ack()

    async with running(app) as test:
        await send(test, b"x", b"y")
        await until(lambda: refused)
        assert "unsettled record before offset 1" in refused[0]
        assert rows.data == {}
        await kept[0].ack()
        await until(lambda: facts(test).partitions[0].committed == 2)


async def test_a_blocking_handler_has_states_and_is_told_that_it_has_no_transactions() -> None:
    rows, texts = Rows(), list[str]()
    app = app_on(rows)

    @app.incoming("orders")
    def block(message: Message[bytes]) -> None:
        message.checkpoint.set((message.checkpoint.get() or 0) + 1)
        with pytest.raises(CheckpointError, match="make the handler async") as caught:
            message.transaction()
        texts.append(str(caught.value))

    async with running(app) as test:
        await send(test, b"x", b"y")
        await test.settled()
        assert row(rows).state == "2"
        assert len(texts) == 2


@in_virtual_time
async def test_while_the_store_is_away_a_transaction_waits_ages_nothing_and_goes_on() -> None:
    rows, calls, recorder = Rows(), Calls(), Recorder()
    app = app_on(rows, recorder, unprocessed_record_max_age="1s")
    storing(app, calls)
    async with running(app) as test:
        rows.faults.away = True
        since = now()
        await send(test, b"x")
        await until(lambda: any("store is away" in reason for reason in facts(test).not_ready))
        await asyncio.sleep(60)
        assert facts(test).state == "running"
        assert not facts(test).poison
        assert test.app.health().live.status == "UP"
        assert test.app.health().ready.status == "DOWN"
        rows.faults.away = False
        await until(lambda: facts(test).partitions[0].committed == 1)
        assert now() - since >= 60
        assert calls == [0]
        assert rows.data == {0: 1}
        await until(lambda: test.app.health().ready.status == "UP")


@in_virtual_time
async def test_an_application_that_iterates_opens_its_block_again_if_the_store_goes_in_the_middle() -> (
    None
):
    rows, ends = Rows(), list[str]()
    app = app_on(rows, value_deserializer="bytes", unprocessed_record_max_age="1s")

    async def store(message: Message[bytes]) -> None:
        while True:
            try:
                async with message.transaction() as connection:
                    connection[message.offset] = len(ends)
                    rows.faults.away = not ends
                    ends.append("block")
                return
            except StoreAwayError:
                ends.append("away")

    async def consume() -> None:
        async for message in app.channel("orders"):
            await store(message)

    async with running(app) as test:
        consuming = asyncio.create_task(consume())
        await until(lambda: app.channel("orders").is_ready)
        await send(test, b"x")
        await until(lambda: ends)
        await asyncio.sleep(60)
        assert not facts(test).poison
        assert rows.data == {}
        rows.faults.away = False
        await until(lambda: facts(test).partitions[0].committed == 1)
    await consuming
    assert ends == ["block", "away", "block"]
    assert rows.data == {0: 2}


@pytest.mark.parametrize("pause_s", [0.0, 1.0])
@in_virtual_time
async def test_an_application_that_iterates_learns_in_a_stop_that_its_partition_has_gone(
    pause_s: float,
) -> None:
    rows, attempts = Rows(), list[float]()
    app = app_on(rows, value_deserializer="bytes", drain_timeout="2s")

    async def store(message: Message[bytes]) -> None:
        while True:
            attempts.append(now())
            # A loop that never waits would hold up the event loop.
            assert attempts.count(now()) == 1
            try:
                async with message.transaction() as connection:
                    connection[message.offset] = 1
                return
            except StoreAwayError:
                if pause_s:
                    await asyncio.sleep(pause_s)

    async def consume() -> None:
        async for message in app.channel("orders"):
            await store(message)

    async with running(app) as test:
        consuming = asyncio.create_task(consume())
        await until(lambda: app.channel("orders").is_ready)
        rows.faults.away = True
        await send(test, b"x")
        await until(lambda: attempts)
        await asyncio.sleep(60)
        assert len(attempts) == 1
        since = now()
    with pytest.raises(CheckpointRefusedError, match="is not ours any more"):
        await consuming
    assert now() - since < 5
    assert 2 <= len(attempts) <= 50
    assert rows.data == {}


@in_virtual_time
async def test_a_stop_ends_the_wait_for_the_store_and_leaves_the_record() -> None:
    rows, calls = Rows(), Calls()
    app = app_on(rows, drain_timeout="3s")
    storing(app, calls)
    broker = make_broker()
    async with running(app, broker=broker) as test:
        rows.faults.away = True
        await send(test, b"x")
        await until(lambda: calls)
        await asyncio.sleep(1)
        since = now()
    assert now() - since < 20
    rows.faults.away = False
    again = app_on(rows, who="b")
    storing(again, calls)
    async with running(again, broker=broker) as test:
        await until(lambda: facts(test).partitions[0].committed == 1)
    assert calls == [0, 0]
    assert rows.data == {0: 1}
    await broker.close()


@in_virtual_time
async def test_another_owner_in_the_middle_of_a_transaction_ends_it_without_a_trace() -> None:
    rows, outcomes = Rows(), list[type[BaseException] | None]()
    app = app_on(rows, failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        try:
            async with message.transaction() as connection:
                connection[message.offset] = 1
                # Somebody else takes the row over.
                if not outcomes:
                    there = row(rows)
                    rows.put(GROUP, tp(), there._replace(token=there.token + 1))
        except BaseException as error:
            outcomes.append(type(error))
            raise
        outcomes.append(None)

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: len(outcomes) == 2, 30)
        assert outcomes == [CheckpointRefusedError, None]
        await until(lambda: facts(test).partitions[0].committed == 1)
        assert rows.data == {0: 1}
        assert row(rows) == Checkpoint(3, 1)
        assert test.records("dead-letter-topic-orders") == []
        assert not facts(test).totals[tp()].nacked


@in_virtual_time
async def test_a_batch_is_stored_whole_over_its_partitions() -> None:
    rows = Rows()
    app = app_on(
        rows, commit_interval="1h", checkpoint={"unsynced_max_age": "2h"}, batch_max_wait="100ms"
    )
    sizes: list[int] = []

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        async with batch.transaction() as connection:
            for message in batch:
                connection[message.partition, message.offset] = 1
                message.checkpoint.set((message.checkpoint.get() or 0) + 1)
        sizes.append(len(batch))

    async with running(app, partitions=2) as test:
        store_of(app).faults.script("exit", "lost", "away")
        await send(test, *[b"x"] * 3)
        await send(test, *[b"y"] * 4, partition=1)
        await until(lambda: sum(sizes) >= 7)
        assert set(rows.data) == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)}
        assert row(rows)[1:3] == (3, "3")
        assert row(rows, 1)[1:3] == (4, "4")


@in_virtual_time
async def test_the_committer_and_a_transaction_do_not_get_into_each_others_way() -> None:
    rows, calls = Rows(), Calls()
    app = app_on(rows, commit_interval="10ms", checkpoint={"unsynced_max_age": "2h"})

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        if message.offset % 3:
            # Without a transaction.
            return
        async with message.transaction() as connection:
            await asyncio.sleep(0.5)
            connection[message.offset] = 1

    async with running(app, partitions=2) as test:
        await send(test, *[b"x"] * 9)
        await send(test, b"y", b"y", partition=1)
        await test.settled(30)
        assert calls.count(0) == 2
        assert len(calls) == 11
        assert rows.data == {0: 1, 3: 1, 6: 1}
        assert all(one.stored for one in rows.history)


@in_virtual_time
async def test_a_channel_without_a_store_says_so() -> None:
    app, texts = make_app(), list[str]()

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        asks: list[Callable[[], object]] = [lambda: message.checkpoint, message.transaction]
        for ask in asks:
            with pytest.raises(CheckpointError, match='commit_strategy = "checkpoint"') as caught:
                ask()
            texts.append(str(caught.value))

    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        assert len(texts) == 2
    await settle_down()


@in_virtual_time
async def test_a_handler_that_a_seek_has_left_in_its_transaction_stores_nothing_and_holds_up_nobody() -> (
    None
):
    rows, calls, ended = Rows(), Calls(), list[type[BaseException]]()
    app = app_on(rows)
    stuck = asyncio.Event()

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        try:
            async with message.transaction() as connection:
                if len(calls) == 1:
                    await stuck.wait()
                connection[message.offset] = rows.data.get(message.offset, 0) + 1
        except BaseException as error:
            ended.append(type(error))
            raise

    async with running(app) as test:
        await send(test, b"x", b"y")
        await until(lambda: calls)
        await test.app.channel("orders").seek(tp(), 0)
        await test.settled()
        assert calls == [0, 0, 1]
        stuck.set()
        await until(lambda: ended)
        assert ended == [CheckpointRefusedError]
        assert rows.data == {0: 1, 1: 1}
        assert row(rows).position == 2


@in_virtual_time
async def test_a_record_that_was_stored_before_its_partition_came_straight_back_is_dropped_before_its_handler() -> (
    None
):
    rows, calls = Rows(), Calls()
    app = app_on(rows, revoke_grace="1s")
    storing(app, calls)
    async with running(app) as test:
        store_of(app).faults.script("exit", "lost")
        # Its look at what became of it.
        held = store_of(app).faults.hold("read")
        await send(test, b"x", b"y")
        await held.arrived()
        store_of(app).faults.away = True
        held.release()
        await asyncio.sleep(0.5)
        rebalancing = asyncio.create_task(rebalanced(test))
        await asyncio.sleep(5)
        store_of(app).faults.away = False
        await rebalancing
        await until(lambda: facts(test).partitions[0].committed == 2)
        assert calls == [0, 1]
        assert rows.data == {0: 1, 1: 1}
        assert facts(test).duplicates_dropped == 1


@in_virtual_time
async def test_what_the_application_has_for_the_next_position_goes_with_a_transaction() -> None:
    rows = Rows()
    app = app_on(rows)

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        async with message.transaction() as connection:
            connection[message.offset] = 1
            app.channel("orders").store_offset_metadata(tp(), f"stage {message.offset}")

    async with running(app) as test:
        await send(test, b"x", b"y")
        await until(lambda: rows.data == {0: 1, 1: 1})
        assert row(rows) == (1, 2, None, "stage 1")
        assert await app.channel("orders").offset_metadata(tp()) == "stage 1"


@in_virtual_time
async def test_a_batch_waits_for_the_letter_of_a_record_in_it_that_nobody_can_read() -> None:
    rows = Rows()
    app = app_on(rows, failure_strategy="dead-letter-queue", batch_max_wait="100ms")
    sizes: list[int] = []

    @app.incoming("orders")
    async def store(batch: Batch[int]) -> None:
        async with batch.transaction() as connection:
            sizes.append(len(batch))
            for message in batch:
                connection[message.offset] = 1

    async with running(app) as test:
        test.broker.topic_away("dead-letter-topic-orders")
        await send(test, b"1", b"no json", b"3")
        await asyncio.sleep(5)
        assert sizes == []
        test.broker.topic_back("dead-letter-topic-orders")
        await test.settled(30)
        assert rows.data == {0: 1, 2: 1}
        assert len(test.records("dead-letter-topic-orders")) == 1
        assert row(rows).position == 3


@in_virtual_time
async def test_a_store_without_transactions_is_named() -> None:
    rows, texts = Rows(), list[str]()
    app = app_on(rows)

    whole = store_of(app)

    class Plain:
        read, write, close = whole.read, whole.write, whole.close

    app._stores = lambda _: Plain()

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        with pytest.raises(CheckpointError, match=r"Plain.* has no transactions") as caught:
            message.transaction()
        texts.append(str(caught.value))

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: texts)


@in_virtual_time
async def test_a_long_transaction_does_not_hold_up_the_commits_of_other_partitions() -> None:
    rows = Rows()
    app = app_on(
        rows, commit_interval="100ms", checkpoint={"unsynced_max_age": "2h"}, concurrency=2
    )
    go_on = asyncio.Event()

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        if (message.partition, message.offset) == (0, 1):
            async with message.transaction():
                await go_on.wait()

    async with running(app, partitions=2) as test:
        await send(test, b"x", b"x")
        await asyncio.sleep(0)
        await send(test, b"y", partition=1)
        await until(lambda: (found := rows.row(GROUP, tp(1))) is not None and found.position == 1)
        go_on.set()
        await test.settled()
        assert row(rows).position == 2


@in_virtual_time
async def test_a_transaction_begins_when_the_commit_that_is_on_its_way_has_ended() -> None:
    rows, entered = Rows(), list[float]()
    app = app_on(rows, commit_interval="1s")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        if message.offset == 1:
            async with message.transaction() as connection:
                entered.append(now())
                connection[message.offset] = 1

    async with running(app) as test:
        held = store_of(app).faults.hold("write")
        await send(test, b"x")
        await held.arrived()
        await send(test, b"y")
        await asyncio.sleep(0.5)
        assert not entered
        held.release()
        await until(lambda: entered)
        await test.settled()
    assert all(one.stored for one in rows.history)


@in_virtual_time
async def test_while_a_handler_waits_to_be_called_again_its_record_does_not_age() -> None:
    rows, calls = Rows(), Calls()
    app = app_on(rows, unprocessed_record_max_age="100ms")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        async with message.transaction() as connection:
            connection[message.offset] = 1

    async with running(app) as test:
        store_of(app).faults.script("exit", "away", "away", "away", "away")
        await send(test, b"x")
        await test.settled()
        assert calls == [0] * 5
        assert facts(test).state == "running"
        assert not facts(test).totals[tp()].poison


@in_virtual_time
async def test_without_a_group_a_restart_goes_on_behind_a_transaction_whose_end_was_not_heard() -> (
    None
):
    rows, calls = Rows(), Calls()
    app = app_on(rows, assign=["orders:0:0"], drain_timeout="1s")
    storing(app, calls)
    async with running(app) as test:
        await send(test, b"x", b"y")
        await test.settled()
        store_of(app).faults.script("exit", "lost")
        look = store_of(app).faults.hold("read")
        await send(test, b"z")
        await look.arrived()
        store_of(app).faults.away = True
        look.release()
        inside(app).fail(RuntimeError("an accident"))
        await asyncio.sleep(10)
        store_of(app).faults.away = False
        await app.channel("orders").restart()
        await send(test, b"z")
        await until(lambda: facts(test).partitions and facts(test).partitions[0].committed == 4, 30)
        assert rows.data == dict.fromkeys(range(4), 1)
        assert calls == [0, 1, 2, 3]


@in_virtual_time
async def test_a_transaction_that_lands_after_its_partition_began_anew_is_refused_though_nobody_else_had_it() -> (
    None
):
    rows, calls = Rows(), Calls()
    app = app_on(rows, drain_timeout="1s", revoke_grace="1s")
    storing(app, calls)
    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        store_of(app).faults.script("exit", "late")
        # The look at what became of it.
        held = store_of(app).faults.hold("read")
        await send(test, b"y")
        await held.arrived()
        (member,) = test.broker.members(GROUP)
        test.broker.expire(GROUP, member, notice_after_s=1)
        await asyncio.sleep(1)
        # Two generations later it is not taken up.
        test.broker.rebalance(GROUP)
        store_of(app).faults.away = True
        held.release()
        await asyncio.sleep(3)
        store_of(app).faults.away = False
        await until(lambda: facts(test).partitions and facts(test).partitions[0].committed == 2, 30)
        assert row(rows).token == 2
        assert [one.stored for one in rows.land()] == [False]
        assert rows.data == {0: 1, 1: 1}
        assert calls == [0, 1, 1]


@in_virtual_time
async def test_a_position_by_hand_is_refused_while_a_transaction_is_open_and_holds_up_nobody() -> (
    None
):
    rows, refused = Rows(), list[str]()
    app = app_on(
        rows, commit_interval="100ms", checkpoint={"unsynced_max_age": "2h"}, concurrency=2
    )
    go_on = asyncio.Event()

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        if (message.partition, message.offset) != (0, 0):
            return
        async with message.transaction():
            with pytest.raises(CommitRefusedError, match="open transaction") as caught:
                await app.channel("orders").commit({tp(): 0})
            refused.append(str(caught.value))
            # Of all that is due elsewhere.
            await app.channel("orders").commit()
            await go_on.wait()

    async with running(app, partitions=2) as test:
        await send(test, b"x")
        await send(test, b"y", partition=1)
        await until(lambda: refused)
        await until(lambda: row(rows, 1).position == 1)
        go_on.set()
        await test.settled()


@in_virtual_time
async def test_kept_acks_beside_an_open_transaction_hold_up_nobody() -> None:
    rows, go_on = Rows(), asyncio.Event()
    app = app_on(
        rows,
        commit_interval="100ms",
        checkpoint={"unsynced_max_age": "2h"},
        keep_out_of_order_acks=True,
        ordering="unordered",
        concurrency=4,
    )

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        if (message.partition, message.offset) == (0, 0):
            async with message.transaction():
                await go_on.wait()

    async with running(app, partitions=2) as test:
        await send(test, *[b"x"] * 4)
        await send(test, b"y", partition=1)
        await until(lambda: row(rows, 1).position == 1)
        go_on.set()
        await test.settled()
        assert row(rows).position == 4


@in_virtual_time
async def test_a_revocation_stores_what_was_settled_before_an_open_transaction() -> None:
    rows, calls, go_on = Rows(), Calls(), asyncio.Event()
    app = app_on(
        rows, commit_interval="1h", checkpoint={"unsynced_max_age": "2h"}, revoke_grace="1s"
    )

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        message.checkpoint.set(message.offset)
        if message.offset == 3 and not go_on.is_set():
            async with message.transaction() as connection:
                connection[message.offset] = "before"
                await go_on.wait()

    async with running(app) as test:
        await send(test, *[b"x"] * 4)
        await until(lambda: len(calls) == 4)
        test.broker.rebalance(GROUP)
        await until(lambda: row(rows).position is not None)
        assert row(rows) == Checkpoint(1, 3, "2")
        go_on.set()
        await until(lambda: len(calls) == 5)
        # It was refused: its row had moved.
        assert rows.data == {}
    assert row(rows)[1:3] == (4, "3")
    assert calls == [0, 1, 2, 3, 3]


@in_virtual_time
async def test_what_is_due_goes_with_a_transaction_that_ends_after_its_partition_was_let_go() -> (
    None
):
    rows, go_on = Rows(), asyncio.Event()
    app = app_on(
        rows, commit_interval="1h", checkpoint={"unsynced_max_age": "2h"}, revoke_grace="1s"
    )

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        async with message.transaction() as connection:
            connection[message.offset] = 1
            app.channel("orders").store_offset_metadata(tp(), "the stage")
            await go_on.wait()

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: facts(test).partitions[0].in_flight)
        hold = store_of(app).faults.hold("read")
        test.broker.rebalance(GROUP)
        # The grace is over, and nobody has claimed the row yet.
        await hold.arrived()
        go_on.set()
        await until(lambda: rows.data == {0: 1})
        assert row(rows) == Checkpoint(1, 1, None, "the stage")
        hold.release()


@in_virtual_time
async def test_a_commit_that_is_to_be_repeated_waits_for_the_transaction_that_is_open() -> None:
    rows, go_on = Rows(), asyncio.Event()
    app = app_on(rows, commit_interval="200ms", checkpoint={"unsynced_max_age": "2h"})

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        if message.offset == 1:
            async with message.transaction():
                await go_on.wait()

    async with running(app) as test:
        store_of(app).faults.script("write", "lost")
        await send(test, b"x")
        await until(lambda: facts(test).partitions[0].committed == 1)
        await send(test, b"y")
        await asyncio.sleep(5)
        before = len(rows.history)
        await asyncio.sleep(5)
        assert len(rows.history) == before
        go_on.set()
        await test.settled()
        assert row(rows).position == 2


@pytest.mark.parametrize("at", ["entry", "end"])
@in_virtual_time
async def test_a_record_does_not_age_while_its_transaction_waits_for_the_store(at: str) -> None:
    rows, recorder = Rows(), Recorder()
    app, calls = app_on(rows, recorder, unprocessed_record_max_age="60s"), Calls()

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        is_first = len(calls) == 1
        rows.faults.away = is_first and at == "entry"
        async with message.transaction() as connection:
            connection[message.offset] = 1
            # Which counts.
            await asyncio.sleep(50 if at == "entry" else 5)
            rows.faults.away = is_first and at == "end"

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: rows.faults.away, 60)
        # 200 s, all the while looked at.
        for _ in range(2000):
            await asyncio.sleep(0.1)
            assert test.app.health().live.is_up
        rows.faults.away = False
        # Less than what is left to the record, more than what its time away would have left.
        await asyncio.sleep(45)
        assert test.app.health().live.is_up
        await until(lambda: rows.data == {0: 1}, 60)
        assert not recorder.of(RecordPoisoned)
