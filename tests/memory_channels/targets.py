"""Memory channels without a handler: a test settles the values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.config.settings import MemorySettings
from reactive_kafka.memory_channels.memory_target import MemoryRecord, MemoryTarget
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt
from tests.app.helpers import Recorder

Outcome = list[BaseException | None]
"""Empty; what a value was nacked with; or None: it was acked."""


def in_room_for(values: int) -> tuple[MemoryTarget, list[MemoryRecord]]:
    """A channel with room for so many values, and the list that they come to."""
    settings = MemorySettings(name="stage", max_in_flight=values)
    target = MemoryTarget(settings, SYSTEM_CLOCK, Recorder())
    handling = _NoHandling()
    target.handled_by(handling)
    return target, handling.taken


class _NoHandling:
    """Keeps the values that come."""

    def __init__(self) -> None:
        self.taken: list[MemoryRecord] = []

    def take(self, value: MemoryRecord) -> None:
        self.taken.append(value)

    def stop_taking(self) -> None: ...

    def look(self) -> None: ...

    def not_ready(self) -> Iterable[str]:
        return ()

    def postponed(self) -> Iterable[str]:
        return ()


async def sent(target: MemoryTarget, value: Any) -> Outcome:
    """Send a value when there is room for it; returns the list that its outcome comes to."""
    outcome: Outcome = []
    receipt = CallbackReceipt(outcome.append)
    await target.put(target.prepare(value), receipt)
    receipt.seal()
    return outcome
