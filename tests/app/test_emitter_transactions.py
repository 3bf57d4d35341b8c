"""What an application sends by itself in transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactive_kafka import (
    App,
    ChannelClosedError,
    ConfigError,
    OutcomeUnknownError,
    Record,
    RejectedRecordError,
    TransactionAbortedError,
    TransientBrokerError,
)
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import in_virtual_time, make_broker, running, settle_down, tp, until


def app_with(**invoices: Any) -> App:
    return App({"outgoing": {"invoices": {"transactional_id": "billing", **invoices}}})


def seen(broker: MemoryBroker) -> list[bytes | None]:
    if "invoices" not in broker.topics():
        return []
    return [record.value for record in broker.committed_log(tp(0, "invoices"))]


@in_virtual_time
async def test_all_of_a_block_is_seen_when_it_has_ended_and_nothing_before() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        end = test.broker.hold("end")

        async def sending() -> None:
            async with emitter.transaction() as tx:
                for number in range(3):
                    await tx.send(b"%d" % number, key=b"k", headers=[("a", b"1")])

        block = asyncio.ensure_future(sending())
        await end.arrived()
        assert seen(test.broker) == []
        end.release()
        await block
        assert seen(test.broker) == [b"0", b"1", b"2"]
        [record, *_] = test.records("invoices")
        assert (record.key, list(record.headers)) == (b"k", [("a", b"1")])


@pytest.mark.parametrize("in_block", [False, True])
@in_virtual_time
async def test_records_without_a_key_go_round_the_partitions_transaction_by_transaction(
    in_block: bool,
) -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app, partitions=3) as test:
        for number in range(6):
            if not in_block:
                await emitter.send(b"%d" % number)
                continue
            async with emitter.transaction() as tx:
                await tx.send(b"%d" % number)
        for number in range(3):
            log = test.broker.committed_log(tp(number, "invoices"))
            assert [record.value for record in log] == [b"%d" % number, b"%d" % (number + 3)]


@pytest.mark.parametrize("many", [1, 25_000])
@in_virtual_time
async def test_nothing_is_seen_of_a_block_that_raises(many: int) -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        with pytest.raises(ValueError, match="no"):
            async with emitter.transaction() as tx:
                for _ in range(many):
                    await tx.send(b"x")
                raise ValueError("no")
        async with emitter.transaction() as tx:
            await tx.send(b"after")
        assert seen(test.broker) == [b"after"]


@in_virtual_time
async def test_a_block_without_records_asks_nobody() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.down = True
        async with emitter.transaction():
            pass
        test.broker.down = False
        assert seen(test.broker) == []


@in_virtual_time
async def test_a_record_that_the_broker_refuses_takes_the_others_along() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        with pytest.raises(RejectedRecordError, match="invoices-7 does not exist"):
            async with emitter.transaction() as tx:
                await tx.send(b"fine")
                await tx.send(Record(b"astray", partition=7))
        assert seen(test.broker) == []
        async with emitter.transaction() as tx:
            await tx.send(b"after")
        assert seen(test.broker) == [b"after"]


@in_virtual_time
async def test_a_broker_that_fails_before_the_commit_has_stored_nothing() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        await until(lambda: app.health().ready.status == "UP")
        test.broker.fail_next("send", TransientBrokerError("away"))
        with pytest.raises(TransactionAbortedError, match="away"):
            async with emitter.transaction() as tx:
                await tx.send(b"x")
        async with emitter.transaction() as tx:
            await tx.send(b"again")
        assert seen(test.broker) == [b"again"]


@pytest.mark.parametrize("step", ["send", "end"])
@in_virtual_time
async def test_who_has_nothing_more_to_send_is_ready_again_when_the_broker_is_back(
    step: Any,
) -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        await until(lambda: app.health().ready.status == "UP")
        test.broker.fail_next(step, TransientBrokerError("away"))
        with pytest.raises(TransientBrokerError):
            async with emitter.transaction() as tx:
                await tx.send(b"x")
        test.broker.down = True
        await asyncio.sleep(10)
        assert app.health().ready.status == "DOWN"
        test.broker.down = False
        await until(lambda: app.health().ready.status == "UP", 60)
        test.broker.produce("invoices", b"after", partition=0)
        assert seen(test.broker) == [b"after"], "what was left open was ended, too"


@pytest.mark.parametrize("is_stored", [True, False])
@in_virtual_time
async def test_a_commit_without_an_answer_is_told_as_unknown(is_stored: bool) -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.fail_next("end", TransientBrokerError("no answer"), stored=is_stored)
        with pytest.raises(OutcomeUnknownError, match="no answer"):
            async with emitter.transaction() as tx:
                await tx.send(b"x")
        async with emitter.transaction() as tx:
            await tx.send(b"after")
        assert seen(test.broker) == ([b"x", b"after"] if is_stored else [b"after"])


async def test_another_thread_sends_in_a_transaction() -> None:
    app = app_with()
    emitter = app.emitter("invoices")

    async def sending() -> None:
        async with emitter.transaction() as tx:
            await tx.send(b"a")
            await tx.send(b"b")

    async with running(app) as test:
        thread = threading.Thread(target=lambda: asyncio.run(sending()))
        thread.start()
        await until(lambda: seen(test.broker) == [b"a", b"b"])
        thread.join(10)


@in_virtual_time
async def test_a_block_that_another_thread_gives_up_entering_holds_up_no_stop() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    home = asyncio.get_running_loop()

    async def give_up() -> None:
        entering = asyncio.ensure_future(emitter.transaction().__aenter__())
        # Its first step hands the call over.
        await asyncio.sleep(0)
        # This loop stands still until the other one has begun the transaction.
        asyncio.run_coroutine_threadsafe(settle_down(), home).result(10)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    async with running(app):
        await asyncio.to_thread(asyncio.run, give_up())
        stopped_at = home.time()
    assert home.time() - stopped_at < 5


async def test_a_block_that_is_entered_twice_is_refused_and_the_first_one_is_whole() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        block = emitter.transaction()
        async with block as tx:
            await tx.send(b"a")
            with pytest.raises(
                RuntimeError, match=r"each block takes a transaction\(\) of its own"
            ):
                async with block:
                    pass
            await tx.send(b"b")
        assert seen(test.broker) == [b"a", b"b"]
        async with block as tx:
            await tx.send(b"c")
        assert seen(test.broker) == [b"a", b"b", b"c"]
        stopped_at = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - stopped_at < 5


async def test_many_blocks_at_once_are_each_whole() -> None:
    app = app_with()
    emitter = app.emitter("invoices")

    async def sending(name: int) -> None:
        async with emitter.transaction() as tx:
            for number in range(3):
                await tx.send(b"%d-%d" % (name, number))
                await asyncio.sleep(0.01 * name)

    async with running(app) as test:
        # More than there are producers.
        await asyncio.gather(*(sending(name) for name in range(50)))
        values = seen(test.broker)
        assert len(values) == 150
        for name in range(50):
            mine = [
                value for value in values if value is not None and value.startswith(b"%d-" % name)
            ]
            assert mine == [b"%d-%d" % (name, number) for number in range(3)]


@in_virtual_time
async def test_what_is_no_transaction_is_refused_with_what_to_do() -> None:
    app = App({"outgoing": {"invoices": {}, "bills": {"transactional_id": "billing"}}})
    plain, transactional = app.emitter("invoices"), app.emitter("bills")
    async with running(app):
        with pytest.raises(ConfigError, match=r"\[outgoing.invoices\] has no transactional_id"):
            async with plain.transaction():
                pass
        with pytest.raises(ConfigError, match=r"emitter\.transaction"):
            transactional.send_nowait(b"x")
        block = transactional.transaction()
        with pytest.raises(RuntimeError, match="inside of"):
            await block.send(b"x")
        async with block as tx:
            await tx.send(b"x")
        with pytest.raises(RuntimeError, match="inside of"):
            await tx.send(b"late")
    with pytest.raises(ChannelClosedError):
        async with transactional.transaction():
            pass


@in_virtual_time
async def test_a_source_sends_each_record_in_a_transaction_of_its_own() -> None:
    app = app_with()

    @app.outgoing("invoices")
    async def source() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number

    async with running(app) as test:
        await until(lambda: seen(test.broker) == [b"0", b"1", b"2"])
        assert test.broker.end(tp(0, "invoices")) == 6, "a marker behind each"


@in_virtual_time
async def test_a_stop_aborts_a_block_that_does_not_end() -> None:
    app, broker, going = app_with(), make_broker(1), asyncio.Event()
    emitter = app.emitter("invoices")

    async def sending() -> None:
        async with emitter.transaction() as tx:
            # More than is gathered.
            for _ in range(20_000):
                await tx.send(b"x")
            await going.wait()

    async with TestApp(app, broker=broker):
        block = asyncio.ensure_future(sending())
        await until(lambda: broker.end(tp(0, "invoices")) > 0)
    going.set()
    with pytest.raises(TransactionAbortedError):
        await block
    assert seen(broker) == []
    broker.produce("invoices", b"after", partition=0)
    assert seen(broker) == [b"after"], "nobody waits for its end"
    await broker.close()


@in_virtual_time
async def test_a_send_that_its_block_does_not_wait_for_is_refused_and_not_dropped_silently() -> (
    None
):
    app = app_with()
    emitter = app.emitter("invoices")
    continues = asyncio.Event()

    @app.send_middleware
    async def slow(record: Record, call_next: Any) -> Any:
        if record.value == b"late":
            await continues.wait()
        return await call_next(record)

    async with running(app) as test:
        async with emitter.transaction() as tx:
            await tx.send(b"in time")
            late = asyncio.ensure_future(tx.send(b"late"))
            await settle_down()
        continues.set()
        with pytest.raises(RuntimeError, match="when its block has ended"):
            await late
        assert seen(test.broker) == [b"in time"]


@in_virtual_time
async def test_a_flush_waits_for_what_other_tasks_send_in_transactions_of_their_own() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        end = test.broker.hold("end")
        sending = asyncio.create_task(emitter.send(b"0"))
        await end.arrived()
        flush = asyncio.create_task(emitter.flush())
        await settle_down()
        assert not flush.done()
        end.release()
        await flush
        assert seen(test.broker) == [b"0"]
        assert (await sending).offset == 0


@in_virtual_time
async def test_a_flush_does_not_wait_for_the_block_that_it_is_in() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        async with emitter.transaction() as tx:
            await tx.send(b"0")
            await emitter.flush()
            assert seen(test.broker) == []
        assert seen(test.broker) == [b"0"]


@in_virtual_time
async def test_a_flush_of_what_is_not_written_before_the_stop_raises() -> None:
    app = app_with()
    emitter = app.emitter("invoices")
    async with running(app) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=1000)
        sending = asyncio.create_task(emitter.send(b"0"))
        await settle_down()
        flush = asyncio.create_task(emitter.flush())
        await settle_down()
        await app.stop()
        with pytest.raises(ChannelClosedError):
            await flush
        with pytest.raises(ChannelClosedError):
            await sending
        assert seen(test.broker) == []
