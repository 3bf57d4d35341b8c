"""A record that is nacked inside of ``batch.transaction()`` fails alone, when the block ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka import Batch, CallNext, TopicPartition
from reactive_kafka.errors import CheckpointError, TransientBrokerError
from tests.app.checkpoints import MemoryStore, Rows, Write, app_on, row
from tests.app.helpers import Recorder, facts, in_virtual_time, make_broker, running, tp, until

LETTERS = "dead-letter-topic-orders"
RETRIES = {
    "failure_strategy": "delayed-retry-topic",
    "delayed_retry": {"topics": ["orders_retry_60000"]},
}


@pytest.mark.parametrize("bad", [[17], [0], [49], [0, 25, 49], list(range(50))])
@pytest.mark.parametrize(
    ("orders", "written_to"),
    [
        ({"failure_strategy": "dead-letter-queue"}, LETTERS),
        (RETRIES, "orders_retry_60000"),
        ({"failure_strategy": "ignore"}, None),
    ],
)
@in_virtual_time
async def test_the_others_are_stored_and_the_position_passes_all(
    orders: dict[str, Any], written_to: str | None, bad: list[int]
) -> None:
    rows, answers = Rows(), list[bool]()
    app, broker = app_on(rows, batch_max_wait="100ms", **orders), make_broker(1)
    broker.create_topic("orders", 1)
    for number in range(50):
        broker.produce("orders", b"%d" % number, partition=0)

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        async with batch.transaction() as connection:
            for message in batch:
                if message.offset in bad:
                    answers.append(await message.nack(ValueError("bad")))
                    answers.append(await message.nack(ValueError("again")))
                else:
                    connection[message.offset] = 1

    async with running(app, broker=broker) as test:
        await until(lambda: row(rows).position == 50)
        assert sorted(rows.data) == [offset for offset in range(50) if offset not in bad]
        assert answers == [True, False] * len(bad)
        if written_to is not None:
            assert sorted(int(record.value or b"") for record in test.records(written_to)) == bad
        assert sum(facts(test).totals[tp()].nacked.values()) == len(bad)
        assert app.health().ready.is_up
    await broker.close()


@in_virtual_time
async def test_nothing_is_stored_before_the_letter_is_written() -> None:
    rows = Rows()
    app, broker = (
        app_on(rows, batch_max_wait="100ms", failure_strategy="dead-letter-queue"),
        make_broker(1),
    )

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        async with batch.transaction() as connection:
            batch[0].nack(ValueError("bad"))
            connection["row"] = 1

    async with running(app, broker=broker) as test:
        test.broker.fail_next("send", TransientBrokerError("away"), times=5, of=LETTERS)
        await test.send("orders", b"x", partition=0)
        await test.send("orders", b"y", partition=0)
        await until(lambda: not app.health().ready.is_up)
        assert rows.data == {}
        await until(lambda: row(rows).position == 2, 60)
        assert (rows.data, len(test.records(LETTERS))) == ({"row": 1}, 1)
    await broker.close()


@in_virtual_time
async def test_with_fail_nothing_is_stored_and_the_channel_stops() -> None:
    rows = Rows()
    app, broker = app_on(rows, batch_max_wait="100ms"), make_broker(1)

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        async with batch.transaction() as connection:
            connection["row"] = 1
            batch[-1].nack(ValueError("bad"))

    async with running(app, broker=broker) as test:
        await test.send("orders", b"x", partition=0)
        await test.send("orders", b"y", partition=0)
        await until(lambda: facts(test).state == "failed")
        assert rows.data == {}
        assert "bad" in str(app.health())
    await broker.close()


class WithoutRollback(MemoryStore):
    """A store whose connection is gone when a transaction is rolled back."""

    @asynccontextmanager
    async def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AsyncIterator[dict[Any, Any]]:
        async with super().transaction(group, writes) as data:
            try:
                yield data
            except LookupError as error:
                raise ConnectionError("cannot roll back") from error


@pytest.mark.parametrize("kind", [MemoryStore, WithoutRollback])
@in_virtual_time
async def test_a_block_that_raises_stores_nothing_and_the_nack_stands(
    kind: type[MemoryStore],
) -> None:
    rows, recorder, calls = Rows(), Recorder(), list[list[int]]()
    app = app_on(rows, recorder, batch_max_wait="100ms", failure_strategy="dead-letter-queue")
    store_of_rows = kind(rows)
    app._stores = lambda _: store_of_rows
    broker = make_broker(1)

    @app.incoming("orders", retry=3)
    async def store(batch: Batch[bytes]) -> None:
        calls.append([message.offset for message in batch])
        async with batch.transaction() as connection:
            connection[len(calls)] = 1
            if len(calls) == 1:
                batch[0].nack(ValueError("bad"))
                raise LookupError("all of it")

    async with running(app, broker=broker) as test:
        await test.send("orders", b"x", partition=0)
        await test.send("orders", b"y", partition=0)
        await until(lambda: row(rows).position == 2, 60)
        assert calls == [[0, 1], [1]]
        assert rows.data == {2: 1}
        assert [record.value for record in test.records(LETTERS)] == [b"x"]
    await broker.close()


@in_virtual_time
async def test_an_ack_in_the_block_and_a_nack_of_all_are_refused_as_before() -> None:
    rows, refused = Rows(), list[str]()
    app, broker = app_on(rows, batch_max_wait="100ms"), make_broker(1)

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        async with batch.transaction():
            for verdict in (batch[0].ack, batch.ack, lambda: batch.nack(ValueError("bad"))):
                try:
                    verdict()
                except CheckpointError as error:
                    refused.append(str(error))

    async with running(app, broker=broker) as test:
        await test.send("orders", b"x", partition=0)
        await until(lambda: row(rows).position == 1)
        assert len(refused) == 3
    await broker.close()


@pytest.mark.parametrize("acks_first", [True, False])
@in_virtual_time
async def test_a_middleware_that_passes_on_a_part_has_to_ack_the_others_first(
    acks_first: bool,
) -> None:
    """The position would pass them, and the middleware may mean to pass them on later."""
    rows = Rows()
    app, broker = (
        app_on(rows, batch_max_wait="100ms", failure_strategy="dead-letter-queue"),
        make_broker(1),
    )

    @app.middleware
    async def without_empty_ones(batch: Batch[bytes], call_next: CallNext) -> Any:
        good_ones = [message for message in batch if message.payload != b"empty"]
        for message in batch:
            if acks_first and message not in good_ones:
                message.ack()
        return await call_next(Batch(good_ones))

    @app.incoming("orders")
    async def store(batch: Batch[bytes]) -> None:
        async with batch.transaction() as connection:
            for message in batch:
                connection[message.offset] = message.payload

    async with running(app, broker=broker) as test:
        for value in (b"a", b"empty", b"b"):
            await test.send("orders", value, partition=0)
        await until(lambda: row(rows).position == 3)
        letters = [record.value for record in test.records(LETTERS)]
        if acks_first:
            assert (rows.data, letters) == ({0: b"a", 2: b"b"}, [])
        else:
            assert (rows.data, letters) == ({}, [b"a", b"empty", b"b"])
    await broker.close()
