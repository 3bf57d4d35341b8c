"""``stale_results``: what a handler returns after its partition is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reactive_kafka import App, Batch, ConfigError, Record
from reactive_kafka.events import StaleResultDropped
from reactive_kafka.testing import TestApp
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    rebalanced,
    running,
    send,
    until,
)

SHORT: dict[str, Any] = {
    "revoke_grace": "1s",
    "drain_timeout": "1s",
    "commit_interval": "100ms",
    "unprocessed_record_max_age": 0,
    "concurrency": 2,
}


class Sending:
    """An application that returns each value, and holds those that say so until it may go on."""

    def __init__(self, who: str, recorder: Recorder | None = None, **orders: Any) -> None:
        self.calls: list[bytes] = []
        self.go_on = asyncio.Event()
        self.app: App = make_app(recorder, **{**SHORT, **orders})

        @self.app.incoming("orders")
        @self.app.outgoing("invoices")
        async def handler(value: bytes) -> Record:
            self.calls.append(value)
            if value.startswith(b"slow") and not self.go_on.is_set():
                await self.go_on.wait()
            return Record(value, headers=[("who", who.encode())])


def invoices(test: TestApp) -> list[tuple[bytes | None, str]]:
    """The invoices, and who has made each."""
    return [(one.value, dict(one.headers)["who"].decode()) for one in test.records("invoices")]


@pytest.mark.parametrize("policy", ["send", "drop"])
@in_virtual_time
async def test_the_result_for_a_lost_partition_is_sent_or_dropped_and_others_are_sent(
    policy: str,
) -> None:
    recorder = Recorder()
    app = Sending("old", recorder, stale_results=policy)
    other = Sending("new", stale_results=policy)
    other.go_on.set()
    broker = make_broker(2)
    async with running(app.app, broker=broker) as test:
        await send(test, b"slow 0", partition=0)
        await send(test, b"slow 1", partition=1)
        await until(lambda: len(app.calls) == 2)
        async with running(other.app, broker=broker):
            await until(lambda: len(other.calls) == 1, 60)
            app.go_on.set()
            await asyncio.sleep(10)
            (lost,) = other.calls
            (kept,) = {b"slow 0", b"slow 1"} - {lost}
            expected = {(kept, "old"), (lost, "new")}
            if policy == "send":
                expected.add((lost, "old"))
            assert set(invoices(test)) == expected
            assert len(invoices(test)) == len(expected)
            assert facts(test).stale_results == (policy == "drop")
            told = [event.partition.partition for event in recorder.of(StaleResultDropped)]
            assert told == ([int(lost[-1:])] if policy == "drop" else [])
            assert (committed(test, 0), committed(test, 1)) == (1, 1)
    await broker.close()


@in_virtual_time
async def test_a_result_between_a_revocation_and_the_assignment_waits_and_is_sent_if_it_stays() -> (
    None
):
    app = Sending("old", stale_results="drop")

    @app.app.on_revoked("orders")
    async def takes_long(partitions: Any) -> None:
        await asyncio.sleep(3)

    async with running(app.app) as test:
        await send(test, b"slow")
        await until(lambda: app.calls == [b"slow"])
        waiting = asyncio.create_task(rebalanced(test))
        # The grace is over, and the hook still runs.
        await asyncio.sleep(2)
        app.go_on.set()
        await waiting
        await test.settled(timeout=30)
        assert invoices(test) == [(b"slow", "old")]
        assert (committed(test), facts(test).stale_results) == (1, 0)


@in_virtual_time
async def test_a_result_between_a_revocation_and_the_assignment_is_dropped_if_it_moves() -> None:
    broker = make_broker(4)
    leaves = Sending("leaves", stale_results="drop")
    app = Sending("old", stale_results="drop")
    other = Sending("new", stale_results="drop")
    other.go_on.set()

    @other.app.on_revoked("orders")
    async def takes_long(partitions: Any) -> None:
        await asyncio.sleep(4)

    def shares() -> list[int]:
        return sorted(len(partitions) for partitions in broker.members("billing").values())

    async with (
        running(leaves.app, broker=broker),
        running(app.app, broker=broker) as test,
        running(other.app, broker=broker),
    ):
        await until(lambda: shares() == [1, 1, 2], 60)
        # The one of four partitions that moves when the first of three members leaves.
        await send(test, b"slow", partition=2)
        await until(lambda: app.calls == [b"slow"], 60)
        await leaves.app.stop()
        # It has let go, and the group waits for the other member.
        await asyncio.sleep(2)
        app.go_on.set()
        await until(lambda: committed(test, 2) == 1, 60)
        await asyncio.sleep(5)
        assert other.calls == [b"slow"]
        assert invoices(test) == [(b"slow", "new")]
        assert facts(test).stale_results == 1
    await broker.close()


@in_virtual_time
async def test_a_result_that_comes_after_the_stop_is_not_sent_and_nothing_hangs() -> None:
    app = Sending("old", stale_results="drop")
    async with running(app.app) as test:
        await send(test, b"slow")
        await until(lambda: app.calls == [b"slow"])
        stopping = asyncio.create_task(app.app.stop())
        await asyncio.sleep(0.5)
        await stopping
        app.go_on.set()
        await asyncio.sleep(1)
        assert (invoices(test), committed(test)) == ([], None)


@in_virtual_time
async def test_a_generator_ends_before_the_first_value_that_would_be_stale() -> None:
    recorder = Recorder()
    broker = make_broker(2)
    app = make_app(recorder, **SHORT, stale_results="drop")
    other = Sending("new", stale_results="drop")
    other.go_on.set()
    go_on = asyncio.Event()
    begun: list[bytes] = []
    ended: list[bytes] = []

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> AsyncIterator[Record]:
        begun.append(value)
        try:
            yield Record(value + b" first", headers=[("who", b"old")])
            await go_on.wait()
            yield Record(value + b" second", headers=[("who", b"old")])
            yield Record(value + b" third", headers=[("who", b"old")])
        finally:
            ended.append(value)

    async with running(app, broker=broker) as test:
        await send(test, b"a", partition=0)
        await send(test, b"b", partition=1)
        await until(lambda: len(begun) == 2)
        async with running(other.app, broker=broker):
            await until(lambda: len(other.calls) == 1, 60)
            (lost,) = other.calls
            (kept,) = {b"a", b"b"} - {lost}
            go_on.set()
            await until(lambda: len(ended) == 2)
            await asyncio.sleep(1)
            values = [value for value, who in invoices(test) if who == "old" and value]
            assert sorted(values) == sorted(
                [lost + b" first", *(kept + part for part in (b" first", b" second", b" third"))]
            )
            assert facts(test).stale_results == 1
    await broker.close()


@in_virtual_time
async def test_the_result_of_a_batch_is_sent_if_one_of_its_partitions_is_ours() -> None:
    broker = make_broker(2)
    app = make_app(**{**SHORT, "concurrency": 1}, stale_results="drop", batch_max_wait="1s")
    other = Sending("new", stale_results="drop")
    other.go_on.set()
    go_on = asyncio.Event()
    sizes: list[int] = []

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(batch: Batch[bytes]) -> Record:
        sizes.append(len(batch))
        await go_on.wait()
        return Record(b"%d" % len(batch), headers=[("who", b"old")])

    async with running(app, broker=broker) as test:
        await send(test, b"a", partition=0)
        await send(test, b"b", partition=1)
        await until(lambda: sizes == [2])
        async with running(other.app, broker=broker):
            await until(lambda: len(other.calls) == 1, 60)
            go_on.set()
            await until(lambda: (committed(test, 0), committed(test, 1)) == (1, 1), 60)
            assert (b"2", "old") in invoices(test)
            assert facts(test).stale_results == 0
    await broker.close()


@in_virtual_time
async def test_a_broadcast_drops_too() -> None:
    broker = make_broker(2)
    app = make_app(**SHORT, stale_results="drop", broadcast=True)
    other = Sending("new", stale_results="drop")
    other.go_on.set()
    go_on = asyncio.Event()
    begun: list[bytes] = []

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def first(value: bytes) -> Record:
        begun.append(value)
        await go_on.wait()
        return Record(value, headers=[("who", b"old")])

    @app.incoming("orders")
    async def second(value: bytes) -> None: ...

    async with running(app, broker=broker) as test:
        await send(test, b"a", partition=0)
        await send(test, b"b", partition=1)
        await until(lambda: len(begun) == 2)
        async with running(other.app, broker=broker):
            await until(lambda: len(other.calls) == 1, 60)
            (lost,) = other.calls
            go_on.set()
            await until(lambda: (committed(test, 0), committed(test, 1)) == (1, 1), 60)
            await asyncio.sleep(1)
            assert (lost, "old") not in invoices(test)
            assert facts(test).stale_results == 1
    await broker.close()


@pytest.mark.parametrize("value", ["keep", 1, True])
def test_a_wrong_value_is_named(value: Any) -> None:
    app = make_app(stale_results=value)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        return value

    with pytest.raises(ConfigError, match=r"stale_results = .*send.*drop"):
        app.configure()
