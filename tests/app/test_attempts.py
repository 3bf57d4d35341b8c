"""How often everything that tries again does so in a minute, while its second step fails for ever.

The first step works in each case: the broker answers, a client connects and joins, a topic is
found. A loop that takes that for progress would not wait at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import pytest

from reactive_kafka import App, Message, TopicPartition, TransientBrokerError
from reactive_kafka.errors import BrokerError, CheckpointRefusedError, FatalBrokerError
from reactive_kafka.events import OffsetReset
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.brokers import Call
from tests.app.checkpoints import MemoryStore, Rows, Write, app_on
from tests.app.handlers import take_all
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    running,
    send,
    tp,
    until,
)

FOREVER = 10**6
AWAY = TransientBrokerError("for ever")
REFUSED = FatalBrokerError("refused for ever")


def handling(app: App) -> App:
    take_all(app)

    return app


def sending(app: App) -> App:
    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        return value

    return app


def failing(app: App) -> App:
    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        raise ValueError("bad")

    return app


def plain() -> App:
    return handling(make_app())


def latest() -> App:
    return handling(make_app(commit_strategy="latest"))


def eager_commits() -> App:
    return handling(make_app(commit_every=1))


def frequent_commits() -> App:
    return handling(make_app(commit_interval="50ms"))


def frequent_and_eager_commits() -> App:
    return handling(make_app(commit_interval="50ms", commit_every=1))


def auto_commits() -> App:
    return handling(
        make_app(commit_strategy="ignore", enable_auto_commit=True, auto_commit_interval_ms=50)
    )


def outputs() -> App:
    return sending(make_app(unprocessed_record_max_age=0))


def letters() -> App:
    return failing(make_app(failure_strategy="dead-letter-queue"))


def retries() -> App:
    return failing(
        make_app(
            failure_strategy="delayed-retry-topic", delayed_retry={"topics": ["orders_retry_1000"]}
        )
    )


def static() -> App:
    return handling(
        App({"incoming": {"orders": {"assign": ["orders:0:0"], "commit_strategy": "ignore"}}})
    )


def exact(**orders: Any) -> App:
    incoming = {
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "commit_interval": "1s",
        "unprocessed_record_max_age": 0,
        **orders,
    }
    return App(
        {
            "incoming": {"orders": incoming},
            "outgoing": {"invoices": {"transactional_id": "billing"}},
        }
    )


def exactly_once() -> App:
    return sending(exact())


def exact_letters() -> App:
    app = exact(failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        raise ValueError("bad")

    return app


class Loop(NamedTuple):
    """What fails from when the application runs, and how many *counted* calls a minute of that may
    lead to.
    """

    name: str
    app: Any
    fails: Call
    counted: Call
    most: int
    error: BrokerError = AWAY
    of: str | None = None
    # It need not be tried again for ever.
    ends: bool = False


LOOPS = (
    Loop("a client breaks at its first poll", plain, "poll", "start", 16),
    Loop("a client without a group breaks at its first poll", static, "poll", "start", 16),
    Loop("polls are refused", plain, "poll", "poll", 16, REFUSED),
    Loop("no client can connect", plain, "start", "start", 16),
    Loop("where the group stands is not told", plain, "committed", "committed", 60),
    Loop("where the log begins is not told", plain, "beginning_offsets", "beginning_offsets", 60),
    Loop("where the log ends is not told", plain, "end_offsets", "end_offsets", 60),
    Loop("which topics there are is not told", plain, "topics", "topics", 60),
    Loop("the ids of topics are not told", plain, "topic_ids", "topic_ids", 60),
    Loop("no broker answers checks", plain, "check", "check", 40),
    Loop("commits fail", plain, "commit", "commit", 15),
    Loop("commits of latest fail", latest, "commit", "commit", 20),
    Loop("early commits fail", eager_commits, "commit", "commit", 20),
    Loop("frequent commits fail", frequent_commits, "commit", "commit", 20),
    Loop("frequent and early commits fail", frequent_and_eager_commits, "commit", "commit", 20),
    Loop("auto-commits fail", auto_commits, "commit", "commit", 20),
    Loop("outputs are not written", outputs, "send", "send", 20),
    Loop("outputs are refused", outputs, "send", "send", 20, REFUSED),
    Loop(
        "the partitions of an outgoing topic are not told", outputs, "partitions", "partitions", 40
    ),
    Loop("dead letters are not written", letters, "send", "send", 20),
    Loop(
        "dead letters are not written, and their topic is looked for", letters, "send", "topics", 40
    ),
    Loop(
        "the dead-letter topic is not created",
        letters,
        "create_topic",
        "create_topic",
        30,
        ends=True,
    ),
    Loop("delayed retries are not written", retries, "send", "send", 20),
    Loop("a transaction is never ended", exactly_once, "end", "end", 40),
    Loop("positions are not taken into a transaction", exactly_once, "commit_in", "commit_in", 40),
    Loop("a group is not taken into a transaction", exactly_once, "add_group", "add_group", 40),
    Loop("records of a transaction are not written", exactly_once, "send", "send", 40),
    Loop("a transactional id is not claimed", exactly_once, "claim", "claim", 60),
    Loop("the end of a transaction is refused", exactly_once, "end", "end", 40, REFUSED),
    Loop(
        "positions are refused in a transaction",
        exactly_once,
        "commit_in",
        "commit_in",
        40,
        REFUSED,
    ),
    Loop(
        "a group is refused in a transaction", exactly_once, "add_group", "add_group", 40, REFUSED
    ),
    Loop(
        "records of a transaction are refused by the topic",
        exactly_once,
        "send",
        "send",
        40,
        REFUSED,
    ),
    Loop("a transactional id is refused", exactly_once, "claim", "claim", 60, REFUSED),
    Loop("dead letters of a transaction are not written", exact_letters, "send", "send", 40),
    Loop("dead letters' positions are not taken", exact_letters, "commit_in", "commit_in", 40),
)


@asynccontextmanager
async def failing_from_the_start(loop: Loop) -> AsyncIterator[MemoryBroker]:
    """The application, which is refused from its start on."""
    app, broker = loop.app(), make_broker(1)
    for _ in range(3):
        broker.produce("orders", b"1", partition=0)
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock
    broker.fail_next(loop.fails, loop.error, FOREVER, of=loop.of)
    await app.start()
    try:
        yield broker
    finally:
        await app.stop(drain=False)
        await broker.close()


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
@in_virtual_time
async def test_what_fails_for_ever_is_tried_again_a_few_times_a_minute(loop: Loop) -> None:
    async with failing_from_the_start(loop) as broker:
        await asyncio.sleep(60)
        first = broker.asked(loop.counted)
        await asyncio.sleep(60)
        second = broker.asked(loop.counted) - first
        assert 0 < first <= loop.most
        assert second <= first + 2, "and not more often as time passes"
        assert second > 0 or loop.ends


@in_virtual_time
async def test_a_reader_of_replies_that_breaks_at_each_first_poll_is_replaced_a_few_times_a_minute() -> (
    None
):
    app, broker = App({"outgoing": {"requests": {}}}), make_broker(1)
    emitter = app.emitter("requests")
    async with TestApp(app, broker=broker):
        broker.fail_next("poll", AWAY, FOREVER)
        asks = asyncio.create_task(emitter.request(b"?", timeout=120))
        before = broker.asked("start")
        await asyncio.sleep(60)
        assert 0 < broker.asked("start") - before <= 16
        asks.cancel()
    await broker.close()


OF_TRANSACTIONS = [loop for loop in LOOPS if loop.app is exactly_once]


@pytest.mark.parametrize("loop", OF_TRANSACTIONS, ids=lambda loop: loop.name)
@in_virtual_time
async def test_readiness_does_not_come_and_go_while_a_transaction_is_tried_again(
    loop: Loop,
) -> None:
    app, broker = loop.app(), make_broker(1)
    broker.produce("orders", b"1", partition=0)
    app.configure(overrides={"http": {"enabled": False}})
    app._connector, app._clock = broker.connector(), broker._state.clock
    broker.fail_next(loop.fails, loop.error, FOREVER, of=loop.of)
    await app.start()
    found: list[str] = []
    for _ in range(600):
        await asyncio.sleep(0.1)
        if (status := app.health().ready.status) not in found[-1:]:
            found.append(status)
    # The channel may have begun to read before its first attempt has failed.
    assert found in (["DOWN"], ["UP", "DOWN"], ["DOWN", "UP", "DOWN"])
    await app.stop(drain=False)
    await broker.close()


class Refusing(MemoryStore):
    """A store that lets no transaction begin, though it has the rows as they were claimed."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def transaction(
        self, group: str, writes: Mapping[TopicPartition, Write]
    ) -> AbstractAsyncContextManager[Any]:
        self.asked += 1
        return self._refused()

    @asynccontextmanager
    async def _refused(self) -> AsyncIterator[None]:
        # The way there and back. Without a wait of its own the loop would ask a thousand times a
        # second.
        await asyncio.sleep(0.001)
        raise CheckpointRefusedError("another owner has written")
        yield


@in_virtual_time
async def test_a_checkpoint_transaction_that_is_refused_for_ever_is_tried_again_a_few_times_a_minute() -> (
    None
):
    app, store, broker = app_on(Rows()), Refusing(), make_broker(1)
    app._stores = lambda _: store

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        async with message.transaction():
            pass

    async with running(app, broker=broker) as test:
        await send(test, b"1")
        await asyncio.sleep(60)
        assert 2 <= store.asked <= 60
    await broker.close()


@pytest.mark.parametrize("is_reset", [False, True], ids=["read on", "reset"])
@in_virtual_time
async def test_positions_that_a_store_does_not_take_are_tried_again_a_few_times_a_minute(
    is_reset: bool,
) -> None:
    rows, broker, recorder = Rows(), make_broker(1), Recorder()
    checkpoint = {"unsynced_max_age": "0s", "kafka_commit_interval": "50ms"}
    app = handling(
        app_on(rows, recorder, commit_every=1, commit_interval="50ms", checkpoint=checkpoint)
    )
    async with running(app, broker=broker) as test:
        await send(test, b"1")
        await test.settled()
        if is_reset:
            app.channel("orders").pause()
            # The poll that runs would fetch them.
            await asyncio.sleep(1)
            await send(test, b"2", b"3")
        rows.faults.away = True
        if is_reset:
            broker.delete_records(tp(), 2)
            app.channel("orders").resume()
            await until(lambda: recorder.of(OffsetReset)[-1].to_offset == 2)
        await send(test, b"4")
        await until(lambda: unknown_commits(test))
        await asyncio.sleep(60)
        first = unknown_commits(test)
        await asyncio.sleep(60)
        assert 2 <= first <= 20
        assert 2 <= unknown_commits(test) - first <= 15
        rows.faults.away = False
        await test.settled()
    await broker.close()


def unknown_commits(test: TestApp) -> int:
    """How many commits got no answer."""
    return facts(test).commits["unknown"]
