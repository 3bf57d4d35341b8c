"""What watches the messages of a channel, and their verdicts."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.futures import ThreadVerdict


class ReceiveWatch(Protocol):
    """Sees the messages that an application takes by iterating over a channel. Must not raise."""

    def received(self, message: Delivery, waited_s: float) -> None:
        """The application gets a message that it asked for, and that it waited for so long."""


class VerdictWatch(Protocol):
    """Sees each verdict of a channel.

    Tracing makes spans this way. It must not raise. An *answer* is that of ``Message.ack`` or
    ``Message.nack``: False if the verdict had no effect. Verdicts may come from any thread.
    """

    def acked(self, message: Delivery, answer: Future[bool] | ThreadVerdict) -> None:
        """A message is acked, by the application or because its handler has returned."""

    def acked_together(
        self, messages: Sequence[Delivery], answer: Future[bool] | ThreadVerdict, trace: object
    ) -> None:
        """Messages are acked by one call.

        Args:
            trace: What was kept with their batch; None: nothing was.
        """

    def nacked(self, delivery: Delivery, strategy: str, answer: Future[bool]) -> None:
        """A record is nacked, and *strategy* decides about it."""
