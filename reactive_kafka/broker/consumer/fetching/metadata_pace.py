"""Paces requests for metadata, and knows how old the metadata is."""

from __future__ import annotations

from reactive_kafka.backoff import Backoff, Waits

PAUSES = Backoff(0.1, 1.0)
"""Between two requests for metadata because of partitions that cannot be fetched."""


class MetadataPace:
    """When metadata may be asked for, because a leader is not known or has moved.

    A partition without a leader (its topic was deleted, or the node with its only replica is away)
    would be asked for as fast as brokers answer, while it is assigned.

    Attributes:
        are_needed: There is a reason to ask.
        version: Grows with each new metadata.
        refreshed_at: When new metadata came last.
    """

    def __init__(self, now: float) -> None:
        self.are_needed = False
        self.version = 0
        self.refreshed_at = now
        self.next_at = now
        self._waits = Waits(PAUSES)

    def came(self, now: float) -> None:
        """Note that new metadata is there."""
        self.version += 1
        self.refreshed_at = now
        self.are_needed = False

    def ask(self, now: float) -> bool:
        """Return True if metadata is to be asked for now, and note that it is."""
        if now < self.next_at:
            return False
        if now >= self.next_at + PAUSES.last_s:
            self._waits.progressed()
        self.next_at = now + self._waits.next_s()
        return True
