"""The user's strings beside positions, in a running application: whoever commits, whatever happens
meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from reactive_kafka import App, Committed, Message, TopicPartition, TransientBrokerError
from reactive_kafka.errors import OutcomeUnknownError
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import keep_messages
from tests.app.helpers import (
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    rebalanced,
    running,
    send,
    tp,
    until,
)


def stored(test: TestApp) -> Committed | None:
    return test.broker.committed("billing").get(tp())


def history(broker: MemoryBroker) -> list[Committed]:
    """What was ever committed for orders-0, in order."""
    return [entry.offsets[tp()] for entry in broker.commits("billing") if tp() in entry.offsets]


def keeping(kept: list[Message[bytes]], **orders: Any) -> App:
    """An application that settles by hand."""
    app = make_app(
        **{"commit_interval": "1s", "revoke_grace": "100ms", "ordering": "unordered", **orders}
    )
    keep_messages(app, kept, ack="manual")

    return app


async def taken(test: TestApp, kept: list[Message[bytes]], count: int = 5) -> None:
    await send(test, *[b""] * count)
    await until(lambda: len(kept) == count)


@in_virtual_time
async def test_in_order_each_position_has_the_string_of_its_last_ack_and_a_later_one_has_none() -> (
    None
):
    app = make_app(commit_interval="1s")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.payload:
            await message.ack(metadata=message.payload.decode())

    async with running(app) as test:
        await send(test, b"one", b"two")
        await until(lambda: stored(test) == Committed(2, "two"))
        await send(test, b"")
        await until(lambda: stored(test) == Committed(3, ""))
        assert history(test.broker) == [Committed(2, "two"), Committed(3, "")]


@in_virtual_time
async def test_out_of_order_it_stands_beside_the_unchanged_position_at_the_next_tick() -> None:
    kept: list[Message[bytes]] = []
    async with running(keeping(kept)) as test:
        await taken(test, kept)
        assert await kept[3].ack(metadata="of three")
        await asyncio.sleep(3)
        assert history(test.broker) == [Committed(0, "of three")]
        kept[0].ack()
        await asyncio.sleep(2)
        kept[1].ack()
        await asyncio.sleep(2)
        assert history(test.broker)[1:] == [Committed(1, "of three"), Committed(2, "")]


@pytest.mark.parametrize(("strategy", "text"), [("current", "of zero"), ("exact", "of one")])
@in_virtual_time
async def test_current_takes_the_newest_and_exact_that_of_the_last_record(
    strategy: str, text: str
) -> None:
    kept: list[Message[bytes]] = []
    async with running(keeping(kept, offset_metadata_strategy=strategy)) as test:
        await taken(test, kept)
        kept[1].ack(metadata="of one")
        kept[0].ack(metadata="of zero")
        await until(lambda: stored(test) == Committed(2, text))


@in_virtual_time
async def test_in_a_partitions_order_both_come_to_the_same() -> None:
    kept: list[Message[bytes]] = []
    async with running(
        keeping(kept, ordering="partition", offset_metadata_strategy="exact")
    ) as test:
        await taken(test, kept)
        kept[1].ack(metadata="of one")
        kept[0].ack(metadata="of zero")
        await until(lambda: stored(test) == Committed(2, "of zero"))


@in_virtual_time
async def test_latest_commits_it_with_the_ack_or_else_at_the_next_tick() -> None:
    kept: list[Message[bytes]] = []
    async with running(keeping(kept, commit_strategy="latest")) as test:
        await taken(test, kept)
        assert await kept[0].ack(metadata="of zero")
        assert stored(test) == Committed(1, "of zero")
        assert await kept[3].ack(metadata="of three")
        assert stored(test) == Committed(1, "of zero")
        await until(lambda: stored(test) == Committed(1, "of three"), 2)


@in_virtual_time
async def test_one_that_is_too_long_is_an_error_at_the_call_and_the_record_has_no_verdict() -> None:
    kept: list[Message[bytes]] = []
    async with running(keeping(kept)) as test:
        await taken(test, kept, 1)
        with pytest.raises(ValueError, match="4097 UTF-16 units is too long"):
            kept[0].ack(metadata="x" * 4097)
        assert facts(test).partitions[0].in_flight == 1
        assert await kept[0].ack(metadata="x" * 4096)
        await until(lambda: stored(test) == Committed(1, "x" * 4096))


@in_virtual_time
async def test_of_an_ack_that_comes_second_the_string_is_dropped() -> None:
    kept: list[Message[bytes]] = []
    async with running(keeping(kept)) as test:
        await taken(test, kept, 1)
        assert await kept[0].ack(metadata="first")
        assert not await kept[0].ack(metadata="second")
        await until(lambda: stored(test) == Committed(1, "first"))


async def test_any_thread_may_bring_one() -> None:
    app = make_app(commit_interval="50ms")
    refused: list[BaseException] = []

    @app.incoming("orders", ack="manual")
    def handler(message: Message[bytes]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        try:
            message.ack(metadata="x" * 5000)
        except ValueError as error:
            refused.append(error)
        message.ack(metadata="from a thread")

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: stored(test) == Committed(1, "from a thread"))
        assert len(refused) == 1


@in_virtual_time
async def test_what_waits_for_the_next_position_goes_with_a_dead_letter_too() -> None:
    app = make_app(commit_interval="1s", failure_strategy="dead-letter-queue")

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        raise RuntimeError("no")

    async with running(app) as test:
        await asyncio.sleep(1)
        assert app.channel("orders").store_offset_metadata(tp(), "why it failed")
        await asyncio.sleep(3)
        assert stored(test) is None, "a tick without a new position commits nothing"
        await send(test, b"")
        await until(lambda: stored(test) == Committed(1, "why it failed"))


@pytest.mark.parametrize("error", [TransientBrokerError("away"), OutcomeUnknownError("no answer")])
@in_virtual_time
async def test_a_commit_that_fails_uses_nothing_up(error: TransientBrokerError) -> None:
    kept: list[Message[bytes]] = []
    async with running(keeping(kept)) as test:
        await taken(test, kept)
        test.broker.fail_next("commit", error, times=3)
        kept[0].ack(metadata="of zero")
        await until(lambda: stored(test) == Committed(1, "of zero"))
        assert sum(facts(test).commits.values()) >= 4


@in_virtual_time
async def test_straight_back_what_was_acked_between_counts_with_its_string() -> None:
    kept: list[Message[bytes]] = []
    answers: list[asyncio.Future[bool]] = []
    app = keeping(kept)

    async with running(app) as test:
        await taken(test, kept)
        asking = test.broker.hold("committed")
        test.broker.rebalance("billing")
        await asking.arrived()
        answers.append(kept[2].ack(metadata="between"))
        assert not answers[0].done()
        asking.release()
        assert await answers[0]
        await until(lambda: stored(test) == Committed(0, "between"))


@in_virtual_time
async def test_a_seek_leaves_the_strings_of_acks_behind() -> None:
    kept: list[Message[bytes]] = []
    app = keeping(kept)
    async with running(app) as test:
        await taken(test, kept)
        kept[3].ack(metadata="of three")
        await app.channel("orders").seek(tp(), 2)
        assert not await kept[0].ack(metadata="too late")
        await until(lambda: len(kept) == 8)
        kept[5].ack()
        await until(lambda: stored(test) == Committed(3, ""))
        assert history(test.broker) == [Committed(3, "")]


@pytest.mark.parametrize("at", ["hook", "looked up"])
@in_virtual_time
async def test_straight_back_what_waits_for_a_new_position_outlives_a_seek_at_the_assignment(
    at: str,
) -> None:
    kept: list[Message[bytes]] = []
    app = keeping(kept)
    rebalances: list[int] = []

    @app.on_assigned("orders")
    async def hook(partitions: frozenset[TopicPartition]) -> None:
        rebalances.append(1)
        if at == "hook" and len(rebalances) == 2:
            await app.channel("orders").seek(tp(), 2)

    async with running(app) as test:
        await taken(test, kept)
        assert app.channel("orders").store_offset_metadata(tp(), "of before")
        hold = test.broker.hold("committed")
        test.broker.rebalance("billing")
        await hold.arrived()
        seek = (
            asyncio.create_task(app.channel("orders").seek(tp(), 2)) if at == "looked up" else None
        )
        await asyncio.sleep(0.01)
        hold.release()
        if seek is not None:
            await seek
        await until(lambda: len(kept) == 8)
        kept[5].ack()
        await until(lambda: stored(test) == Committed(3, "of before"))
        kept[6].ack()
        await until(lambda: stored(test) == Committed(4, ""))


@in_virtual_time
async def test_what_is_stored_at_the_assignment_replaces_what_waited_before_it() -> None:
    kept: list[Message[bytes]] = []
    app = keeping(kept)
    rebalances: list[int] = []

    @app.on_assigned("orders")
    async def hook(partitions: frozenset[TopicPartition]) -> None:
        rebalances.append(1)
        if len(rebalances) == 2:
            assert app.channel("orders").store_offset_metadata(tp(), "newer")
            await app.channel("orders").seek(tp(), 2)

    async with running(app) as test:
        await taken(test, kept)
        assert app.channel("orders").store_offset_metadata(tp(), "of before")
        await rebalanced(test)
        await until(lambda: len(kept) == 8)
        kept[5].ack()
        await until(lambda: stored(test) == Committed(3, "newer"))


@in_virtual_time
async def test_the_next_owner_finds_it_and_leaves_it_there_until_the_position_moves() -> None:
    broker = make_broker()
    kept: list[Message[bytes]] = []
    async with running(keeping(kept), broker=broker) as test:
        await taken(test, kept)
        kept[0].ack(metadata="handed over")
    assert broker.committed("billing") == {tp(): Committed(1, "handed over")}
    kept.clear()
    async with running(keeping(kept), broker=broker) as test:
        await until(lambda: len(kept) == 4)
        await rebalanced(test)
        await asyncio.sleep(3)
        assert stored(test) == Committed(1, "handed over")
        kept[0].ack()
        await until(lambda: stored(test) == Committed(2, ""))
    await broker.close()


@in_virtual_time
async def test_a_broker_that_takes_less_costs_the_string_and_never_the_position() -> None:
    kept: list[Message[bytes]] = []
    async with running(keeping(kept)) as test:
        test.broker.limit_metadata("billing", 100)
        await taken(test, kept)
        kept[0].ack(metadata="x" * 300)
        await until(lambda: stored(test) == Committed(1, ""))
        assert facts(test).metadata_dropped == 1
        assert facts(test).not_ready == ()
        assert "the broker takes less than 300 units" in facts(test).warnings[0]
        kept[1].ack(metadata="y" * 90)
        await until(lambda: stored(test) == Committed(2, "y" * 90))
        assert facts(test).metadata_dropped == 1


@in_virtual_time
async def test_kept_acks_share_the_string_and_give_way_on_a_broker_that_takes_less() -> None:
    kept: list[Message[bytes]] = []
    async with running(keeping(kept, keep_out_of_order_acks=True)) as test:
        test.broker.limit_metadata("billing", 20)
        await taken(test, kept)
        kept[3].ack(metadata="of three")
        assert facts(test).partitions[0].metadata_units > 20
        await until(lambda: stored(test) == Committed(0, "of three"))
        kept[0].ack()
        await until(lambda: stored(test) == Committed(1, "of three"))
        assert facts(test).metadata_dropped == 0
