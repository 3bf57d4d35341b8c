"""What the block of a transaction refuses, and what becomes of records whose transaction could not
be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, TopicPartition
from reactive_kafka.errors import (
    AlreadyStoredError,
    CheckpointError,
    CheckpointRefusedError,
    FatalBrokerError,
    StoreAwayError,
)
from reactive_kafka.events import HandlerFailed, HandlerRetried
from tests.app.checkpoints import MemoryStore, Outcome, Rows, Write, app_on, row, store_of
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_broker,
    now,
    rebalanced,
    running,
    send,
    tp,
    until,
)

Verdict = Callable[[App, Message[bytes]], Awaitable[object]]


async def in_a_thread(message: Message[bytes]) -> bool:
    """An ack from another thread, awaited on the loop."""
    verdicts: list[Awaitable[bool]] = []
    thread = threading.Thread(target=lambda: verdicts.append(message.ack()))
    thread.start()
    thread.join()
    return await verdicts[0]


VERDICTS: dict[str, Verdict] = {
    "ack": lambda app, message: message.ack(),
    "ack with metadata": lambda app, message: message.ack(metadata="stage 1"),
    "ack_up_to": lambda app, message: app.channel("orders").ack_up_to(message),
    "nack": lambda app, message: message.nack(ValueError("bad")),
    "batch.ack": lambda app, message: Batch([message]).ack(),
    "batch.nack": lambda app, message: Batch([message]).nack(ValueError("bad")),
    "in a thread": lambda app, message: in_a_thread(message),
}


class Locked(MemoryStore):
    """A store whose password has changed, as soon as it is told so."""

    at: str | None = None

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[dict[Any, Any]]:
        if self.at == "enter":
            raise FatalBrokerError("password authentication failed")
        async with super().transaction(group, writes) as connection:
            yield connection
            if self.at == "exit":
                raise FatalBrokerError("permission denied")


# -- verdicts in the block


@pytest.mark.parametrize("verdict", VERDICTS)
@in_virtual_time
async def test_a_verdict_in_the_block_is_refused_and_the_record_is_handled_again_if_nothing_was_stored(
    verdict: str,
) -> None:
    rows, calls, refused = Rows(), list[int](), list[str]()
    app = app_on(rows, failure_strategy="dead-letter-queue")

    @app.incoming("orders", ack="manual")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        async with message.transaction() as connection:
            connection[message.offset] = 1
            try:
                await VERDICTS[verdict](app, message)
            except CheckpointError as error:
                refused.append(str(error))

    async with running(app) as test:
        store_of(app).faults.script("exit", "away")
        await send(test, b"x", b"y")
        await until(lambda: facts(test).partitions[0].committed == 2)
        assert calls == [0, 0, 1]
        assert rows.data == {0: 1, 1: 1}
        assert len(refused) == 3
        assert "'orders'" in refused[0]
        assert "orders-0 offset 0" in refused[0]
        assert "its end acks" in refused[0]
        assert row(rows).metadata == ""
        assert not facts(test).totals[tp()].nacked


@in_virtual_time
async def test_a_later_message_cannot_ack_up_to_past_an_open_transaction_and_others_can_be_acked() -> (
    None
):
    rows, kept, refused = Rows(), list[Message[bytes]](), list[CheckpointError]()
    app = app_on(rows, ordering="unordered", concurrency=3)
    entered, go_on = asyncio.Event(), asyncio.Event()

    @app.incoming("orders", ack="manual")
    async def store(message: Message[bytes]) -> None:
        if message.offset == 1:
            async with message.transaction() as connection:
                entered.set()
                await go_on.wait()
                connection[message.offset] = 1
        else:
            kept.append(message)
            if message.offset == 0:
                await message.ack()

    async with running(app) as test:
        await send(test, b"w", b"x", b"y")
        await until(lambda: entered.is_set() and len(kept) == 2)
        try:
            app.channel("orders").ack_up_to(kept[-1])
        except CheckpointError as error:
            refused.append(error)
        assert "orders-0 offset 1" in str(refused[0])
        assert facts(test).partitions[0].in_flight == 2
        # What lies before is not the transaction's.
        assert not app.channel("orders").ack_up_to(kept[0]).result()
        assert await kept[-1].ack()
        go_on.set()
        await until(lambda: facts(test).partitions[0].committed == 3)
        assert rows.data == {1: 1}


@in_virtual_time
async def test_a_batch_of_which_one_message_is_in_a_transaction_gets_no_verdict_at_all() -> None:
    rows, refused, in_flight = Rows(), list[str](), list[int]()
    app = app_on(rows, batch_max_wait="100ms")

    @app.incoming("orders", ack="manual")
    async def store(batch: Batch[bytes]) -> None:
        for message in reversed(batch):
            async with message.transaction() as connection:
                with pytest.raises(CheckpointError) as caught:
                    batch.ack()
                refused.append(str(caught.value))
                in_flight.append(sum(one.in_flight for one in facts(test).partitions))
                connection[message.partition] = 1

    async with running(app, partitions=2) as test:
        await send(test, b"x")
        await send(test, b"y", partition=1)
        await until(lambda: rows.data == {0: 1, 1: 1})
        assert len(refused) == 2
        assert in_flight == [2, 1]


@in_virtual_time
async def test_after_the_block_a_verdict_does_nothing_and_is_no_error() -> None:
    rows, answers = Rows(), list[bool]()
    app = app_on(rows)

    @app.incoming("orders", ack="manual")
    async def store(message: Message[bytes]) -> None:
        async with message.transaction():
            pass
        answers.append(await message.ack())

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: answers == [False])


# -- poison, and failures beside an open transaction


@in_virtual_time
async def test_a_poison_record_whose_handler_goes_on_in_its_block_has_a_letter_and_no_rows() -> (
    None
):
    rows, ended = Rows(), list[type[BaseException]]()
    app = app_on(rows, on_poison="dead-letter-queue", unprocessed_record_max_age="5s")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        try:
            async with message.transaction() as connection:
                connection[message.offset] = 1
                if message.payload == b"stuck":
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        # As code does that swallows everything.
                        pass
        except BaseException as error:
            ended.append(type(error))
            raise

    async with running(app) as test:
        await send(test, b"stuck", b"y")
        await until(lambda: facts(test).partitions[0].committed == 2, 30)
        assert ended == [CheckpointError]
        assert rows.data == {1: 1}
        assert len(test.records("dead-letter-topic-orders")) == 1


@pytest.mark.parametrize("late", [True, False])
@in_virtual_time
async def test_while_the_end_of_a_transaction_is_on_its_way_its_record_does_not_become_poison(
    late: bool,
) -> None:
    rows, calls = Rows(), list[int]()
    app = app_on(rows, on_poison="dead-letter-queue", unprocessed_record_max_age="5s")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        async with message.transaction() as connection:
            connection[message.offset] = 1

    async with running(app) as test:
        store_of(app).deadline_s = 30
        held = store_of(app).faults.hold("exit")
        await send(test, b"x")
        await held.arrived()
        await asyncio.sleep(20)
        if late:
            store_of(app).faults.script("read", "away", "away", "away")
        held.release()
        await until(lambda: facts(test).partitions[0].committed == 1, 30)
        assert calls == [0]
        assert rows.data == {0: 1}
        assert test.records("dead-letter-topic-orders") == []
        assert not facts(test).totals[tp()].poison


@pytest.mark.parametrize("lands", [True, False])
@in_virtual_time
async def test_a_handler_that_gives_up_while_its_commit_is_on_its_way_has_rows_or_a_letter(
    lands: bool,
) -> None:
    rows, calls = Rows(), list[int]()
    app = app_on(rows, failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        async with asyncio.timeout(1), message.transaction() as connection:
            connection[message.offset] = 1

    async with running(app) as test:
        faults = store_of(app).faults
        away: list[Outcome] = ["away"]
        if lands:
            # It is stored; and what became of it cannot be asked for as yet.
            faults.script("exit", "lost")
            faults.script("read", *away * 20)
        else:
            # Never arrives.
            faults.hold("exit")
            faults.script("read", "away", "away", "away")
        await send(test, b"x")
        await until(lambda: facts(test).partitions and facts(test).partitions[0].committed == 1, 60)
        assert calls == [0]
        letters = test.records("dead-letter-topic-orders")
        assert (rows.data, len(letters)) == (({0: 1}, 0) if lands else ({}, 1))


@in_virtual_time
async def test_a_handler_that_fails_beside_its_own_transaction_has_a_letter_and_no_rows() -> None:
    rows, ended, tasks = Rows(), list[BaseException](), list[asyncio.Task[None]]()
    app = app_on(rows, failure_strategy="dead-letter-queue")
    go_on = asyncio.Event()

    async def beside(message: Message[bytes]) -> None:
        try:
            async with message.transaction() as connection:
                connection[message.offset] = 1
                await go_on.wait()
        except CheckpointError as error:
            ended.append(error)

    @app.incoming("orders", ack="manual")
    async def store(message: Message[bytes]) -> None:
        tasks.append(asyncio.create_task(beside(message)))
        await asyncio.sleep(1)
        raise ValueError("bad")

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: len(test.records("dead-letter-topic-orders")) == 1)
        go_on.set()
        await until(lambda: ended)
        assert "has got its verdict" in str(ended[0])
        await until(lambda: facts(test).partitions[0].committed == 1)
        assert rows.data == {}


# -- transactions in transactions


@pytest.mark.parametrize("shape", ["same", "in a batch", "other partition", "in a task"])
@in_virtual_time
async def test_a_transaction_inside_of_another_is_refused_at_once(shape: str) -> None:
    rows, refused = Rows(), list[str]()
    app = app_on(rows, batch_max_wait="100ms")

    async def inner(message: Message[bytes]) -> None:
        with pytest.raises(CheckpointError) as caught:
            async with message.transaction():
                pass
        refused.append(str(caught.value))

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        whole = {"same": batch[0], "other partition": batch[0]}.get(shape, batch)
        async with whole.transaction() as connection:
            message = batch[-1] if shape == "other partition" else batch[0]
            await (asyncio.create_task(inner(message)) if shape == "in a task" else inner(message))
            connection[0] = 1

    async with running(app, partitions=2) as test:
        since = now()
        await send(test, b"x")
        await send(test, b"y", partition=1)
        await until(lambda: rows.data == {0: 1}, 2)
        assert "is open" in refused[0]
        assert now() - since < 1
        await test.settled()


# -- what the operator must see to


@pytest.mark.parametrize("strategy", ["ignore", "dead-letter-queue", "fail"])
@pytest.mark.parametrize("call", ["enter", "exit", "read", "locked enter", "locked exit"])
@in_virtual_time
async def test_a_store_that_must_be_mended_stops_the_channel_and_leaves_the_record(
    call: Any, strategy: str
) -> None:
    rows, calls = Rows(), list[int]()
    app = app_on(rows, failure_strategy=strategy)
    store = Locked(rows, who="a")
    app._stores = lambda _: store

    @app.incoming("orders", retry=2)
    async def book(message: Message[bytes]) -> None:
        calls.append(message.offset)
        async with message.transaction() as connection:
            connection[message.offset] = 1

    async with running(app) as test:
        await send(test, b"x")
        await test.settled()
        if call == "read":
            store.faults.script("exit", "away")
        if call.startswith("locked"):
            store.at = call.removeprefix("locked ")
        else:
            store.faults.script(call, "corrupt")
        await send(test, b"y", b"z")
        await until(lambda: facts(test).state == "failed")
        assert any(
            word in (facts(test).reason or "")
            for word in ("password", "permission", "cannot be read")
        )
        await asyncio.sleep(5)
        assert calls == [0, 1]
        assert rows.data == {0: 1}
        assert row(rows).position == 1
        assert test.records("dead-letter-topic-orders") == []
        assert not facts(test).totals[tp()].nacked
        store.at = None
        await app.channel("orders").restart()
        await until(lambda: rows.data == dict.fromkeys(range(3), 1))


@in_virtual_time
async def test_a_batch_is_left_whole_where_the_store_must_be_mended() -> None:
    rows, sizes = Rows(), list[int]()
    app = app_on(rows, failure_strategy="dead-letter-queue", batch_max_wait="100ms")

    @app.incoming("orders")
    async def book(batch: Batch[bytes]) -> None:
        sizes.append(len(batch))
        async with batch.transaction() as connection:
            connection.update({message.offset: 1 for message in batch})

    async with running(app) as test:
        store_of(app).faults.script("exit", "corrupt")
        await send(test, b"x", b"y")
        await until(lambda: facts(test).state == "failed")
        await asyncio.sleep(5)
        assert sizes == [2]
        assert test.records("dead-letter-topic-orders") == []
        await app.channel("orders").restart()
        await until(lambda: rows.data == {0: 1, 1: 1})


@pytest.mark.parametrize("raises", [True, False])
@in_virtual_time
async def test_whatever_a_handler_makes_of_a_store_that_must_be_mended_its_record_is_left(
    raises: bool,
) -> None:
    rows = Rows()
    app = app_on(rows, failure_strategy="ignore")

    @app.incoming("orders")
    async def book(message: Message[bytes]) -> None:
        try:
            async with message.transaction() as connection:
                connection[message.offset] = 1
        except Exception as error:
            if raises:
                raise RuntimeError("booking failed") from error

    async with running(app) as test:
        store_of(app).faults.script("exit", "corrupt")
        await send(test, b"x")
        await until(lambda: facts(test).state == "failed")
        await asyncio.sleep(5)
        await app.channel("orders").restart()
        await until(lambda: rows.data == {0: 1})
        assert not facts(test).totals[tp()].nacked


@in_virtual_time
async def test_fatal_errors_of_the_handlers_own_are_failures_like_any_other() -> None:
    rows = Rows()
    app = app_on(rows, failure_strategy="ignore")

    @app.incoming("orders")
    async def book(message: Message[bytes]) -> None:
        async with message.transaction():
            raise FatalBrokerError("of another broker")

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: facts(test).totals[tp()].nacked == {"ignore": 1})
        assert facts(test).state == "running"


# -- no calls for ever


@in_virtual_time
async def test_a_record_of_a_retry_topic_is_told_that_it_has_no_transaction_and_fails() -> None:
    rows, errors = Rows(), list[Exception]()
    retries = {"topics": ["orders_retry_1000"]}
    app = app_on(rows, failure_strategy="delayed-retry-topic", delayed_retry=retries)

    @app.incoming("orders")
    async def book(message: Message[bytes]) -> None:
        if message.topic == "orders":
            raise ValueError("first")
        try:
            async with message.transaction():
                pass
        except Exception as error:
            errors.append(error)
            raise

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: len(test.records("dead-letter-topic-orders")) == 1, 30)
        (error,) = errors
        assert isinstance(error, CheckpointError)
        assert "retry topics have no transaction" in str(error)


@pytest.mark.parametrize("kind", [StoreAwayError, CheckpointRefusedError, AlreadyStoredError])
@pytest.mark.parametrize("batched", [False, True])
@in_virtual_time
async def test_handlers_that_raise_our_errors_by_themselves_are_not_called_for_ever(
    kind: type[Exception], batched: bool
) -> None:
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder, unprocessed_record_max_age="5110ms", batch_max_wait="100ms")

    if batched:

        @app.incoming("orders")
        async def book(batch: Batch[bytes]) -> None:
            async with batch.transaction():
                raise kind("says the handler")
    else:

        @app.incoming("orders")
        async def book_one(message: Message[bytes]) -> None:
            async with message.transaction():
                raise kind("says the handler")

    async with running(app) as test:
        await send(test, b"x")
        since = now()
        await until(lambda: facts(test).state == "failed", 20)
        assert rows.data == {}
        if kind is AlreadyStoredError:
            # Nothing was settled: it is the handler's own.
            assert now() - since < 1


# -- what is known of a transaction of before


@in_virtual_time
async def test_a_record_whose_first_commit_was_found_by_a_rebalance_is_not_stored_a_second_time() -> (
    None
):
    rows, calls, ended = Rows(), list[int](), list[type[BaseException]]()
    app = app_on(rows, revoke_grace="100ms")
    go_on = asyncio.Event()

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        if len(calls) == 2:
            # It works before its block.
            await go_on.wait()
        try:
            async with message.transaction() as connection:
                connection[message.offset] = rows.data.get(message.offset, 0) + 1
                message.checkpoint.set((message.checkpoint.get() or 0) + 1)
        except BaseException as error:
            ended.append(type(error))
            raise

    async with running(app) as test:
        store_of(app).faults.script("exit", "late")
        await send(test, b"x")
        await until(lambda: len(calls) == 2)
        assert [one.stored for one in rows.land()] == [True]
        # It comes straight back, and its row is read.
        await rebalanced(test)
        go_on.set()
        await until(lambda: facts(test).duplicates_dropped == 1, 30)
        await send(test, b"y")
        await until(lambda: facts(test).partitions and facts(test).partitions[0].committed == 2, 30)
        assert ended == [StoreAwayError, AlreadyStoredError]
        assert calls == [0, 0, 1]
        assert rows.data == {0: 1, 1: 1}
        assert row(rows).state == "2"


# -- failures behind the block


@pytest.mark.parametrize("shape", ["message", "batch", "output"])
@in_virtual_time
async def test_an_error_behind_the_block_is_told_and_the_record_stays_stored(shape: str) -> None:
    rows, recorder, calls = Rows(), Recorder(), list[int]()
    app = app_on(rows, recorder, failure_strategy="dead-letter-queue", batch_max_wait="100ms")

    async def store(message: Message[bytes]) -> object:
        calls.append(message.offset)
        async with message.transaction() as connection:
            connection[message.offset] = 1
        if shape == "output":
            # Cannot be written.
            return object()
        raise ValueError("too late")

    async def store_all(batch: Batch[bytes]) -> None:
        await store(batch[0])

    if shape == "output":
        app.outgoing("invoices")(store)
    app.incoming("orders", retry=3)(store_all if shape == "batch" else store)
    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: recorder.of(HandlerFailed))
        await until(lambda: facts(test).partitions[0].committed == 1)
        (event,) = recorder.of(HandlerFailed)
        assert event.offset == 0
        assert ("EncodeError" if shape == "output" else "ValueError: too late") in event.reason
        assert recorder.of(HandlerRetried) == []
        assert calls == [0]
        assert rows.data == {0: 1}
        assert test.records("dead-letter-topic-orders") == []


@in_virtual_time
async def test_an_error_in_a_batch_after_some_of_its_transactions_is_that_of_the_rest() -> None:
    rows, recorder = Rows(), Recorder()
    app = app_on(rows, recorder, failure_strategy="ignore", batch_max_wait="100ms")

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        for message in batch:
            async with message.transaction() as connection:
                if message.offset == 1:
                    raise ValueError("bad")
                connection[message.offset] = 1

    async with running(app) as test:
        await send(test, b"x", b"y")
        await until(lambda: facts(test).partitions and facts(test).partitions[0].committed == 2)
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
        assert recorder.of(HandlerFailed) == []
        assert rows.data == {0: 1}


@in_virtual_time
async def test_a_stop_does_not_wait_for_a_store_that_cannot_tell_and_the_next_owner_finds_the_row() -> (
    None
):
    rows, calls, broker = Rows(), list[int](), make_broker()

    def storing(who: str) -> App:
        app = app_on(rows, who=who, failure_strategy="dead-letter-queue", drain_timeout="5s")

        @app.incoming("orders")
        async def store(message: Message[bytes]) -> None:
            calls.append(message.offset)
            async with asyncio.timeout(1), message.transaction() as connection:
                connection[message.offset] = 1

        return app

    app = storing("a")
    async with running(app, broker=broker) as test:
        store_of(app).faults.script("exit", "lost")
        read = store_of(app).faults.hold("read")
        await send(test, b"x")
        await read.arrived()
        rows.faults.away = True
        await asyncio.sleep(5)
        since = now()
    assert now() - since < 20
    rows.faults.away = False
    async with running(storing("b"), broker=broker) as test:
        await send(test, b"y")
        await until(lambda: rows.data == {0: 1, 1: 1})
        assert calls == [0, 1]
        assert test.records("dead-letter-topic-orders") == []
    await broker.close()


@in_virtual_time
async def test_a_failure_that_waits_for_the_store_is_carried_out_when_its_partition_came_straight_back() -> (
    None
):
    rows, calls = Rows(), list[int]()
    app = app_on(rows, failure_strategy="ignore", revoke_grace="1s")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        if len(calls) == 2:
            rows.faults.away = True
            raise ValueError("the second call")
        async with message.transaction() as connection:
            connection[message.offset] = 1

    async with running(app) as test:
        store_of(app).faults.script("exit", "away")
        await send(test, b"x", b"y")
        await until(lambda: len(calls) == 2)
        await asyncio.sleep(1)
        test.broker.rebalance("billing")
        await asyncio.sleep(3)
        rows.faults.away = False
        await until(lambda: facts(test).partitions and facts(test).partitions[0].committed == 2, 30)
        assert calls == [0, 0, 1]
        assert rows.data == {1: 1}
        assert facts(test).totals[tp()].nacked == {"ignore": 1}


@in_virtual_time
async def test_a_handler_that_never_ends_its_block_keeps_neither_the_dead_letter_nor_what_comes_after() -> (
    None
):
    rows, calls, ended = Rows(), list[int](), list[str]()
    app = app_on(rows, on_poison="dead-letter-queue", unprocessed_record_max_age="5s")
    go_on = asyncio.Event()

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        try:
            async with message.transaction() as connection:
                connection[message.offset] = 1
                if len(calls) == 2:
                    with suppress(asyncio.CancelledError):
                        await go_on.wait()
                    await go_on.wait()
        except CheckpointError as error:
            ended.append(str(error))
            raise

    async with running(app) as test:
        store_of(app).faults.script("exit", "away")
        await send(test, b"x", b"y")
        await until(lambda: facts(test).partitions and facts(test).partitions[0].committed == 2, 20)
        assert len(test.records("dead-letter-topic-orders")) == 1
        assert calls == [0, 0, 1]
        go_on.set()
        await until(lambda: ended)
        assert rows.data == {1: 1}
        assert row(rows).position == 2


@in_virtual_time
async def test_a_state_that_is_set_for_a_partition_that_has_gone_is_no_failure_of_the_rest_of_its_batch() -> (
    None
):
    rows, errors = Rows(), list[type[BaseException]]()
    broker = make_broker(2)
    app = app_on(rows, failure_strategy="ignore", batch_max_wait="100ms", revoke_grace="100ms")
    go_on = asyncio.Event()

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        if not go_on.is_set():
            await go_on.wait()
            try:
                for message in batch:
                    message.checkpoint.set(1)
            except BaseException as error:
                errors.append(type(error))
                raise

    async with running(app, broker=broker) as test:
        await send(test, b"x")
        await send(test, b"y", partition=1)
        await until(lambda: sum(one.in_flight for one in facts(test).partitions) == 2)
        other = app_on(rows, who="b", batch_max_wait="100ms")
        other.incoming("orders")(store)
        async with running(other, broker=broker):
            await until(
                lambda: len(facts(test).partitions) == 1 and test.app.channel("orders").is_ready, 30
            )
            go_on.set()
            await until(lambda: errors == [CheckpointRefusedError])
            await until(lambda: row(rows).position == row(rows, 1).position == 1, 30)
            assert not any(total.nacked for total in facts(test).totals.values())
    await broker.close()


@in_virtual_time
async def test_a_transaction_waits_for_the_failure_before_it_that_asks_the_store() -> None:
    rows, errors = Rows(), list[BaseException]()
    app = app_on(rows, failure_strategy="ignore")

    async def take() -> None:
        async for message in app.channel("orders"):
            try:
                async with (
                    asyncio.timeout(1 if message.offset == 0 else None),
                    message.transaction() as connection,
                ):
                    connection[message.offset] = 1
            except TimeoutError as error:
                store_of(app).faults.script("read", "away", "away")
                message.nack(error)
            except CheckpointError as error:
                errors.append(error)
                message.nack(error)

    async with running(app) as test:
        # Never arrives.
        store_of(app).faults.hold("exit")
        taking = asyncio.create_task(take())
        await send(test, b"0", b"1")
        await until(lambda: facts(test).partitions and facts(test).partitions[0].committed == 2, 30)
        assert errors == []
        assert rows.data == {1: 1}
        taking.cancel()


@in_virtual_time
async def test_a_store_that_is_away_inside_of_a_task_group_is_no_failure_either() -> None:
    rows, calls = Rows(), list[int]()
    app = app_on(rows, failure_strategy="ignore")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        calls.append(message.offset)
        async with asyncio.TaskGroup(), message.transaction() as connection:
            connection[message.offset] = 1

    async with running(app) as test:
        store_of(app).faults.script("exit", "away")
        await send(test, b"x")
        await until(lambda: facts(test).partitions[0].committed == 1)
        assert (calls, rows.data, facts(test).totals[tp()].nacked) == ([0, 0], {0: 1}, {})


@in_virtual_time
async def test_an_error_of_the_handlers_own_beside_that_of_the_store_is_a_failure() -> None:
    rows = Rows()
    app = app_on(rows, failure_strategy="ignore")

    @app.incoming("orders")
    async def store(message: Message[bytes]) -> None:
        raise ExceptionGroup("both", [StoreAwayError("away"), ValueError("bad")])

    async with running(app) as test:
        await send(test, b"x")
        await until(lambda: facts(test).partitions[0].committed == 1)
        assert facts(test).totals[tp()].nacked == {"ignore": 1}
