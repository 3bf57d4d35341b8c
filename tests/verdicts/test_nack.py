"""What becomes of nacks, on the channel's own parts: with strategies that answer at once, and in
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ChannelClosedError
from reactive_kafka.failure.decision import Decision, FailedRecord, Skip, Write
from reactive_kafka.observe.events import Event
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.testing import record
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.hook import NoHook
from reactive_kafka.verdicts.message import Message, new_message
from reactive_kafka.verdicts.nack import VerdictParts
from reactive_kafka.verdicts.partition import verdicts_of


class Skips:
    """Strategies that leave every record out, and have decided so before they return."""

    not_ready = ()

    def strategy_of(self, reason: BaseException) -> str:
        return "ignore"

    def decide(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        return Skip()

    def dead_letter(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        return Skip()

    def later(self, failed: FailedRecord, topic: str) -> Decision:
        return Skip()

    async def write(self, write: Write, settled: object = None) -> bool:
        return False


class Nobody:
    def on(self, event: Event) -> None: ...


def settlements(
    strategies: Skips | None = None, spawn: Spawn = lambda work, name, context=None: None
) -> Acknowledger:
    totals = PartitionTotals()
    parts = VerdictParts(
        settings=IncomingSettings(name="orders", topics=("orders",), group_id="billing", client={}),
        clock=SYSTEM_CLOCK,
        observer=Nobody(),
        totals=lambda partition: totals,
        hook=NoHook("orders"),
        spawn=spawn,
        fail=lambda reason: True,
        progress=lambda: None,
        request_commit=lambda tracker: tracker.committable,
        blocks_on=lambda tracker, index, verdict: None,
    )
    return Acknowledger(parts, Skips() if strategies is None else strategies)


async def test_poison_records_whose_dead_letters_are_decided_at_once_keep_nobody_waiting() -> None:
    loop, escaped = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda loop, context: escaped.append(context))
    verdicts, tracker = settlements(), OffsetTracker(TopicPartition("orders", 0), 0)
    verdicts.begins(tracker, "orders")
    tracker.deliver([0, 1], 2)
    for index in (0, 1):
        message: Message[bytes] = new_message(b"", record(b"", offset=index), tracker, index)
        assert await verdicts.dead_letter(message, ValueError("poison"))
        assert verdicts.not_ready == ()
    await asyncio.sleep(0)
    assert (escaped, tracker.committable) == ([], 2)


@pytest.mark.parametrize("outcome", ["written", "refused", "cancelled", "closed"])
async def test_nothing_is_kept_of_a_nack_that_has_been_carried_out(outcome: str) -> None:
    tasks, told = list[asyncio.Task[Any]](), asyncio.Event()

    class Writes(Skips):
        def decide(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
            return Write(topic="letters", value=b"", key=None)

        async def write(self, write: Write, settled: object = None) -> bool:
            await told.wait()
            if outcome == "refused":
                raise ChannelClosedError("the channel has stopped")
            return False

    def spawn(work: Any, name: str, context: object = None) -> None:
        tasks.append(asyncio.create_task(work()))

    verdicts, tracker = settlements(Writes(), spawn), OffsetTracker(TopicPartition("orders", 0), 0)
    verdicts.begins(tracker, "orders")
    tracker.deliver(list(range(5)), 5)
    answers = []
    for index in range(5):
        message: Message[bytes] = new_message(b"", record(b"", offset=index), tracker, index)
        answers.append(message.nack(ValueError("bad")))
    await asyncio.sleep(0)
    partition = verdicts_of(tracker)
    assert len(partition.writing) == len(partition.nacks) == 5
    if outcome == "closed":
        tracker.close()
    if outcome == "cancelled":
        for task in tasks:
            task.cancel()
    told.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (partition.writing, partition.nacks) == (set(), {})
    assert all(one.done() for one in answers)
