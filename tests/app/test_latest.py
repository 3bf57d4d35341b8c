"""``commit_strategy = "latest"``: each ack commits, and its awaitable is complete when the broker
has said so.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import App, Batch, IncomingSettings, Message, Progress
from reactive_kafka.errors import OutcomeUnknownError, TransientBrokerError
from tests.app.handlers import keep_messages, note_offsets, take_all
from tests.app.helpers import (
    committed,
    facts,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    rebalanced,
    running,
    send,
    settle_down,
    tp,
    until,
)


@in_virtual_time
async def test_each_ack_is_committed_before_the_next_record_is_handled() -> None:
    app, broker = make_app(commit_strategy="latest", commit_interval="1h"), make_broker()
    stored: list[int] = []

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        stored.append(max(positions(broker), default=0))

    async with running(app, broker=broker) as test:
        await send(test, b"", b"", b"", b"")
        await until(lambda: committed(test) == 4)
        assert positions(test.broker)[-4:] == [1, 2, 3, 4]
    await broker.close()
    assert stored == [0, 1, 2, 3]


@in_virtual_time
async def test_an_ack_by_hand_is_complete_when_the_broker_has_confirmed() -> None:
    app, story = make_app(commit_strategy="latest", commit_interval="1h", ack="manual"), list[Any]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        future = message.ack()
        story.append(future.done())
        story.append(await future)
        story.append(await message.ack())

    async with running(app) as test:
        hold = test.broker.hold("commit", answer=True)
        await send(test, b"")
        await hold.arrived()
        await settle_down()
        assert story == [False]
        hold.release()
        await until(lambda: len(story) == 3)
    assert story == [False, True, False]


@pytest.mark.parametrize("unsafe", [False, True])
@in_virtual_time
async def test_it_passes_an_unsettled_record_only_where_that_was_asked_for(unsafe: bool) -> None:
    app, messages = (
        make_app(
            commit_strategy="latest",
            commit_latest_unsafe=unsafe,
            ack="manual",
            commit_interval="1h",
        ),
        list[Message[bytes]](),
    )
    keep_messages(app, messages)

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: len(messages) == 3)
        assert await messages[0].ack()
        assert committed(test) == 1
        assert await messages[2].ack(), "an ack behind an unsettled record waits for nobody"
        await asyncio.sleep(1)
        assert committed(test) == (3 if unsafe else 1)
        assert await messages[1].ack()
        await until(lambda: committed(test) == 3)


@in_virtual_time
async def test_an_unsafe_ack_of_a_delayed_retry_waits_for_no_position_that_is_not_committed() -> (
    None
):
    app = make_app(
        commit_strategy="latest",
        commit_latest_unsafe=True,
        commit_interval="1h",
        ack="manual",
        ordering="unordered",
        concurrency=1,
        failure_strategy="delayed-retry-topic",
        delayed_retry={"topics": ["orders_retry_1000"]},
    )
    retried, answers = list[Message[bytes]](), list[bool]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        if message.topic == "orders":
            raise ValueError("not now")
        retried.append(message)
        if len(retried) == 2:
            answers.append(await message.ack())

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: len(retried) == 3)
        assert answers == [True], "one before it is unsettled, and nothing can be confirmed now"
        assert await retried[0].ack()
        assert await retried[2].ack()
        stored, group = tp(topic="orders_retry_1000"), "kafka-delayed-retry-topic-billing"
        await until(lambda: test.broker.committed(group)[stored].offset == 3)


@in_virtual_time
async def test_acks_while_a_commit_is_on_its_way_go_together_with_the_next() -> None:
    app, messages = (
        make_app(commit_strategy="latest", ack="manual", commit_interval="1h"),
        list[Message[bytes]](),
    )
    keep_messages(app, messages)

    async with running(app) as test:
        await send(test, *[b""] * 10)
        await until(lambda: len(messages) == 10)
        before = len(positions(test.broker))
        hold = test.broker.hold("commit")
        first = messages[0].ack()
        await hold.arrived()
        others = [message.ack() for message in messages[1:]]
        hold.release()
        assert await asyncio.gather(first, *others) == [True] * 10
        assert positions(test.broker)[before:] == [1, 10]


@pytest.mark.parametrize(
    "error", [TransientBrokerError("no coordinator"), OutcomeUnknownError("no answer")]
)
@in_virtual_time
async def test_a_failed_commit_is_tried_again_soon_and_its_ack_waits_for_that(
    error: TransientBrokerError,
) -> None:
    app, done = make_app(commit_strategy="latest", commit_interval="1h"), list[float]()

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        done.append(now())

    async with running(app) as test:
        test.broker.fail_next("commit", error, times=3)
        await send(test, b"", b"")
        await until(lambda: committed(test) == 2, 30)
        assert facts(test).commits["ok"] >= 2
    assert done[1] - done[0] < 10


@in_virtual_time
async def test_nothing_is_repeated_over_a_rebalance() -> None:
    app, seen = make_app(commit_strategy="latest", commit_interval="1h"), list[int]()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)
        await asyncio.sleep(0.01)

    async with running(app) as test:
        await send(test, *[b""] * 20)
        await until(lambda: len(seen) > 5)
        await rebalanced(test)
        await test.settled()
        assert committed(test) == 20
    assert seen == list(range(20))


@in_virtual_time
async def test_a_batch_is_committed_as_one() -> None:
    app = make_app(commit_strategy="latest", commit_interval="1h", batch_max_wait="10ms")

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None: ...

    async with running(app) as test:
        await send(test, b"", b"", b"")
        await until(lambda: committed(test) == 3)
        assert [position for position in positions(test.broker) if position] == [3]


@in_virtual_time
async def test_what_a_handler_returns_is_written_and_then_committed() -> None:
    app = make_app(commit_strategy="latest", commit_interval="1h")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        return value

    async with running(app) as test:
        await send(test, b"a", b"b")
        await until(lambda: committed(test) == 2)
        assert [record.value for record in test.records("invoices")] == [b"a", b"b"]


class EveryThird:
    """A commit strategy of an application: only positions that three divides."""

    interval_s: float | None = None
    commits_at_ack = True

    def position(self, progress: Progress, now: float) -> int | None:
        # Far too much: what is not safe is never committed.
        return progress.safe - progress.safe % 3 + 300


every_third = EveryThird()


class Below(EveryThird):
    def __init__(self, settings: IncomingSettings) -> None:
        assert settings.name == "orders"

    def position(self, progress: Progress, now: float) -> int | None:
        return progress.safe - progress.safe % 3


@in_virtual_time
async def test_a_strategy_of_the_application_commits_by_its_own_rule() -> None:
    app = make_app(commit_strategy="tests.app.test_latest:Below")
    take_all(app)

    async with running(app) as test:
        await send(test, *[b""] * 8)
        await until(lambda: committed(test) == 6)
        await asyncio.sleep(5)
        assert committed(test) == 6


class Odd(EveryThird):
    def __init__(self, settings: IncomingSettings) -> None: ...

    def position(self, progress: Progress, now: float) -> int | None:
        if progress.partition.topic == "orders":
            raise asyncio.CancelledError
        return progress.safe


@in_virtual_time
async def test_a_strategy_that_raises_what_is_no_exception_fails_its_channel_and_no_other() -> None:
    orders = {"group_id": "billing", "auto_offset_reset": "earliest"}
    app = App(
        {
            "incoming": {
                "orders": {**orders, "commit_strategy": "tests.app.test_latest:Odd"},
                "returns": {**orders},
            }
        }
    )

    @app.incoming("orders")
    @app.incoming("returns")
    async def handler(value: bytes) -> None: ...

    async with running(app) as test:
        await send(test, b"")
        await until(lambda: facts(test).state == "failed")
        assert "CancelledError" in str(facts(test).reason)
        await test.send("returns", b"")
        await until(lambda: test.committed("returns") == {tp(0, "returns"): 1})


@in_virtual_time
async def test_a_strategy_of_the_application_cannot_commit_what_is_not_settled() -> None:
    app, messages = (
        make_app(commit_strategy="tests.app.test_latest:every_third", ack="manual"),
        list[Message[bytes]](),
    )
    keep_messages(app, messages)

    async with running(app) as test:
        await send(test, *[b""] * 8)
        await until(lambda: len(messages) == 8)
        messages[0].ack()
        messages[5].ack()
        await asyncio.sleep(5)
        assert committed(test) == 1


@in_virtual_time
async def test_an_ack_whose_commit_was_stored_unheard_is_complete_when_the_partition_comes_straight_back() -> (
    None
):
    app, seen = (
        make_app(commit_strategy="latest", commit_interval="1h", revoke_grace="1s"),
        list[int](),
    )
    note_offsets(app, seen)

    async with running(app) as test:
        await until(lambda: test.app.channel("orders").is_ready)
        hold = test.broker.hold("commit", answer=True)
        await send(test, b"", b"")
        await hold.arrived()
        await rebalanced(test)
        await until(lambda: committed(test) == 2, 60)
    assert seen == [0, 1]
