"""What becomes of nacks, on the channel's own parts: with strategies that answer at once, and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.failure.decision import Decision, FailedRecord, Skip, Write
from reactive_kafka.observe.events import Event
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.records import TopicPartition
from reactive_kafka.testing import record
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.hook import NoHook
from reactive_kafka.verdicts.message import Message, new_message
from reactive_kafka.verdicts.nack import VerdictParts


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

    async def write(self, write: Write) -> None: ...


class Nobody:
    def on(self, event: Event) -> None: ...


def settlements() -> Acknowledger:
    totals = PartitionTotals()
    parts = VerdictParts(
        settings=IncomingSettings(name="orders", topics=("orders",), group_id="billing", client={}),
        clock=SYSTEM_CLOCK, observer=Nobody(), totals=lambda partition: totals, hook=NoHook("orders"),
        spawn=lambda task, name, context=None: None, fail=lambda reason: True, progress=lambda: None,
        request_commit=lambda tracker: tracker.committable, blocks_on=lambda tracker, index, verdict: None,
    )  # fmt: skip
    return Acknowledger(parts, Skips())


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
