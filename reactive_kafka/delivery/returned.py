"""What handlers have left without a verdict."""

from __future__ import annotations

from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import Delivery, is_open


class ReturnedUnsettled:
    """Messages without a verdict whose handler has returned: a dead letter needs their bytes if
    they become poison.
    """

    def __init__(self) -> None:
        self._messages: dict[tuple[int, int], Delivery] = {}
        self._sweep_at = 64

    def add(self, message: Delivery) -> None:
        """Keep a message until it has its verdict."""
        self._messages[id(message.tracker), message.index] = message
        if len(self._messages) >= self._sweep_at:
            self._messages = {at: one for at, one in self._messages.items() if is_open(one)}
            self._sweep_at = max(64, 2 * len(self._messages))

    def find(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        message = self._messages.get((id(tracker), index))
        return (
            [message]
            if message is not None and message.tracker is tracker and is_open(message)
            else []
        )
