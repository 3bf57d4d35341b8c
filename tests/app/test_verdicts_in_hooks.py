"""Verdicts on earlier messages in ``on_assigned``: answered at once, while nothing new is handled
before it ends.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka import App, Message, TopicPartition
from reactive_kafka.errors import NotOwnerError, TransientBrokerError
from reactive_kafka.events import HookFailed
from reactive_kafka.testing import TestApp
from tests.app.checkpoints import Rows, app_on
from tests.app.helpers import (
    Recorder,
    committed,
    in_virtual_time,
    make_app,
    make_broker,
    now,
    positions,
    rebalanced,
    running,
    send,
    tp,
    until,
)

Partitions = frozenset[TopicPartition]


class Keeps:
    """An application that keeps its messages, and does something with those of before in its second
    assignment.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self.messages: list[Message[bytes]] = []
        self.story: list[Any] = []
        self.took_s = -1.0
        self.assigned = 0

        @app.incoming("orders", ack="manual")
        async def handler(message: Message[bytes]) -> None:
            self.story.append(message.offset)
            self.messages.append(message)

        @app.on_assigned("orders")
        async def assigned(partitions: Partitions) -> None:
            self.assigned += 1
            if self.assigned != 2:
                return
            began = now()
            self.story.append("hook")
            await self.do()
            self.took_s = now() - began
            await asyncio.sleep(5)
            self.story.append("end of hook")

    async def do(self) -> None:
        """What the hook does; each test has its own."""
        self.story.append(await self.messages[0].ack())


def app_of(kind: str, recorder: Recorder, **more: Any) -> App:
    orders = {
        "revoke_grace": "100ms",
        "drain_timeout": "100ms",
        "unprocessed_record_max_age": 0,
        **more,
    }
    if kind == "checkpoint":
        return app_on(Rows(), recorder, **orders)
    return make_app(recorder, **{"commit_strategy": kind, "commit_interval": "1s", **orders})


KINDS = pytest.mark.parametrize("kind", ["throttled", "latest", "checkpoint"])


@KINDS
@in_virtual_time
async def test_an_ack_of_before_is_true_at_once_where_the_partition_came_straight_back(
    kind: str,
) -> None:
    recorder = Recorder()
    keeps = Keeps(app_of(kind, recorder))
    async with running(keeps.app) as test:
        await send(test, b"0", b"1")
        await until(lambda: len(keeps.messages) == 2)
        await rebalanced(test)
        keeps.messages[1].ack()
        await test.settled()
    assert keeps.story == [0, 1, "hook", True, "end of hook"]
    assert keeps.took_s < 1
    assert recorder.of(HookFailed) == []


@KINDS
@in_virtual_time
async def test_an_ack_of_before_is_false_at_once_where_the_partition_has_gone(kind: str) -> None:
    recorder, broker = Recorder(), make_broker(2)
    keeps = Keeps(app_of(kind, recorder))
    async with running(keeps.app, broker=broker) as test:
        await send(test, b"", partition=0)
        await send(test, b"", partition=1)
        await until(lambda: len(keeps.messages) == 2)
        answers: dict[int, bool] = {}

        async def do() -> None:
            answers.update({message.partition: await message.ack() for message in keeps.messages})

        keeps.do = do  # type: ignore[method-assign]
        other = app_of(kind, Recorder())
        other.incoming("orders", ack="manual")(taking_nothing)
        async with TestApp(other, broker=broker):
            await until(lambda: keeps.assigned >= 2 and keeps.app.channel("orders").is_ready, 60)
            (kept,) = keeps.app.channel("orders").assignment
            assert answers == {kept.partition: True, 1 - kept.partition: False}
            assert keeps.took_s < 1
    assert recorder.of(HookFailed) == []


async def taking_nothing(message: Message[bytes]) -> None:
    """A handler that leaves its messages as they are."""


@KINDS
@in_virtual_time
async def test_an_ack_of_before_is_false_at_once_where_another_has_moved_the_groups_position(
    kind: str,
) -> None:
    recorder = Recorder()
    keeps = Keeps(app_of(kind, recorder))
    async with running(keeps.app) as test:
        await send(test, b"0", b"1", b"2")
        await until(lambda: len(keeps.messages) == 3)
        generation = test.broker.generation("billing")
        test.broker.rebalance("billing")
        await until(lambda: test.broker.generation("billing") > generation, 60)
        # Another generation between: somebody may have had it.
        test.broker.rebalance("billing")
        await until(lambda: keeps.assigned >= 2 and keeps.app.channel("orders").is_ready, 60)
        assert keeps.took_s < 1
    assert recorder.of(HookFailed) == []


@KINDS
@in_virtual_time
async def test_nacks_commits_and_committed_complete_in_the_hook_too_and_then_reading_goes_on(
    kind: str,
) -> None:
    recorder = Recorder()
    keeps = Keeps(app_of(kind, recorder, failure_strategy="dead-letter-queue"))
    channel = keeps.app.channel

    async def do() -> None:
        first, second, third = keeps.messages
        keeps.story.append(await first.nack(ValueError("bad")))
        await channel("orders").commit()
        keeps.story.append((await channel("orders").committed())[tp()])
        assert await second.ack()
        await second.committed()
        third.ack()
        await channel("orders").commit({tp(): 3})
        keeps.story.append((await channel("orders").committed())[tp()])
        test.broker.produce("orders", b"", partition=0)

    keeps.do = do  # type: ignore[method-assign]
    async with running(keeps.app) as test:
        await send(test, b"0", b"1", b"2")
        await until(lambda: len(keeps.messages) == 3)
        await rebalanced(test)
        await until(lambda: len(keeps.messages) == 4)
    assert keeps.story == [0, 1, 2, "hook", True, 1, 3, "end of hook", 3]
    assert keeps.took_s < 3
    assert recorder.of(HookFailed) == []


@in_virtual_time
async def test_a_seek_in_the_hook_after_such_an_ack_says_where_reading_begins() -> None:
    recorder = Recorder()
    keeps = Keeps(app_of("throttled", recorder))

    async def do() -> None:
        keeps.story.append(await keeps.messages[0].ack())
        await keeps.app.channel("orders").seek(tp(), 1)
        await asyncio.sleep(1)

    keeps.do = do  # type: ignore[method-assign]
    async with running(keeps.app) as test:
        await send(test, b"0", b"1", b"2")
        await until(lambda: len(keeps.messages) == 3)
        await rebalanced(test)
        await until(lambda: len(keeps.messages) == 5)
        assert not await keeps.messages[1].ack(), "its records are read again"
        for message in keeps.messages[3:]:
            assert await message.ack()
        await test.settled()
        assert positions(test.broker)[-1] == 3
    assert keeps.story == [0, 1, 2, "hook", True, "end of hook", 1, 2]


@in_virtual_time
async def test_a_seek_in_the_hook_before_such_an_ack_makes_it_false() -> None:
    recorder = Recorder()
    keeps = Keeps(app_of("throttled", recorder))

    async def do() -> None:
        await keeps.app.channel("orders").seek(tp(), "end")
        keeps.story.append(keeps.messages[0].ack())

    keeps.do = do  # type: ignore[method-assign]
    async with running(keeps.app) as test:
        await send(test, b"0", b"1")
        await until(lambda: len(keeps.messages) == 2)
        await rebalanced(test)
        assert committed(test) is None
    *_, answer, end = keeps.story
    assert end == "end of hook"
    assert answer.done()


@in_virtual_time
async def test_where_the_group_cannot_be_asked_at_first_it_is_asked_again_while_the_hook_runs() -> (
    None
):
    recorder = Recorder()
    keeps = Keeps(app_of("throttled", recorder))
    async with running(keeps.app) as test:
        await send(test, b"0", b"1")
        await until(lambda: len(keeps.messages) == 2)
        test.broker.fail_next("committed", TransientBrokerError("no coordinator"), 3)
        await rebalanced(test)
        keeps.messages[1].ack()
        await test.settled()
    assert keeps.story == [0, 1, "hook", True, "end of hook"]
    assert keeps.took_s < 10
    assert recorder.of(HookFailed) == []


@in_virtual_time
async def test_what_came_straight_back_and_is_taken_away_in_the_hook_is_told_to_who_waits() -> None:
    recorder = Recorder()
    keeps = Keeps(app_of("throttled", recorder))

    async def do() -> None:
        waiting = keeps.messages[0].committed()
        (member,) = test.broker.members("billing")
        test.broker.expire("billing", member)
        with pytest.raises(NotOwnerError):
            async with asyncio.timeout(20):
                await waiting

    keeps.do = do  # type: ignore[method-assign]
    async with running(keeps.app) as test:
        await send(test, b"0")
        await until(lambda: keeps.messages)
        await rebalanced(test)
        await until(lambda: keeps.assigned >= 3, 120)
        await until(lambda: len(keeps.messages) == 2, 60)
