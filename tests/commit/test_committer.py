"""The last commits of an assignment are tried until a deadline, and not a moment longer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.commit.committer import Committer
from reactive_kafka.errors import NotOwnerError, TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition
from tests.commit.test_engine import A, engine_with


class Broker:
    """Answers each commit as the test says; the only part of a consumer that is asked."""

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.requests: list[Mapping[TopicPartition, Committed]] = []
        self._answer = answer

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        self.requests.append(offsets)
        await self._answer(len(self.requests))


def committer_with(answer: Callable[[int], Any]) -> tuple[Committer, Broker]:
    """A committer with one settled record to commit."""
    engine = engine_with(A)
    engine.trackers[A].settle(0)
    broker = Broker(answer)
    committer = Committer("orders", engine, 5.0, SYSTEM_CLOCK, Events(), lambda tracker, position: None)
    committer.consumer = broker  # type: ignore[assignment]
    return committer, broker


class Events:
    """An observer that nobody asks."""

    def on(self, event: object) -> None:
        pass


async def flushed(committer: Committer, within_s: float) -> tuple[bool, float]:
    """What a flush says, and how long it took in seconds."""
    began = SYSTEM_CLOCK.monotonic()
    said = await committer.flush(began + within_s)
    return said, SYSTEM_CLOCK.monotonic() - began


async def test_a_commit_that_is_not_answered_is_left_at_the_deadline() -> None:
    committer, broker = committer_with(lambda _: asyncio.Event().wait())
    said, took_s = await flushed(committer, 0.2)
    assert not said
    assert 0.2 <= took_s < 1.0
    assert broker.requests == [{A: Committed(1)}]


async def test_a_commit_that_fails_is_tried_again_before_the_deadline() -> None:
    async def fails_once(attempt: int) -> None:
        if attempt == 1:
            raise TransientBrokerError("coordinator moved")

    committer, broker = committer_with(fails_once)
    assert (await flushed(committer, 5.0))[0]
    assert broker.requests == [{A: Committed(1)}] * 2


async def test_nothing_is_tried_again_for_partitions_that_are_not_ours_any_more() -> None:
    async def refuses(_: int) -> None:
        raise NotOwnerError("illegal generation")

    committer, broker = committer_with(refuses)
    assert not (await flushed(committer, 5.0))[0]
    assert len(broker.requests) == 1
    assert not committer.is_owner
