"""The parts of a channel that take acks and nacks, with strategies that answer at once or in time."""

from __future__ import annotations

from collections.abc import Awaitable

from reactive_kafka import FailedRecord, IncomingSettings, Skip
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.events import Event
from reactive_kafka.failure.decision import Decision, WriteLetter
from reactive_kafka.failure.strategies import ChannelStrategies
from reactive_kafka.nacks.handling import FailureHandling
from reactive_kafka.nacks.letter_writer import LetterWriter
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery_hook import NoHook

SETTINGS = IncomingSettings(name="orders", topics=("orders",), group_id="billing", client={})


class Skips(ChannelStrategies):
    """Strategies that leave every record out, and have decided so before they return."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)

    def decide(self, name: str, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        return Skip()


class Writes(Skips):
    """Strategies that write every record elsewhere."""

    def decide(self, name: str, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        return WriteLetter(topic="letters", value=b"", key=None)


class NothingToWrite(LetterWriter):
    """Says that every letter is written."""

    not_ready = ()

    def __init__(self) -> None:
        pass

    async def write(self, write: WriteLetter, settle: object = None) -> bool:
        return False


class Nobody:
    def on(self, event: Event) -> None: ...


def make_acknowledger(
    strategies: ChannelStrategies | None = None,
    letters: LetterWriter | None = None,
    spawn: Spawn = lambda work, name, context=None: None,
) -> tuple[Acknowledger, FailureHandling]:
    """The parts of a channel that take acks and nacks."""
    totals = PartitionTotals()
    channel = ChannelContext(
        settings=SETTINGS,
        clock=SYSTEM_CLOCK,
        observer=Nobody(),
        totals=lambda partition: totals,
        spawn=spawn,
        fail=lambda reason: True,
        progress=lambda: None,
    )
    hook = NoHook("orders")
    handling = FailureHandling(
        channel,
        hook,
        Skips() if strategies is None else strategies,
        NothingToWrite() if letters is None else letters,
        blocks_on=lambda tracker, index, verdict: None,
    )
    return Acknowledger(channel, handling, hook), handling
