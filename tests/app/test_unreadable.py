"""Offsets that cannot be read, by ``on_unreadable``: the other partitions go on whatever it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka import App, Message, TopicPartition
from reactive_kafka.errors import CorruptRecordError, FatalBrokerError, TransientBrokerError
from reactive_kafka.events import ReadFailed, UnreadableSkipped
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import note_places, take_all
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    inside,
    make_app,
    make_broker,
    now,
    running,
    send,
    settle_down,
    tp,
    until,
)

VALUES = [b"0", b"1", b"2", b"3", b"4", b"5"]


def noting_app(
    handled: list[tuple[int, int]], recorder: Recorder | None = None, **orders: Any
) -> App:
    app = make_app(recorder, **{"commit_interval": "0.1s", **orders})
    note_places(app, handled)

    return app


def tracker_in(client: Any) -> Any:
    """The tracker with which a client reads orders-0."""
    return client.table.get(tp(0)).tracker


def is_ready(app: App) -> bool:
    return app.health().ready.is_up


# -- wait


@in_virtual_time
async def test_it_waits_with_growing_intervals_is_not_ready_after_5_s_and_goes_on_when_it_can() -> (
    None
):
    """Row F7 of the faults."""
    handled: list[tuple[int, int]] = []
    recorder = Recorder()
    app = noting_app(handled, recorder)
    async with running(app, partitions=2) as test:
        began = now()
        test.broker.spoil(tp(0), 2, 3)
        await send(test, *VALUES)
        await send(test, *VALUES, partition=1)
        await until(lambda: len(handled) == 8)
        assert sorted(handled) == [(0, 0), (0, 1), *((1, offset) for offset in range(6))]
        await asyncio.sleep(began + 4.5 - now())
        assert is_ready(app)
        await asyncio.sleep(1.0)
        assert not is_ready(app)
        assert app.health().live.is_up
        assert facts(test).not_ready == ("orders-0 cannot be read at offset 2: it was spoiled",)
        assert test.committed("orders") == {tp(0): 2, tp(1): 6}
        await asyncio.sleep(began + 125 - now())
        told = recorder.of(ReadFailed)
        assert {(one.partition, one.offset, one.reason) for one in told} == {
            (tp(0), 2, "it was spoiled")
        }
        # At 0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5 and 123.5 s, and a poll's wait later.
        assert len(told) == 9
        assert facts(test).unreadable == {"wait": 2}
        test.broker.mend(tp(0))
        await test.settled(timeout=70)
        assert [offset for partition, offset in handled if partition == 0] == [0, 1, 2, 3, 4, 5]
        assert is_ready(app)


@in_virtual_time
async def test_a_seek_past_it_ends_the_wait() -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled)
    async with running(app) as test:
        test.broker.spoil(tp(0), 2, 3)
        await send(test, *VALUES)
        await asyncio.sleep(10)
        assert not is_ready(app)
        await app.channel("orders").seek(tp(0), 6)
        await until(lambda: is_ready(app))
        await send(test, b"6")
        await test.settled()
        assert handled == [(0, 0), (0, 1), (0, 6)]


@in_virtual_time
async def test_a_seek_past_it_ends_the_wait_at_once_although_nobody_asks_for_health() -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled)
    async with running(app) as test:
        test.broker.spoil(tp(0), 2, 3)
        await send(test, *VALUES)
        # The next attempt is 31.5 s after the first one.
        await asyncio.sleep(20)
        await app.channel("orders").seek(tp(0), 4)
        await until(lambda: handled == [(0, 0), (0, 1), (0, 4), (0, 5)], 1.0)


@in_virtual_time
async def test_a_partition_that_another_member_has_had_meanwhile_is_read_at_once() -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled)
    other = noting_app([])
    broker = make_broker(2)
    async with running(app, broker=broker) as test:
        for number in range(2):
            broker.spoil(tp(number), 0, 0)
            await send(test, b"0", partition=number)
        # The next attempt is 31.5 s after the first one.
        await asyncio.sleep(20)
        async with TestApp(other, broker=broker):
            await until(lambda: len(app.channel("orders").assignment) == 1)
            [moved] = other.channel("orders").assignment
            broker.mend(moved)
            await until(lambda: test.committed("orders").get(moved) == 1)
        await until(lambda: len(app.channel("orders").assignment) == 2)
        await send(test, b"1", partition=moved.partition)
        await until(lambda: handled == [(moved.partition, 1)], 1.0)
    await broker.close()


# -- skip


@pytest.mark.parametrize("tells_end", [True, False])
@in_virtual_time
async def test_it_passes_over_what_cannot_be_read_tells_it_once_and_commits_behind_it(
    tells_end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Row F7 of the faults; also where the bytes of the batch do not say where it ends."""
    handled: list[tuple[int, int]] = []
    recorder = Recorder()
    app = noting_app(handled, recorder, on_unreadable="skip")
    with caplog.at_level(logging.WARNING):
        async with running(app, partitions=2) as test:
            test.broker.spoil(tp(0), 2, 3, tells_end=tells_end)
            await send(test, *VALUES)
            await send(test, *VALUES, partition=1)
            await test.settled()
            assert [offset for partition, offset in handled if partition == 0] == [0, 1, 4, 5]
            assert len([offset for partition, offset in handled if partition == 1]) == 6
            assert test.committed("orders") == {tp(0): 6, tp(1): 6}
            assert facts(test).unreadable == {"skip": 2}
            assert is_ready(app)
    [told] = recorder.of(UnreadableSkipped)
    assert (told.partition, told.offset, told.until) == (tp(0), 2, 4)
    assert not recorder.of(ReadFailed)
    [line] = [one.getMessage() for one in caplog.records if "cannot be read" in one.getMessage()]
    assert "orders-0: offsets 2 to 3 cannot be read and were skipped: it was spoiled" in line


@pytest.mark.parametrize("tells_end", [True, False])
@in_virtual_time
async def test_at_the_end_of_the_log_the_position_passes_it_and_what_comes_later_is_read(
    tells_end: bool,
) -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled, on_unreadable="skip")
    async with running(app) as test:
        test.broker.spoil(tp(0), 1, 2, tells_end=tells_end)
        await send(test, b"0", b"1", b"2")
        await until(lambda: test.committed("orders") == {tp(0): 3})
        await send(test, b"3")
        await test.settled()
        assert handled == [(0, 0), (0, 3)]


@in_virtual_time
async def test_many_unreadable_offsets_are_searched_through_in_few_fetches() -> None:
    handled: list[tuple[int, int]] = []
    recorder = Recorder()
    app = noting_app(handled, recorder, on_unreadable="skip")
    async with running(app) as test:
        await send(test, b"0")
        test.broker.append_markers(tp(0), 40_000)
        await send(test, b"1")
        test.broker.spoil(tp(0), 1, 30_000, tells_end=False)
        test.broker.spoil(tp(0), 30_001, 40_000, tells_end=True)
        await test.settled()
        assert handled == [(0, 0), (0, 40_001)]
        assert sum(one.until - one.offset for one in recorder.of(UnreadableSkipped)) == 40_000
        assert now() < 30


@in_virtual_time
async def test_a_search_that_cannot_ask_for_the_end_waits_and_tries_again() -> None:
    handled: list[tuple[int, int]] = []
    recorder = Recorder()
    app = noting_app(handled, recorder, on_unreadable="skip")
    async with running(app) as test:
        await send(test, b"0")
        await test.settled()
        test.broker.fail_next("end_offsets", TransientBrokerError("try later"))
        test.broker.spoil(tp(0), 1, 2, tells_end=False)
        await send(test, b"1", b"2", b"3")
        await test.settled()
        assert handled == [(0, 0), (0, 3)]
        assert len(recorder.of(ReadFailed)) == 1
        assert [(one.offset, one.until) for one in recorder.of(UnreadableSkipped)] == [(1, 3)]


@in_virtual_time
async def test_a_seek_during_a_search_ends_it() -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled, on_unreadable="skip")
    broker = make_broker()
    async with running(app, broker=broker) as test:
        held = broker.hold("end_offsets")
        broker.spoil(tp(0), 1, 4, tells_end=False)
        await send(test, *VALUES)
        await held.arrived()
        await app.channel("orders").seek(tp(0), 0)
        held.release()
        await until(lambda: test.committed("orders") == {tp(0): 6})
        assert handled == [(0, 0), (0, 0), (0, 5)]
    await broker.close()


@pytest.mark.parametrize("policy", ["wait", "fail", "skip"])
@in_virtual_time
async def test_what_a_poll_could_not_read_before_a_seek_has_no_effect_after_it(policy: str) -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled, on_unreadable=policy)
    async with running(app) as test:
        await send(test, *VALUES)
        await test.settled()
        [client] = inside(app).session.clients
        tracker = tracker_in(client)
        # The poll has ended with this, and the seek comes before it is decided what that means.
        error = CorruptRecordError(tp(0), 6, "it was spoiled", 7)
        await app.channel("orders").seek(tp(0), 2)
        failures = client.fetcher.stops.failures
        assert await failures.cannot_read(tp(0), error, tracker) is None
        assert facts(test).unreadable == {}
        await send(test, b"6")
        await test.settled()
        assert [offset for _, offset in handled] == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 6]


@asynccontextmanager
async def waiting_search(
    app: App, first: int, last: int
) -> AsyncIterator[tuple[TestApp, MemoryBroker]]:
    """An application whose search in orders-0, for what follows these offsets, has begun.

    Its first attempt is not answered, because the leader is away.
    """
    broker = make_broker()
    async with running(app, broker=broker) as test:
        held = broker.hold("end_offsets", answer=True)
        broker.spoil(tp(0), first, last, tells_end=False)
        await send(test, *VALUES)
        await held.arrived()
        broker.leader_away(tp(0))
        held.release()
        await settle_down()
        yield test, broker
    await broker.close()


@in_virtual_time
async def test_a_search_whose_attempt_retention_has_deleted_starts_where_the_log_begins() -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled, on_unreadable="skip")
    async with waiting_search(app, 1, 4) as (test, broker):
        broker.delete_records(tp(0), before=5)
        broker.leader_back(tp(0))
        await until(lambda: test.committed("orders") == {tp(0): 6})
        assert handled == [(0, 0), (0, 5)]


@in_virtual_time
async def test_a_right_that_is_withdrawn_during_a_search_has_no_readable_record_skipped() -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled, on_unreadable="skip")
    async with waiting_search(app, 1, 2) as (test, broker):
        [client] = inside(app).session.clients
        failures = client.fetcher.stops.failures
        tracker = tracker_in(client)
        await failures.cannot_read(tp(0), CorruptRecordError(tp(0), 2, "it was spoiled"), tracker)
        missing = FatalBrokerError("the right READ on it is missing")
        await failures.cannot_read(tp(0), missing, tracker)
        broker.leader_back(tp(0))
        await until(lambda: test.committed("orders") == {tp(0): 6})
        assert [offset for _, offset in handled] == [0, 3, 4, 5]


@in_virtual_time
async def test_a_rebalance_while_a_search_asks_for_the_end_does_not_fail_the_channel() -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled, on_unreadable="skip")
    other = noting_app(handled, on_unreadable="skip")

    @other.on_revoked("orders")
    async def delay_the_rebalance(partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(1.0)

    broker = make_broker(2)
    async with running(app, broker=broker) as test, TestApp(other, broker=broker):
        await until(lambda: len(app.channel("orders").assignment) == 1)
        [own] = app.channel("orders").assignment
        held = broker.hold("end_offsets")
        broker.spoil(own, 1, 1, tells_end=False)
        await send(test, *VALUES, partition=own.partition)
        await held.arrived()
        broker.rebalance("billing")
        await until(lambda: not app.channel("orders").assignment)
        held.release()
        await until(lambda: test.committed("orders").get(own) == 6)
        assert [offset for _, offset in handled] == [0, 2, 3, 4, 5]
        assert facts(test).state == "running"
    await broker.close()


@in_virtual_time
async def test_kept_acks_behind_an_unreadable_place_still_count() -> None:
    handled: list[tuple[int, int]] = []
    app = make_app(
        on_unreadable="skip", keep_out_of_order_acks=True, ack="manual", commit_interval="0.1s"
    )
    taken: list[Message[bytes]] = []

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        handled.append((message.partition, message.offset))
        taken.append(message)

    broker = make_broker()
    async with running(app, broker=broker) as test:
        await send(test, *VALUES)
        await until(lambda: len(taken) == 6)
        taken[5].ack()
        await until(lambda: broker.committed("billing").get(tp(0)))
    handled.clear()
    taken.clear()
    broker.spoil(tp(0), 1, 2)
    async with running(app, broker=broker) as test:
        await until(lambda: len(taken) == 3)
        assert [offset for _, offset in handled] == [0, 3, 4]
        for message in taken:
            message.ack()
        await until(lambda: test.committed("orders") == {tp(0): 6})
    await broker.close()


# -- fail


@in_virtual_time
async def test_it_fails_the_channel_and_commits_what_is_before_it() -> None:
    """Row F7 of the faults."""
    handled: list[tuple[int, int]] = []
    app = noting_app(handled, on_unreadable="fail")
    async with running(app) as test:
        test.broker.spoil(tp(0), 2, 3)
        await send(test, *VALUES)
        await until(lambda: facts(test).state == "failed")
        assert facts(test).reason == "orders-0 cannot be read at offset 2: it was spoiled"
        assert not app.health().live.is_up
        assert facts(test).unreadable == {"fail": 2}
        assert handled == [(0, 0), (0, 1)]
        await until(lambda: test.broker.committed("billing")[tp(0)].offset == 2)


@in_virtual_time
async def test_a_channel_that_restarts_goes_on_when_it_can_be_read() -> None:
    handled: list[tuple[int, int]] = []
    app = noting_app(handled, on_unreadable="fail", restart={"max_attempts": 3, "backoff": "1s"})
    async with running(app) as test:
        test.broker.spoil(tp(0), 2, 3)
        await send(test, *VALUES)
        await until(lambda: facts(test).state == "failed")
        test.broker.mend(tp(0))
        await until(lambda: [offset for _, offset in handled] == [0, 1, 2, 3, 4, 5])
        assert is_ready(app)


@in_virtual_time
async def test_where_a_log_ends_is_asked_again_when_it_was_cut_off() -> None:
    app = make_app(auto_offset_reset="latest", commit_interval="1s")
    take_all(app)
    async with running(app) as test:
        await send(test, *[b""] * 10)
        await until(lambda: committed(test) == 10)
        test.broker.truncate(tp(), 4)
        await until(lambda: facts(test).partitions[0].position == 4, 60)
        await asyncio.sleep(10)
        (partition,) = facts(test).partitions
        assert (partition.log_end, partition.lag) == (4, 0)
