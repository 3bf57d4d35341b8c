"""``limit``: how many handlers of several channels run at once. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class LimitedChannel(Protocol):
    """A channel that has to share its handler calls with others."""

    def offer(self) -> bool:
        """Offer a free slot to the channel; return whether it takes the slot over."""


class SharedLimit:
    """The slots of one ``[limits.NAME]`` table. Each handler call has a slot while it runs.

    While all slots are taken, channels queue. Each is in the queue at most once, however much it
    has to do, and leaves it with one slot. So a channel with many records cannot keep the others
    from their turns.
    """

    def __init__(self, name: str, slots: int) -> None:
        self.name = name
        self.slots = slots
        self._taken = 0
        self._queue: deque[LimitedChannel] = deque()

    def take(self, channel: LimitedChannel) -> bool:
        """Take a slot. If none is free the channel queues, and is offered one later.

        Returns:
            Whether there was a slot.
        """
        # If any channel is in the queue, all slots are taken.
        if self._taken < self.slots:
            self._taken += 1
            return True
        self.queue(channel)
        return False

    def queue(self, channel: LimitedChannel) -> None:
        """Have a channel offered a slot when it is its turn."""
        if channel not in self._queue:
            self._queue.append(channel)

    def has_queued(self, channel: LimitedChannel) -> bool:
        """Return whether a channel waits for a slot."""
        return channel in self._queue

    def withdraw(self, channel: LimitedChannel) -> None:
        """Offer a channel nothing more: it ends."""
        if channel in self._queue:
            self._queue.remove(channel)

    def give_back(self) -> None:
        """Give a slot back. It goes to the first channel in the queue that has a use for it."""
        while self._queue:
            if self._queue.popleft().offer():
                return
        self._taken -= 1
