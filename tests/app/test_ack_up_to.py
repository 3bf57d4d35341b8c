"""``channel.ack_up_to``: a message and all before it in its partition."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from reactive_kafka import App, Message
from tests.app.handlers import Kept
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    positions,
    rebalanced,
    running,
    send,
    settle_down,
    tp,
    until,
)


def keeping(**orders: Any) -> Kept:
    return Kept(**{"commit_interval": "100ms", "revoke_grace": "50ms", **orders})


@in_virtual_time
async def test_it_settles_the_message_and_those_before_it_and_none_behind() -> None:
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, *[b""] * 6)
        await kept.have(6)
        assert await kept.up_to(3) is True
        await until(lambda: committed(test) == 4)
        assert facts(test).partitions[0].in_flight == 2
        assert [await message.ack() for message in kept.messages] == [False] * 4 + [True] * 2
        await until(lambda: committed(test) == 6)


@in_virtual_time
async def test_it_is_true_only_where_it_settles_something() -> None:
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, *[b""] * 3)
        await kept.have(3)
        assert await kept.messages[2].ack()
        # Two before it were open.
        assert await kept.up_to(2) is True
        assert await kept.up_to(2) is False
        assert await kept.up_to(0) is False


@in_virtual_time
async def test_the_other_partitions_stay_as_they_are() -> None:
    kept = keeping()
    async with running(kept.app, partitions=2) as test:
        await send(test, b"", b"", partition=0)
        await send(test, b"", b"", partition=1)
        await kept.have(4)
        last = next(
            message for message in kept.messages if (message.partition, message.offset) == (1, 1)
        )
        assert await kept.app.channel("orders").ack_up_to(last)
        await until(lambda: committed(test, 1) == 2)
        assert committed(test, 0) is None
        for message in kept.messages:
            message.ack()


@in_virtual_time
async def test_what_was_nacked_before_it_stays_with_its_failure_strategy() -> None:
    kept = keeping(failure_strategy="dead-letter-queue")
    broker = make_broker(1)
    async with running(kept.app, broker=broker) as test:
        await send(test, *[b""] * 3)
        await kept.have(3)
        broker.topic_away("dead-letter-topic-orders")
        verdict = kept.messages[1].nack(ValueError("bad"))
        assert await kept.up_to(2)
        await asyncio.sleep(5)
        assert committed(test) == 1, "nothing passes the record whose letter is not written"
        broker.topic_back("dead-letter-topic-orders")
        assert await verdict
        await until(lambda: committed(test) == 3)
        assert len(test.records("dead-letter-topic-orders")) == 1


@pytest.mark.parametrize("ordering", ["key", "unordered"])
@in_virtual_time
async def test_what_still_waits_for_a_handler_before_it_is_left_to_be_handled(
    ordering: str,
) -> None:
    app, seen, go_on = (
        make_app(ordering=ordering, concurrency=2, commit_interval="100ms"),
        list[int](),
        asyncio.Event(),
    )

    @app.incoming("orders", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        if message.offset == 0:
            await go_on.wait()
        if message.offset == 2:
            assert await app.channel("orders").ack_up_to(message)
        if message.offset in (1, 3):
            await message.ack()

    async with running(app) as test:
        for key in ("a", "a", "b", "b"):
            await test.send("orders", b"", key=key, partition=0)
        if ordering == "key":
            # 1 waits behind 0, and is not passed over.
            await until(lambda: seen == [0, 2, 3] and committed(test) == 1)
        go_on.set()
        await test.settled()
    assert sorted(seen) == [0, 1, 2, 3]


@in_virtual_time
async def test_between_a_revocation_and_the_assignment_it_counts_if_the_partition_comes_straight_back() -> (
    None
):
    kept = keeping()
    broker = make_broker(1)
    async with running(kept.app, broker=broker) as test:
        await send(test, *[b""] * 3)
        await kept.have(3)
        held = broker.hold("committed")
        broker.rebalance("billing")
        # Revoked, assigned, and nobody knows yet whether it came straight back.
        await held.arrived()
        answer = kept.up_to(1)
        await settle_down()
        assert not answer.done()
        held.release()
        assert await answer is True
        await until(lambda: committed(test) == 2)
        assert len(kept.messages) == 3, "nothing is delivered again"
        kept.up_to(2)


@in_virtual_time
async def test_after_the_partition_has_gone_and_after_a_seek_it_is_false() -> None:
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, *[b""] * 3)
        await kept.have(3)
        await kept.app.channel("orders").seek(tp(), 1)
        assert await kept.up_to(2) is False
        # 1 and 2 again.
        await kept.have(5)
        assert positions(test.broker) == []
        assert await kept.up_to(4) is True
        await until(lambda: committed(test) == 3)
        await rebalanced(test)
    assert await kept.messages[4].ack() is False


async def test_it_may_be_called_from_any_thread() -> None:
    app, answers = make_app(), list[tuple[bool, bool]]()
    ours = threading.get_ident()

    @app.incoming("orders", ack="manual")
    def handler(message: Message[bytes]) -> None:
        if message.offset == 2:
            verdict: Any = app.channel("orders").ack_up_to(message)
            answers.append((threading.get_ident() != ours, verdict.result(5)))

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await test.settled()
    assert answers == [(True, True)]


@in_virtual_time
async def test_latest_confirms_what_can_be_committed_by_then() -> None:
    kept = keeping(commit_strategy="latest")
    async with running(kept.app) as test:
        await send(test, *[b""] * 3)
        await kept.have(3)
        assert await kept.up_to(1) is True
        assert committed(test) == 2
        kept.up_to(2)


@in_virtual_time
async def test_metadata_goes_with_the_position_and_too_much_of_it_settles_nothing() -> None:
    kept = keeping()
    async with running(kept.app) as test:
        await send(test, *[b""] * 2)
        await kept.have(2)
        with pytest.raises(ValueError, match="too long"):
            kept.up_to(1, "x" * 4097)
        assert facts(test).partitions[0].in_flight == 2
        assert await kept.up_to(1, "stage two")
        await until(lambda: committed(test) == 2)
        assert await kept.app.channel("orders").offset_metadata(tp()) == "stage two"


@in_virtual_time
async def test_what_is_no_message_of_the_channel_is_refused() -> None:
    """Row E5 of the faults."""
    kept = keeping()
    other = App({"incoming": {"views": {"group_id": "viewers", "auto_offset_reset": "earliest"}}})
    seen: list[Message[bytes]] = []

    @other.incoming("views", ack="manual")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message)

    async with running(kept.app) as test, running(other, broker=make_broker()) as views:
        with pytest.raises(TypeError, match="a message of this channel, not int"):
            test.app.channel("orders").ack_up_to(3)  # type: ignore[arg-type]
        await views.send("views", b"")
        await until(lambda: seen)
        with pytest.raises(
            ValueError, match="a message of channel 'views' cannot be acked by 'orders'"
        ):
            test.app.channel("orders").ack_up_to(seen[0])
        await seen[0].ack()
