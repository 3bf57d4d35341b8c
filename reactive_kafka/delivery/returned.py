"""The messages that handlers returned from without a verdict."""

from __future__ import annotations

from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import Delivery, is_open

FIRST_SWEEP_AT = 64
"""Settled messages are first removed when so many messages are kept."""


class ReturnedUnsettled:
    """Keeps messages without a verdict whose handler has returned.

    If such a record becomes poison, its dead letter needs the record's bytes.
    """

    def __init__(self) -> None:
        # (id of the tracker, arrival number) -> message.
        self._messages: dict[tuple[int, int], Delivery] = {}
        self._sweep_at = FIRST_SWEEP_AT

    def add(self, message: Delivery) -> None:
        """Keep a message until it has its verdict."""
        self._messages[id(message.tracker), message.index] = message
        if len(self._messages) >= self._sweep_at:
            self._messages = {
                place: kept for place, kept in self._messages.items() if is_open(kept)
            }
            self._sweep_at = max(FIRST_SWEEP_AT, 2 * len(self._messages))

    def find(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Return the message of a record that has no verdict, or nothing."""
        message = self._messages.get((id(tracker), index))
        # The tracker is compared too: its id may be that of another one that is gone.
        if message is None or message.tracker is not tracker or not is_open(message):
            return []
        return [message]
