"""Going on from somewhere else: what was in flight, what is committed, and what a rebalance does
afterwards.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, NotOwnerError, TopicPartition, by
from reactive_kafka.events import OffsetReset
from reactive_kafka.testing import MemoryBroker
from tests.app.handlers import broker_with, keep_messages, noting_app
from tests.app.helpers import (
    Recorder,
    committed,
    facts,
    in_virtual_time,
    make_app,
    now,
    positions,
    rebalanced,
    running,
    send,
    tp,
    until,
)

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def manual_app(kept: list[Message[bytes]], **orders: Any) -> App:
    app = make_app(**{"commit_interval": "100ms", "revoke_grace": "100ms", **orders})
    keep_messages(app, kept, ack="manual")

    return app


# -- where to


@pytest.mark.parametrize(
    ("where", "next_offset"),
    [
        (3, 3),
        (0, 0),
        ("beginning", 0),
        ("end", 10),
        (START + timedelta(seconds=4), 4),
        (START + timedelta(seconds=4, milliseconds=1), 5),
        (START - timedelta(days=1), 0),
        (START + timedelta(days=1), 10),
        ((START + timedelta(seconds=7)).astimezone(tz=None), 7),
        (by(-4), 6),
        (by(0), 10),
        (by(3), 10),
        (by(-100), 0),
    ],
)
@in_virtual_time
async def test_reading_goes_on_there(where: Any, next_offset: int) -> None:
    seen, broker = list[int](), broker_with(10, began=START)
    async with running(noting_app(seen), broker=broker) as test:
        await test.settled()
        seen.clear()
        await test.app.channel("orders").seek(tp(), where)
        await send(test, b"")
        await test.settled()
        assert seen == list(range(next_offset, 11))
    await broker.close()


@in_virtual_time
async def test_records_are_counted_from_the_first_one_without_a_verdict_however_many_are_queued() -> (
    None
):
    kept, broker = list[Message[bytes]](), broker_with(10, began=START)
    async with running(manual_app(kept), broker=broker) as test:
        await until(lambda: len(kept) == 10)
        for number in (0, 1, 2, 5):
            kept[number].ack()
        await test.app.channel("orders").seek(tp(), by(1))
        await until(lambda: len(kept) == 16)
        assert [message.offset for message in kept[10:]] == [4, 5, 6, 7, 8, 9]
    await broker.close()


@pytest.mark.parametrize(("policy", "first"), [("earliest", 2), ("latest", 8)])
@in_virtual_time
async def test_before_reading_begins_they_are_counted_from_where_it_would(
    policy: str, first: int
) -> None:
    seen, broker = list[int](), broker_with(10, began=START)
    app = noting_app(seen, auto_offset_reset=policy)

    @app.on_assigned("orders")
    async def seek(partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            await app.channel("orders").seek(partition, by(2 if policy == "earliest" else -2))

    async with running(app, broker=broker) as test:
        await test.settled()
        assert seen == list(range(first, 10))
    await broker.close()


@in_virtual_time
async def test_where_nobody_may_choose_a_position_records_are_counted_from_none() -> None:
    app = noting_app([], auto_offset_reset="none")

    @app.on_assigned("orders")
    async def seek(partitions: frozenset[TopicPartition]) -> None:
        await app.channel("orders").seek(tp(), by(1))

    async with running(app) as test:
        await until(lambda: facts(test).state == "failed")
        assert "no committed position" in (facts(test).reason or "")


@in_virtual_time
async def test_any_pair_of_topic_and_number_is_taken() -> None:
    seen, broker = list[int](), broker_with(3, began=START)
    async with running(noting_app(seen), broker=broker) as test:
        await test.settled()
        await test.app.channel("orders").seek(("orders", 0), 2)
        await until(lambda: seen == [0, 1, 2, 2])
    await broker.close()


@pytest.mark.parametrize(
    ("where", "error"),
    [
        (datetime(2026, 1, 1), ValueError),
        (-1, ValueError),
        ("start", ValueError),
        (1.5, TypeError),
        (True, TypeError),
        (None, TypeError),
    ],
)
@in_virtual_time
async def test_what_is_no_place_is_refused_and_moves_nothing(
    where: Any, error: type[Exception]
) -> None:
    seen: list[int] = []
    async with running(noting_app(seen)) as test:
        await send(test, b"", b"")
        await test.settled()
        with pytest.raises(error):
            await test.app.channel("orders").seek(tp(), where)
        await asyncio.sleep(1)
        assert seen == [0, 1]


@in_virtual_time
async def test_a_partition_that_is_not_ours_cannot_be_sought() -> None:
    async with running(noting_app([])) as test:
        with pytest.raises(NotOwnerError, match=r"'orders': orders-7 is not ours"):
            await test.app.channel("orders").seek(tp(7), 0)
        await test.app.stop(drain=False)


@pytest.mark.parametrize(("policy", "next_offset"), [("earliest", 2), ("latest", 6)])
@pytest.mark.parametrize("where", [1, 99])
@in_virtual_time
async def test_a_place_that_the_log_does_not_have_is_where_the_policy_says(
    policy: str, next_offset: int, where: int
) -> None:
    recorder, seen, broker = Recorder(), list[int](), broker_with(5, began=START)
    async with running(noting_app(seen, recorder), broker=broker) as test:
        await test.settled()
    broker.delete_records(tp(), 2)
    broker.produce("orders", b"", partition=0)
    seen.clear()
    async with running(noting_app(seen, recorder, auto_offset_reset=policy), broker=broker) as test:
        await test.settled()
        assert seen == [5]
        await test.app.channel("orders").seek(tp(), where)
        await asyncio.sleep(1)
        await test.settled()
        assert seen == [5, *range(next_offset, 6)]
        assert (recorder.of(OffsetReset)[-1].from_offset, recorder.of(OffsetReset)[-1].to) == (
            where,
            policy,
        )
    await broker.close()


# -- what is committed


@in_virtual_time
async def test_a_seek_moves_no_committed_position_by_itself_and_the_next_ack_does() -> None:
    kept, broker = list[Message[bytes]](), broker_with(10, began=START)
    app = manual_app(kept)
    async with running(app, broker=broker) as test:
        await until(lambda: len(kept) == 10)
        for message in kept[:5]:
            message.ack()
        await until(lambda: committed(test) == 5)
        kept.clear()
        for where, then in ((2, 3), (8, 9), (0, 1)):
            before = committed(test)
            await app.channel("orders").seek(tp(), where)
            # Awaited here.
            await until(lambda: len(kept) == 10 - where)  # noqa: B023
            await asyncio.sleep(5)
            assert committed(test) == before
            kept[0].ack()
            await asyncio.sleep(0.5)
            assert (committed(test), facts(test).partitions[0].committed) == (then, then)
            kept.clear()
        assert positions(broker)[-3:] == [3, 9, 1]
        await app.stop(drain=False)
    await broker.close()


@in_virtual_time
async def test_after_a_seek_back_commits_never_pass_an_unsettled_record() -> None:
    kept, broker = list[Message[bytes]](), broker_with(6, began=START)
    app = manual_app(kept)
    async with running(app, broker=broker) as test:
        await until(lambda: len(kept) == 6)
        for message in kept:
            message.ack()
        await until(lambda: committed(test) == 6)
        kept.clear()
        await app.channel("orders").seek(tp(), 1)
        await until(lambda: len(kept) == 5)
        kept[0].ack()
        kept[2].ack()
        await asyncio.sleep(1)
        assert committed(test) == 2
        await app.stop(drain=False)
    assert committed_in(broker) == 2
    await broker.close()


def committed_in(broker: MemoryBroker) -> int | None:
    stored = broker.committed("billing").get(tp())
    return None if stored is None else stored.offset


# -- what was in flight


@in_virtual_time
async def test_what_was_in_flight_settles_nothing_any_more() -> None:
    kept, broker = list[Message[bytes]](), broker_with(4, began=START)
    app = manual_app(kept)
    async with running(app, broker=broker) as test:
        await until(lambda: len(kept) == 4)
        before = list(kept)
        waits = asyncio.ensure_future(before[0].committed())
        await app.channel("orders").seek(tp(), 2)
        await until(lambda: len(kept) == 6)
        assert [await message.ack() for message in before] == [False] * 4
        with pytest.raises(NotOwnerError):
            await waits
        await asyncio.sleep(1)
        assert committed(test) is None
        assert [await message.ack() for message in kept[4:]] == [True, True]
        await until(lambda: committed(test) == 4)
    await broker.close()


@in_virtual_time
async def test_what_waited_is_dropped_and_a_running_handler_holds_nothing_back() -> None:
    seen, hang, broker = list[int](), asyncio.Event(), broker_with(5, began=START)
    app = make_app(commit_interval="100ms")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if len(seen) == 1:
            await hang.wait()

    async with running(app, broker=broker) as test:
        await until(lambda: facts(test).partitions[0].queued == 4)
        await app.channel("orders").seek(tp(), 3)
        await until(lambda: seen == [0, 3, 4])
        await test.settled()
        assert committed(test) == 5
        hang.set()
        await asyncio.sleep(1)
        assert (seen, committed(test)) == ([0, 3, 4], 5)
        await send(test, b"")
        await test.settled()
        assert seen == [0, 3, 4, 5]
    await broker.close()


@in_virtual_time
async def test_other_partitions_do_not_notice() -> None:
    seen: list[TopicPartition] = []
    app = make_app(commit_interval="100ms", concurrency=2)

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.topic_partition)

    async with running(app, partitions=2) as test:
        await send(test, b"", b"", partition=0)
        await send(test, b"", b"", partition=1)
        await test.settled()
        await app.channel("orders").seek(tp(0), 0)
        await send(test, b"", partition=1)
        await test.settled()
        assert Counter(seen) == {tp(0): 4, tp(1): 3}


@in_virtual_time
async def test_what_remains_of_a_batch_that_fails_after_a_seek_is_retried_after_its_backoff() -> (
    None
):
    go_on = asyncio.Event()
    began: list[tuple[float, list[bytes]]] = []
    app = make_app(
        concurrency=1,
        batch_max_wait="1s",
        retry={"max_attempts": 2, "backoff": "30s", "max_backoff": "30s", "jitter": 0},
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        began.append((now(), sorted(batch.payloads)))
        if len(began) == 1:
            await go_on.wait()
            raise ValueError("not yet")
        if batch.payloads == [b"after"]:
            # It ends when the other one has been due for a while.
            await asyncio.sleep(60)

    async with running(app, partitions=2) as test:
        await send(test, b"here", partition=0)
        await send(test, b"there", partition=1)
        await until(lambda: len(began) == 1)
        await app.channel("orders").seek(tp(1), 1)
        go_on.set()
        await asyncio.sleep(10)
        await send(test, b"after", partition=1)
        await test.settled(timeout=100)
    assert [payloads for _, payloads in began] == [[b"here", b"there"], [b"after"], [b"here"]]
    # There is one place, so it waits for the end of the other call as well.
    assert began[2][0] - began[1][0] == pytest.approx(60, abs=0.1)


def is_wanted(message: Message[bytes]) -> bool:
    return message.payload != b"skipped"


@pytest.mark.parametrize(("is_skipped", "at_once"), [(True, 1), (False, 2)])
@in_virtual_time
async def test_a_batch_keeps_its_place_if_its_handler_has_no_record_of_what_is_read_from_elsewhere(
    is_skipped: bool, at_once: int
) -> None:
    go_on, calls = asyncio.Event(), list[list[TopicPartition]]()
    app = make_app(
        concurrency=1,
        batch_max_records=2,
        batch_max_wait="1s",
        filter=f"{__name__}:is_wanted",
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        calls.append([message.topic_partition for message in batch])
        await go_on.wait()

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"skipped" if is_skipped else b"", partition=1)
        await until(lambda: calls)
        await app.channel("orders").seek(tp(1), "end")
        await send(test, b"", b"", partition=1)
        await asyncio.sleep(5)
        assert len(calls) == at_once
        go_on.set()
        await test.settled()
        assert calls == [[tp(0)] if is_skipped else [tp(0), tp(1)], [tp(1), tp(1)]]


@in_virtual_time
async def test_a_stop_waits_for_a_handler_whose_partition_is_read_from_elsewhere() -> None:
    began, ended = asyncio.Event(), list[bytes]()
    app = make_app()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        began.set()
        await asyncio.sleep(5)
        ended.append(value)

    async with running(app) as test:
        await send(test, b"a")
        await began.wait()
        await app.channel("orders").seek(tp(), "end")
    assert ended == [b"a"]


@in_virtual_time
async def test_a_batch_keeps_its_attempts_if_none_of_its_records_is_read_from_elsewhere() -> None:
    attempts: list[int] = []
    app = make_app(
        batch_max_wait="1s",
        filter=f"{__name__}:is_wanted",
        failure_strategy="ignore",
        retry={"max_attempts": 3, "backoff": "10s", "max_backoff": "10s", "jitter": 0},
    )

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None:
        attempts.extend(message.attempt for message in batch)
        raise ValueError("not today")

    async with running(app, partitions=2) as test:
        await send(test, b"", partition=0)
        await send(test, b"skipped", partition=1)
        await until(lambda: attempts)
        await app.channel("orders").seek(tp(1), "end")
        await until(lambda: committed(test, 0) == 1, 100)
    assert attempts == [1, 2, 3]


# -- rebalances


@in_virtual_time
async def test_a_seek_back_outlives_a_rebalance_before_anything_is_committed() -> None:
    kept, broker = list[Message[bytes]](), broker_with(6, began=START)
    app = manual_app(kept)
    async with running(app, broker=broker) as test:
        await until(lambda: len(kept) == 6)
        for message in kept:
            message.ack()
        await until(lambda: committed(test) == 6)
        kept.clear()
        await app.channel("orders").seek(tp(), 2)
        await until(lambda: len(kept) == 4)
        await rebalanced(test)
        await rebalanced(test)
        await asyncio.sleep(1)
        assert [message.offset for message in kept] == [2, 3, 4, 5]
        assert [await message.ack() for message in kept] == [True] * 4
        await test.settled()
    await broker.close()


@in_virtual_time
async def test_a_seek_forward_outlives_a_rebalance_before_anything_is_committed() -> None:
    kept, broker = list[Message[bytes]](), broker_with(6, began=START)
    app = manual_app(kept)
    async with running(app, broker=broker) as test:
        await until(lambda: len(kept) == 6)
        kept.clear()
        await app.channel("orders").seek(tp(), 4)
        await until(lambda: len(kept) == 2)
        await rebalanced(test)
        await asyncio.sleep(1)
        assert [message.offset for message in kept] == [4, 5]
        assert await kept[0].ack() is True
        await until(lambda: committed(test) == 5)
        await app.stop(drain=False)
    await broker.close()


@in_virtual_time
async def test_in_a_hook_it_says_where_reading_begins() -> None:
    seen, broker = list[int](), broker_with(6, began=START)
    app = noting_app(seen)

    @app.on_assigned("orders")
    async def hook(partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            await app.channel("orders").seek(partition, 4)

    async with running(app, broker=broker) as test:
        await test.settled()
        assert seen == [4, 5]
        await rebalanced(test)
        await until(lambda: seen == [4, 5, 4, 5])
    await broker.close()


@in_virtual_time
async def test_it_cannot_be_sought_while_it_is_being_let_go() -> None:
    kept, broker = list[Message[bytes]](), broker_with(2, began=START)
    app = manual_app(kept, revoke_grace="3s")
    async with running(app, broker=broker) as test:
        await until(lambda: len(kept) == 2)
        letting_go = asyncio.ensure_future(rebalanced(test))
        await asyncio.sleep(1)
        with pytest.raises(NotOwnerError):
            await app.channel("orders").seek(tp(), 0)
        await letting_go
        await app.channel("orders").seek(tp(), 1)
        await until(lambda: [message.offset for message in kept] == [0, 1, 1])
        await app.stop(drain=False)
    await broker.close()


@in_virtual_time
async def test_a_place_outside_the_log_replays_all_of_it_whatever_commit_is_on_its_way() -> None:
    app, seen = make_app(max_in_flight=5, commit_interval="1s"), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        await asyncio.sleep(0.05)

    async with running(app) as test:
        await send(test, *[b""] * 100)
        hold = test.broker.hold("commit")
        await until(lambda: len(seen) > 20)
        await hold.arrived()
        seeking = asyncio.ensure_future(app.channel("orders").seek(tp(), 10_000))
        await asyncio.sleep(2)
        hold.release()
        await seeking
        await until(lambda: 0 in seen[1:] and seen[-1] == 99, 60)
        mark = seen.index(0, 1)
    assert seen[mark:] == list(range(100))


@in_virtual_time
async def test_a_commit_that_was_on_its_way_at_a_seek_does_not_undo_it_at_the_next_rebalance() -> (
    None
):
    app, seen, go_on = make_app(commit_interval="100ms"), list[int](), asyncio.Event()
    go_on.set()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        await go_on.wait()
        seen.append(message.offset)

    async with running(app) as test:
        await send(test, *[b""] * 10)
        await until(lambda: committed(test) == 10)
        hold = test.broker.hold("commit")
        await send(test, *[b""] * 10)
        await hold.arrived()
        await until(lambda: len(seen) == 20)
        go_on.clear()
        await app.channel("orders").seek(tp(), "beginning")
        hold.release()
        await until(lambda: committed(test) == 20)
        await rebalanced(test)
        go_on.set()
        await until(lambda: len(seen) == 40)
        assert seen[20:] == list(range(20))
        await until(lambda: committed(test) == 20)
