"""``channel.handled(confirmation)``: reading one's own write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reactive_kafka import App, ChannelClosedError, Message, Record, RecordMetadata
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.testing import MemoryBroker
from tests.app.handlers import keep_messages, take_all
from tests.app.helpers import (
    in_virtual_time,
    make_broker,
    now,
    rebalanced,
    running,
    tp,
    until,
)
from tests.app.test_incremental import cooperative, joining


def own_app(**orders: Any) -> App:
    """An application that reads what it writes."""
    return App(
        {
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "auto_offset_reset": "earliest",
                    "value_deserializer": "bytes",
                    **orders,
                }
            },
            "outgoing": {"own": {"topic": "orders"}},
        }
    )


class Writing:
    """An application whose handler waits for a permission for each record."""

    def __init__(self, **orders: Any) -> None:
        self.app = own_app(**orders)
        self.go_on = asyncio.Event()
        self.began: list[int] = []
        self.emitter = self.app.emitter("own")

        @self.app.incoming("orders")
        async def handler(message: Message[bytes]) -> None:
            self.began.append(message.offset)
            await self.go_on.wait()
            if message.payload == b"bad":
                raise ValueError("bad")

    @property
    def channel(self) -> Any:
        return self.app.channel("orders")

    async def write(self, value: bytes = b"", partition: int = 0) -> RecordMetadata:
        return await self.emitter.send(Record(value, partition=partition))

    async def waits(self, confirmation: RecordMetadata) -> asyncio.Task[None]:
        """Wait for a record in a task, which has begun to wait."""
        waiting = asyncio.create_task(self.channel.handled(confirmation))
        await asyncio.sleep(1)
        assert not waiting.done()
        return waiting


@in_virtual_time
async def test_it_returns_when_the_record_is_settled_and_not_before() -> None:
    writing = Writing()
    async with running(writing.app):
        confirmation = await writing.write()
        waiting = await writing.waits(confirmation)
        began = now()
        writing.go_on.set()
        await waiting
        assert now() - began < 0.06
        # It is handled already.
        began = now()
        await writing.channel.handled(confirmation)
        assert now() == began


@in_virtual_time
async def test_a_quick_handler_is_seen_soon() -> None:
    writing = Writing()
    writing.go_on.set()
    async with running(writing.app):
        for _ in range(20):
            began = now()
            await writing.channel.handled(await writing.write())
            assert now() - began < 0.02


@in_virtual_time
async def test_a_wait_ends_while_others_begin_all_the_time() -> None:
    writing = Writing()
    async with running(writing.app):
        confirmation = await writing.write()
        waiting = await writing.waits(confirmation)
        writing.go_on.set()
        later = RecordMetadata("orders", 0, 1000)
        others: list[asyncio.Task[None]] = []
        for _ in range(200):
            others.append(asyncio.create_task(writing.channel.handled(later)))
            await asyncio.sleep(0.001)
        assert waiting.done()
        for other in others:
            other.cancel()


@in_virtual_time
async def test_a_record_that_is_settled_behind_an_unsettled_one_is_handled() -> None:
    app, kept = own_app(), list[Message[bytes]]()
    keep_messages(app, kept, ack="manual")
    emitter = app.emitter("own")
    async with running(app):
        first, second = await emitter.send(b"1"), await emitter.send(b"2")
        await until(lambda: len(kept) == 2)
        kept[1].ack()
        await app.channel("orders").handled(second)
        with pytest.raises(TimeoutError, match=r"has not handled orders-0 offset 0 within 2 s"):
            await app.channel("orders").handled(first, timeout=2)


@in_virtual_time
async def test_a_dead_letter_counts_as_handled_when_it_is_written() -> None:
    writing = Writing(failure_strategy="dead-letter-queue")
    writing.go_on.set()
    async with running(writing.app) as test:
        await writing.channel.handled(await writing.write(b"bad"))
        assert len(test.records("dead-letter-topic-orders")) == 1


@in_virtual_time
async def test_filtered_records_and_those_before_the_start_are_past() -> None:
    app = own_app(filter=f"{__name__}:none_of_them", auto_offset_reset="latest")
    take_all(app)
    emitter, broker = app.emitter("own"), make_broker()
    broker.produce("orders", b"before")
    async with running(app, broker=broker):
        await app.channel("orders").handled(RecordMetadata("orders", 0, 0))
        await app.channel("orders").handled(await emitter.send(b"filtered"))
    await broker.close()


def none_of_them(message: Message[Any]) -> bool:
    return False


@in_virtual_time
async def test_a_gap_of_a_compacted_log_is_past_once_the_record_behind_it_was_read() -> None:
    app, kept, broker = own_app(), list[Message[bytes]](), make_broker()
    keep_messages(app, kept, ack="manual")
    for _ in range(3):
        broker.produce("orders", b"")
    broker.compact(tp(), [1])
    async with running(app, broker=broker):
        await until(lambda: len(kept) == 2)
        await app.channel("orders").handled(RecordMetadata("orders", 0, 1))
    await broker.close()


@pytest.mark.parametrize("kind", [make_broker, cooperative])
@in_virtual_time
async def test_a_partition_of_another_member_is_an_error_at_once(
    kind: Callable[[int], MemoryBroker],
) -> None:
    broker, first, second = kind(2), Writing(), Writing()
    async with running(first.app, broker=broker), joining(second.app, broker):
        await until(lambda: len(first.channel.assignment) == 1)
        (own,) = first.channel.assignment
        began = now()
        with pytest.raises(NotOwnerError, match=r"channel 'orders': orders-\d is not ours"):
            await first.channel.handled(await first.write(partition=1 - own.partition))
        assert now() - began < 1
        first.go_on.set()
        second.go_on.set()
        await first.channel.handled(await first.write(partition=own.partition))
    await broker.close()


@in_virtual_time
async def test_a_partition_that_is_taken_away_is_an_error() -> None:
    broker, first, second = make_broker(2), Writing(revoke_grace="1s"), Writing()
    async with running(first.app, broker=broker):
        waiting = [
            await first.waits(await first.write(partition=partition)) for partition in (0, 1)
        ]
        async with joining(second.app, broker):
            await until(lambda: any(wait.done() for wait in waiting), 20)
            first.go_on.set()
            second.go_on.set()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert sorted(type(outcome) for outcome in outcomes if outcome is not None) == [NotOwnerError]
    await broker.close()


@in_virtual_time
async def test_a_rebalance_that_brings_the_partition_back_is_waited_for() -> None:
    writing = Writing(revoke_grace="1s")
    async with running(writing.app) as test:
        waiting = await writing.waits(await writing.write())
        await rebalanced(test)
        assert not waiting.done()
        writing.go_on.set()
        await waiting


@in_virtual_time
async def test_each_absence_of_a_partition_is_timed_from_its_own_beginning() -> None:
    # The first member waits for the handler of the second one in each rebalance.
    broker, first, second = (
        make_broker(2),
        Writing(revoke_grace="100ms"),
        Writing(revoke_grace="4s"),
    )
    async with running(first.app, broker=broker) as test, joining(second.app, broker):
        written = [await first.write(partition=partition) for partition in (0, 1)]
        await until(lambda: first.began and second.began)
        [own] = first.channel.assignment
        waiting = await first.waits(written[own.partition])
        for _ in range(3):
            test.broker.rebalance("billing")
            await until(lambda: own not in first.channel.assignment, 20)
            gone_at = now()
            await until(lambda: own in first.channel.assignment, 20)
            assert 3 < now() - gone_at < 5
            assert not waiting.done()
        first.go_on.set()
        second.go_on.set()
        await waiting
    await broker.close()


@in_virtual_time
async def test_a_member_without_any_partition_says_so_after_five_seconds() -> None:
    broker, first, second = make_broker(), Writing(), Writing()
    async with running(first.app, broker=broker), joining(second.app, broker):
        idle = first if not first.channel.assignment else second
        began = now()
        with pytest.raises(NotOwnerError):
            await idle.channel.handled(await idle.write())
        assert now() - began == pytest.approx(5, abs=0.2)
        first.go_on.set()
        second.go_on.set()
    await broker.close()


@in_virtual_time
async def test_a_channel_that_fails_is_an_error_with_its_reason_and_one_that_restarts_is_not() -> (
    None
):
    writing = Writing()
    async with running(writing.app):
        waiting = await writing.waits(await writing.write(b"bad"))
        writing.go_on.set()
        with pytest.raises(ChannelClosedError, match=r"has failed before it has handled") as caught:
            await waiting
        assert "bad" in str(caught.value.__cause__)
    writing = Writing(restart={"backoff": "1s", "max_attempts": 1})
    async with running(writing.app):
        waiting = await writing.waits(await writing.write(b"bad"))
        writing.go_on.set()
        await until(lambda: len(writing.began) == 2)
        with pytest.raises(ChannelClosedError):
            await waiting
        assert len(writing.began) == 2


@in_virtual_time
async def test_a_stop_lets_a_handler_that_runs_end_and_tells_the_others() -> None:
    writing = Writing()
    async with running(writing.app):
        handling = await writing.waits(await writing.write())
        queued = await writing.waits(await writing.write())
        stopping = asyncio.create_task(writing.channel.stop())
        with pytest.raises(ChannelClosedError, match="has stopped before it has handled orders-0"):
            await queued
        assert not handling.done()
        writing.go_on.set()
        await handling
        await stopping
        with pytest.raises(ChannelClosedError, match="has stopped before"):
            await writing.channel.handled(RecordMetadata("orders", 0, 7))


@in_virtual_time
async def test_a_stop_of_the_application_leaves_nobody_waiting() -> None:
    writing = Writing(drain_timeout="1s")
    async with running(writing.app):
        waiting = [await writing.waits(await writing.write()) for _ in range(2)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ChannelClosedError] * 2


@in_virtual_time
async def test_a_caller_that_is_cancelled_leaves_the_others_waiting() -> None:
    writing = Writing()
    async with running(writing.app):
        confirmation = await writing.write()
        one, other = await writing.waits(confirmation), await writing.waits(confirmation)
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        writing.go_on.set()
        await other
        # Nothing looks any more.
        waits = writing.channel._handled_waits
        assert (waits._waiters, waits._timer) == ([], None)


@in_virtual_time
async def test_what_the_channel_cannot_handle_is_refused() -> None:
    app = App({"incoming": {"orders": {"assign": ["orders:0:2..4", "orders:0:6..9"]}}})
    take_all(app)
    async with running(app, partitions=2):
        handled: Any = app.channel("orders").handled
        for wrong in [("other", 0, 2), ("orders", 1, 2), ("orders", 0, 1), ("orders", 0, 5)]:
            with pytest.raises(ValueError, match=f"does not read {wrong[0]}-{wrong[1]}"):
                await handled(RecordMetadata(*wrong))
        with pytest.raises(ValueError, match="acks = 0"):
            await handled(RecordMetadata("orders", 0, -1))
        with pytest.raises(TypeError, match="takes the RecordMetadata"):
            await handled(("orders", 0, 2))
