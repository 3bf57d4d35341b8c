"""A seek at every stage of an assignment: what was sought last is where records come from, once,
and never again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reactive_kafka import App, Committed, Message, NotOwnerError, TopicPartition
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.brokers import Request
from tests.app.checkpoints import Rows, app_on, row, store_of
from tests.app.handlers import keep_messages, note_offsets
from tests.app.helpers import (
    committed,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    running,
    tp,
    until,
)

# The longest wait of a poll after one that brought nothing.
IDLE_POLL_S = 2.0

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Kind:
    """A channel with ten records, and what reads them where nobody seeks."""

    settings: dict[str, Any]
    committed: int | None = None
    rows: bool = False


KINDS = {
    "group": Kind({}, committed=5),
    "group without a position": Kind({"auto_offset_reset": "latest"}),
    "assign": Kind({"assign": ["orders:0"], "auto_offset_reset": "latest"}),
    "assign with a start": Kind({"assign": ["orders:0:8"]}),
    "assign with a time": Kind({"assign": ["orders:0@2026-11-21T12:00:07Z"]}),
    "checkpoint": Kind({}, rows=True),
}

CALLS: list[tuple[str, Request]] = [
    *[
        (kind, call)
        for kind in KINDS
        for call in ("committed", "beginning_offsets", "end_offsets", "topics")
    ],
    ("group without a position", "commit"),
    ("assign", "commit"),
    ("assign with a time", "offsets_for_times"),
]


def app_of(kind: Kind, seen: list[int]) -> App:
    settings = {"commit_interval": "100ms", **kind.settings}
    app = app_on(Rows(), **settings) if kind.rows else make_app(**settings)
    note_offsets(app, seen)

    return app


@asynccontextmanager
async def broker_of(kind: Kind) -> AsyncIterator[MemoryBroker]:
    """A broker with ten records one second apart, from START on, and what the group has
    committed.
    """
    broker = make_broker(1)
    for number in range(10):
        at = START + timedelta(seconds=number)
        broker.produce("orders", b"", partition=0, timestamp_ms=int(at.timestamp() * 1000))
    if kind.committed is not None:
        inspector = broker.connector().inspector(properties={})
        await inspector.start()
        await inspector.commit("billing", {tp(): Committed(kind.committed, "")})
        await inspector.stop()
    yield broker
    await broker.close()


async def joins_again(broker: MemoryBroker, app: App) -> None:
    """The client breaks, and another one takes its place."""
    broker.fail_next("poll", TransientBrokerError("broken"))
    await asyncio.sleep(5)
    await until(lambda: app.channel("orders").is_ready, 60)


async def nothing_revives(broker: MemoryBroker, app: App, seen: list[int]) -> None:
    """After a rebalance and two clients more nothing but the next record is read."""
    await asyncio.sleep(2)
    seen.clear()
    for _ in range(2):
        broker.rebalance("billing")
        await asyncio.sleep(2)
        await joins_again(broker, app)
    broker.produce("orders", b"", partition=0)
    await until(lambda: seen)
    await asyncio.sleep(2)
    assert seen == [10]


@pytest.mark.parametrize("answer", [False, True], ids=["asked", "answered"])
@pytest.mark.parametrize(("kind", "call"), CALLS)
@pytest.mark.parametrize(
    ("where", "first"),
    [([2], 2), ([9, "beginning"], 0), ([START + timedelta(seconds=3)], 3), (["end", 4, 3], 3)],
)
@in_virtual_time
async def test_while_reading_begins_it_begins_where_was_sought_last_and_that_never_revives(
    kind: str, call: Request, answer: bool, where: list[Any], first: int
) -> None:
    seen, it = list[int](), KINDS[kind]
    async with broker_of(it) as broker:
        hold = broker.hold(call, answer=answer)
        app = app_of(it, seen)
        test = TestApp(app, broker=broker)
        starting = asyncio.ensure_future(test.__aenter__())
        await asyncio.wait([asyncio.ensure_future(hold.arrived())], timeout=5)
        assert app.channel("orders").assignment == {tp()}
        seeks = []
        for one in where:
            seeks.append(asyncio.create_task(app.channel("orders").seek(tp(), one)))
            await asyncio.sleep(0.01)
        assert not seen
        hold.release()
        await asyncio.gather(starting, *seeks)
        await until(lambda: seen[-1:] == [9])
        await asyncio.sleep(2)
        assert seen == list(range(first, 10))
        await nothing_revives(broker, app, seen)
        await test.__aexit__(None, None, None)


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_hook_of_the_assignment_and_a_task_beside_it_may_seek_and_the_last_one_wins(
    kind: str,
) -> None:
    seen, it = list[int](), KINDS[kind]
    app, hooks = app_of(it, seen), list[int]()

    @app.on_assigned("orders")
    async def hook(partitions: frozenset[TopicPartition]) -> None:
        hooks.append(1)
        if len(hooks) == 1:
            await app.channel("orders").seek(tp(), 7)
            beside = asyncio.create_task(app.channel("orders").seek(tp(), 1))
            await beside
            await asyncio.sleep(1)

    async with broker_of(it) as broker, running(app, broker=broker):
        await until(lambda: seen[-1:] == [9])
        assert seen == list(range(1, 10))
        await nothing_revives(broker, app, seen)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("places", [[0], [8, 4], ["end", START + timedelta(seconds=6)]])
@in_virtual_time
async def test_right_after_reading_has_begun_the_last_of_them_wins(
    kind: str, places: list[Any]
) -> None:
    seen, it = list[int](), KINDS[kind]
    async with broker_of(it) as broker, running(app_of(it, seen), broker=broker) as test:
        channel = test.app.channel("orders")
        await until(lambda: channel.is_ready)
        await asyncio.sleep(1)
        seen.clear()
        await asyncio.gather(*(channel.seek(tp(), place) for place in places))
        await until(lambda: seen[-1:] == [9])
        await asyncio.sleep(1)
        last = places[-1] if isinstance(places[-1], int) else 6
        assert seen[-(10 - last) :] == list(range(last, 10))
        await nothing_revives(broker, test.app, seen)


@pytest.mark.parametrize("call", ["committed", "end_offsets"])
@in_virtual_time
async def test_a_seek_that_a_rebalance_overtakes_is_refused_and_not_carried_out(
    call: Request,
) -> None:
    seen, it = list[int](), KINDS["group"]
    async with broker_of(it) as broker:
        app = app_of(it, seen)
        # The next one is asked beside the rebalance.
        broker.fail_next(call, TransientBrokerError("not now"))
        hold = broker.hold(call)
        starting = asyncio.ensure_future(TestApp(app, broker=broker).__aenter__())
        await hold.arrived()
        seek = asyncio.create_task(app.channel("orders").seek(tp(), 0))
        await asyncio.sleep(0.01)
        broker.rebalance("billing")
        await asyncio.sleep(0.01)
        hold.release()
        with pytest.raises(NotOwnerError):
            await seek
        await starting
        await until(lambda: len(seen) == 5)
        await asyncio.sleep(2)
        assert seen == [5, 6, 7, 8, 9]
        await app.stop()


@pytest.mark.parametrize("kind", ["group", "assign", "checkpoint"])
@in_virtual_time
async def test_a_seek_under_way_when_the_partition_is_taken_away_is_refused_and_changes_nothing(
    kind: str,
) -> None:
    seen, it = list[int](), KINDS[kind]
    async with broker_of(it) as broker, running(app_of(it, seen), broker=broker) as test:
        channel = test.app.channel("orders")
        broker.produce("orders", b"", partition=0)
        await until(lambda: seen[-1:] == [10])
        await asyncio.sleep(1)
        seen.clear()
        hold = broker.hold("end_offsets")
        seek = asyncio.create_task(channel.seek(tp(), 0))
        await hold.arrived()
        if it.settings.get("assign"):
            broker.fail_next("poll", TransientBrokerError("broken"))
        else:
            broker.rebalance("billing")
        await asyncio.sleep(IDLE_POLL_S + 0.1)
        hold.release()
        with pytest.raises(NotOwnerError):
            await seek
        await asyncio.sleep(10)
        assert seen == []


@in_virtual_time
async def test_a_seek_whose_place_is_found_while_the_partition_drains_is_refused_and_acks_count() -> (
    None
):
    app, kept = make_app(commit_interval="100ms", revoke_grace="5s"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with broker_of(KINDS["group"]) as broker, running(app, broker=broker) as test:
        await until(lambda: len(kept) == 5)
        hold = broker.hold("end_offsets")
        seek = asyncio.create_task(app.channel("orders").seek(tp(), 0))
        await hold.arrived()
        broker.rebalance("billing")
        # The records in flight are waited for.
        await asyncio.sleep(1)
        hold.release()
        with pytest.raises(NotOwnerError):
            await asyncio.wait_for(seek, 1)
        assert [await message.ack() for message in kept] == [True] * 5
        await until(lambda: committed(test) == 10)
        await asyncio.sleep(5)
        assert len(kept) == 5


@in_virtual_time
async def test_a_partition_that_came_straight_back_goes_where_was_sought_while_it_was_looked_up() -> (
    None
):
    app, kept = make_app(commit_interval="100ms", revoke_grace="100ms"), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")

    async with broker_of(KINDS["group"]) as broker, running(app, broker=broker):
        await until(lambda: len(kept) == 5)
        before, hold = list(kept), broker.hold("committed")
        broker.rebalance("billing")
        await hold.arrived()
        seek = asyncio.create_task(app.channel("orders").seek(tp(), 8))
        await asyncio.sleep(0.01)
        hold.release()
        await seek
        await until(lambda: len(kept) == 7)
        assert [message.offset for message in kept[5:]] == [8, 9]
        assert [await message.ack() for message in before] == [False] * 5
        await app.stop(drain=False)


@in_virtual_time
async def test_with_a_store_the_row_is_claimed_anew_for_a_place_that_was_sought_while_rows_were_claimed() -> (
    None
):
    rows, seen = Rows(), list[int]()
    app = app_on(rows, commit_interval="100ms")
    note_offsets(app, seen)

    async with broker_of(KINDS["checkpoint"]) as broker, running(app, broker=broker) as test:
        await until(lambda: len(seen) == 10)
        await asyncio.sleep(1)
        before = row(rows)
        hold = store_of(app).faults.hold("write")
        # Its row is claimed beside one that is ours still.
        broker.create_topic("orders", 2)
        await hold.arrived()
        seek = asyncio.create_task(app.channel("orders").seek(tp(), 3))
        await asyncio.sleep(0.01)
        hold.release()
        await seek
        await until(lambda: len(seen) == 17)
        await test.settled()
        assert row(rows).token == before.token + 1
        assert seen[10:] == list(range(3, 10))


@in_virtual_time
async def test_a_restart_goes_where_was_sought_while_it_began_and_not_where_it_stood() -> None:
    app, seen = make_app(assign=["orders:0:8"], commit_interval="100ms"), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if seen == [8, 9, 10]:
            raise ValueError("once")

    async with broker_of(KINDS["assign"]) as broker, running(app, broker=broker):
        await until(lambda: seen == [8, 9])
        broker.produce("orders", b"", partition=0)
        await until(lambda: app.channel("orders").facts().state == "failed")
        hold = broker.hold("end_offsets")
        await app.channel("orders").restart()
        await hold.arrived()
        seek = asyncio.create_task(app.channel("orders").seek(tp(), 6))
        await asyncio.sleep(0.01)
        hold.release()
        await seek
        await until(lambda: len(seen) == 8)
        await asyncio.sleep(1)
        assert seen[3:] == [6, 7, 8, 9, 10]


@in_virtual_time
async def test_where_the_broker_does_not_answer_it_is_carried_out_when_it_does() -> None:
    seen, it = list[int](), KINDS["assign with a start"]
    async with broker_of(it) as broker:
        app = app_of(it, seen)
        broker.fail_next("end_offsets", TransientBrokerError("no"), 5)
        starting = asyncio.ensure_future(TestApp(app, broker=broker).__aenter__())
        await until(lambda: app._run is not None and app.channel("orders").assignment)
        began = now()
        await app.channel("orders").seek(tp(), 4)
        await starting
        await until(lambda: len(seen) == 6)
        assert now() - began < 10
        assert seen == [4, 5, 6, 7, 8, 9]
        await nothing_revives(broker, app, seen)
        await app.stop()
