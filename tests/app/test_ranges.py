"""Channels that read ranges of offsets: exactly those, in their order, and then they are done."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import App, Batch, ChannelClosedError, CommitRefusedError, Committed, Message
from reactive_kafka.events import OffsetReset
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.app.brokers import commit_from_outside
from tests.app.handlers import broker_with
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    now,
    positions,
    running,
    tp,
    until,
)

Seen = list[tuple[int, int]]


def noting_app(
    seen: Seen, *assign: str, recorder: Recorder | None = None, handles: bool = True, **orders: Any
) -> App:
    """An application that notes partition and offset of what it gets."""
    settings = {"group_id": "billing", "commit_interval": "100ms", "assign": list(assign), **orders}
    app = App(
        {"incoming": {"orders": {key: value for key, value in settings.items() if value}}},
        observer=recorder,
    )

    if handles:

        @app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            seen.append((message.partition, message.offset))

    return app


async def commit(broker: MemoryBroker, position: int) -> None:
    """What the service has stored before."""
    await commit_from_outside(broker, "billing", {tp(): Committed(position)})


def offsets(seen: Seen, partition: int = 0) -> list[int]:
    return [offset for number, offset in seen if number == partition]


@in_virtual_time
async def test_exactly_the_ranges_are_handled_in_their_order_and_then_the_channel_is_done() -> None:
    seen, broker = Seen(), broker_with(60, 30)
    app = noting_app(seen, "orders:0:10..20", "orders:0:50..51", "orders:1:17..18")
    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).state == "done")
        broker.produce("orders", b"", partition=1)
        await asyncio.sleep(5)
        assert (offsets(seen), offsets(seen, 1)) == ([*range(10, 20), 50], [17])
        health = app.health()
        assert health.status == "UP"
        (data,) = [check.data for check in health.checks if check.name == "orders"]
        assert (data["state"], [one["done"] for one in data["partitions"]]) == (
            "done",
            [True, True],
        )
        assert not any(one["paused"] for one in data["partitions"])
    await broker.close()


@in_virtual_time
async def test_a_hole_between_ranges_is_never_passed_by_the_committed_position() -> None:
    seen, broker = Seen(), broker_with(60)
    app, errors = (
        noting_app(seen, "orders:0:10..20", "orders:0:20..25", "orders:0:50..55", handles=False),
        list[str](),
    )

    @app.incoming("orders")
    async def waiting(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))
        try:
            message.committed()
        except ChannelClosedError as error:
            errors.append(str(error).partition(",")[0])

    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).state == "done")
        channel = test.app.channel("orders")
        with pytest.raises(
            CommitRefusedError, match="lies behind 25, and the offsets from there on are not read"
        ):
            await channel.commit({tp(): 51})
        assert errors == ["channel 'orders' commits nothing beyond offset 25"] * 5
    assert offsets(seen) == [*range(10, 25), *range(50, 55)]
    assert max(positions(broker)) == 25
    assert broker.committed("billing")[tp()].offset == 25
    await broker.close()


@in_virtual_time
async def test_a_range_needs_no_group_and_moves_none() -> None:
    seen, broker = Seen(), broker_with(10)
    async with running(noting_app(seen, "orders:0:3..6", group_id=""), broker=broker) as test:
        await until(lambda: facts(test).state == "done")
        assert (offsets(seen), broker.committed("billing")) == ([3, 4, 5], {})
        assert test.app.health().status == "UP"
    await broker.close()


@in_virtual_time
async def test_it_begins_anew_at_every_start_whatever_its_group_has() -> None:
    broker = broker_with(10)
    for _ in range(2):
        seen: Seen = []
        async with running(noting_app(seen, "orders:0:3..6"), broker=broker) as test:
            await until(lambda: facts(test).state == "done")
        assert offsets(seen) == [3, 4, 5]
        assert broker.committed("billing")[tp()] == Committed(6)
    await broker.close()


@in_virtual_time
async def test_a_range_beyond_the_end_of_the_log_waits_for_its_records_and_reads_none_before_them() -> (
    None
):
    seen, broker = Seen(), broker_with(10)
    async with running(noting_app(seen, "orders:0:8..9", "orders:0:15..17"), broker=broker) as test:
        await until(lambda: offsets(seen) == [8])
        for _ in range(4):
            broker.produce("orders", b"", partition=0)
            await asyncio.sleep(1)
        assert (offsets(seen), facts(test).state) == ([8], "running")
        for _ in range(4):
            broker.produce("orders", b"", partition=0)
        await until(lambda: facts(test).state == "done")
        assert offsets(seen) == [8, 15, 16]
    await broker.close()


@in_virtual_time
async def test_what_retention_has_deleted_of_a_range_is_told_and_the_rest_is_read() -> None:
    recorder, seen, broker = Recorder(), Seen(), broker_with(30)
    broker.delete_records(tp(), before=12)
    async with running(
        noting_app(seen, "orders:0:10..14", recorder=recorder), broker=broker
    ) as test:
        await until(lambda: facts(test).state == "done")
    assert offsets(seen) == [12, 13]
    assert [(one.from_offset, one.to_offset, one.skipped) for one in recorder.of(OffsetReset)] == [
        (10, 12, 2)
    ]
    await broker.close()


@in_virtual_time
async def test_ranges_that_retention_has_deleted_are_done_at_once() -> None:
    seen, broker = Seen(), broker_with(30)
    broker.delete_records(tp(), before=25)
    async with running(noting_app(seen, "orders:0:10..14"), broker=broker) as test:
        await until(lambda: facts(test).state == "done")
        await asyncio.sleep(5)
    assert seen == []
    await broker.close()


@in_virtual_time
async def test_ends_that_compaction_or_markers_have_taken_are_reached_all_the_same() -> None:
    seen, broker = Seen(), broker_with(20)
    # At 20 and 21.
    broker.append_markers(tp(), 2)
    broker.compact(tp(), [8, 9, 10, 11])
    async with running(
        noting_app(seen, "orders:0:6..10", "orders:0:18..22"), broker=broker
    ) as test:
        await until(lambda: facts(test).state == "done")
    assert offsets(seen) == [6, 7, 18, 19]
    await broker.close()


@in_virtual_time
async def test_a_batch_does_not_wait_to_fill_when_nothing_more_will_come() -> None:
    sizes, broker = list[int](), broker_with(20)
    app = App(
        {
            "incoming": {
                "orders": {
                    "assign": ["orders:0:2..9"],
                    "batch_max_wait": "10m",
                    "batch_max_records": 5,
                }
            }
        },
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        sizes.append(len(batch))

    async with running(app, broker=broker):
        began = now()
        await until(lambda: sizes == [5, 2])
        assert now() - began < 5
    await broker.close()


@in_virtual_time
async def test_a_restart_goes_on_in_its_range_and_still_passes_no_hole() -> None:
    seen, broker, failing = Seen(), broker_with(60), [52]
    app = App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "commit_interval": "100ms",
                    "assign": ["orders:0:10..12", "orders:0:50..55"],
                    "restart": {"max_attempts": 3, "backoff": "100ms"},
                }
            }
        }
    )

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.offset in failing:
            failing.clear()
            raise ValueError("once")
        seen.append((message.partition, message.offset))

    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).state == "done")
    assert offsets(seen) == [10, 11, 50, 51, 52, 53, 54]
    assert max(positions(broker)) == 12
    await broker.close()


@in_virtual_time
async def test_a_seek_into_ranges_reads_what_of_them_follows() -> None:
    seen, broker = Seen(), broker_with(60)
    async with running(
        noting_app(seen, "orders:0:10..12", "orders:0:50..53"), broker=broker
    ) as test:
        await until(lambda: facts(test).state == "done")
        seen.clear()
        await test.app.channel("orders").seek(tp(), 30)
        await until(lambda: facts(test).state == "done" and bool(seen))
        assert offsets(seen) == [50, 51, 52]
        seen.clear()
        await test.app.channel("orders").seek(tp(), "end")
        await until(lambda: facts(test).state == "done")
        assert seen == []
    await broker.close()


@in_virtual_time
async def test_a_client_that_is_built_anew_goes_on_in_the_ranges() -> None:
    seen, broker = Seen(), broker_with(60)
    async with running(
        noting_app(seen, "orders:0:10..12", "orders:0:90..93"), broker=broker
    ) as test:
        await until(lambda: offsets(seen) == [10, 11])
        broker.down = True
        await asyncio.sleep(90)
        broker.down = False
        for _ in range(40):
            broker.produce("orders", b"", partition=0)
        await until(lambda: facts(test).state == "done", 60)
        assert offsets(seen) == [10, 11, 90, 91, 92]
    await broker.close()


PAIRS = st.lists(st.integers(1, 5), min_size=2, max_size=8).filter(
    lambda steps: len(steps) % 2 == 0
)


@given(
    steps=PAIRS,
    first=st.integers(0, 4),
    records=st.integers(0, 40),
    begins=st.integers(0, 10),
    gone=st.sets(st.integers(0, 39), max_size=20),
    window=st.integers(3, 10),
    ordering=st.sampled_from(["partition", "unordered"]),
)
def test_whatever_the_log_is_like_exactly_what_of_the_ranges_is_there_is_handled(
    steps: list[int],
    first: int,
    records: int,
    begins: int,
    gone: set[int],
    window: int,
    ordering: str,
) -> None:
    bounds = [first]
    for step in steps[1:]:
        bounds.append(bounds[-1] + step)
    pairs = list(zip(bounds[::2], bounds[1::2], strict=True))
    wanted = {offset for start, end in pairs for offset in range(start, end)}
    begins = min(begins, records)
    there = set(range(begins, records)) - gone

    async def main(clock: FakeClock) -> None:
        seen, broker = Seen(), broker_with(records)
        broker.compact(tp(), gone & set(range(records)))
        broker.delete_records(tp(), before=begins)
        assign = [f"orders:0:{start}..{end}" for start, end in pairs]
        app = noting_app(seen, *assign, max_in_flight=window, ordering=ordering, concurrency=3)
        async with running(app, broker=broker) as test:
            await asyncio.sleep(3)
            assert sorted(offsets(seen)) == sorted(wanted & there)
            assert (facts(test).state == "done") == (records >= bounds[-1] or begins >= bounds[-1])
        stored = broker.committed("billing").get(tp(), Committed(0)).offset
        hole = next((end for (_, end), (start, _) in pairwise(pairs) if start > end), bounds[-1])
        assert stored <= hole
        await broker.close()

    run_in_virtual_time(main)


@pytest.mark.parametrize("strategy", ["throttled", "latest"])
@in_virtual_time
async def test_a_group_that_is_ahead_of_the_ranges_does_not_go_back(strategy: str) -> None:
    seen, broker, told = Seen(), broker_with(200), list[bool]()
    await commit(broker, 150)
    app = noting_app(seen, "orders:0:20..120", commit_strategy=strategy, handles=False)

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))
        told.append(await message.ack())
        # The group has passed it before.
        await message.committed()

    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).state == "done", 60)
        with pytest.raises(CommitRefusedError, match="go back from 150"):
            await test.app.channel("orders").commit({tp(): 120})
        await test.settled()
    assert (offsets(seen), set(told)) == ([*range(20, 120)], {True})
    assert {entry.offsets[tp()].offset for entry in broker.commits("billing")[1:]} <= {150}
    assert broker.committed("billing")[tp()].offset == 150
    await broker.close()


@in_virtual_time
async def test_a_group_that_is_inside_of_the_ranges_moves_on_from_there() -> None:
    seen, broker = Seen(), broker_with(200)
    await commit(broker, 60)
    async with running(noting_app(seen, "orders:0:20..120"), broker=broker) as test:
        await until(lambda: facts(test).state == "done", 60)
        await test.settled()
    stored = [entry.offsets[tp()].offset for entry in broker.commits("billing")]
    assert (stored, stored[-1]) == (sorted(stored), 120)
    await broker.close()
