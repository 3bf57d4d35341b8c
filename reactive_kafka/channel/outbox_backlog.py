"""How many rows of an outbox wait, and which of them are to be sent or deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reactive_kafka.checkpoint.outbox import StoredEvent
from reactive_kafka.records import TopicPartition

REFUSED_AGAIN_S = 10.0
"""How soon an event that the broker has refused is sent again."""


class RefusedEvent(NamedTuple):
    """An event that the broker refuses.

    Attributes:
        source: The incoming partition whose owner relays it.
        again_at: When it is sent again (monotonic).
        size: The bytes of its value.
    """

    source: TopicPartition
    reason: str
    again_at: float
    size: int


@dataclass(slots=True)
class OutboxTotals:
    """What the relays of one incoming channel count through all of its sessions."""

    # Events that Kafka has got.
    relayed: int = 0


class OutboxBacklog:
    """The rows of one outgoing channel that this process has to relay.

    The number is exact while no other process writes rows for its partitions. It is counted again
    whenever the partitions change, or a transaction has ended without an answer.

    Args:
        most_rows: At this number no transaction may add more.
    """

    def __init__(self, most_rows: int) -> None:
        self.most_rows = most_rows
        # None: not counted yet.
        self.rows: int | None = None
        # The partitions whose rows were counted. None: count them.
        self._counted_for: frozenset[TopicPartition] | None = None
        # How many rows this process has added in total. If it changes while the store is read, the
        # result may or may not include the new rows.
        self.additions = 0
        # When the first row was written, in seconds since the epoch. None: there is none, or it was
        # not read yet.
        self.oldest_at: float | None = None
        # Row numbers of events that the broker has confirmed. The rows are still to be deleted.
        self.confirmed: list[int] = []
        # Row number -> the refused event.
        self._refused: dict[int, RefusedEvent] = {}

    @property
    def is_full(self) -> bool:
        """Whether no transaction may add rows."""
        return self.rows is None or self.rows >= self.most_rows

    @property
    def refusal(self) -> str | None:
        """Why the broker refuses the first of the refused events; None: it refuses none."""
        return next((refused.reason for refused in self._refused.values()), None)

    @property
    def refused(self) -> int:
        """How many events the broker refuses."""
        return len(self._refused)

    @property
    def refused_bytes(self) -> int:
        """The size of the refused events' values, in bytes."""
        return sum(refused.size for refused in self._refused.values())

    def must_count(self, sources: frozenset[TopicPartition]) -> bool:
        """Return whether the rows of these partitions have to be counted."""
        return self._counted_for != sources

    def counted(self, sources: frozenset[TopicPartition], rows: int, additions: int) -> None:
        """Note how many rows the store has. Refused events of other partitions are forgotten.

        Args:
            additions: What :attr:`additions` was when the store was asked.
        """
        # If rows were added meanwhile, the count may have them or not. They count as additional:
        # the number is too high then, until the table is empty.
        self.rows = rows + self.additions - additions
        self._counted_for = sources
        self._refused = {
            number: refused
            for number, refused in self._refused.items()
            if refused.source in sources
        }
        self._look_at_rows()

    def count_again(self) -> None:
        """Forget the number of rows, because a transaction has ended without an answer."""
        self._counted_for = None
        self.rows = None

    def added(self, rows: int) -> None:
        """Note that a transaction has stored rows."""
        self.additions += rows
        if self.rows is not None:
            self.rows += rows

    def deleted(self, numbers: Sequence[int]) -> None:
        """Note that the rows of confirmed events are deleted."""
        gone = set(numbers)
        self.confirmed = [number for number in self.confirmed if number not in gone]
        if self.rows is not None:
            self.rows = max(0, self.rows - len(gone))
        self._look_at_rows()

    def read(self, events: Sequence[StoredEvent], *, is_all: bool, additions: int) -> None:
        """Note what the store has returned, when no confirmed row was left to delete.

        Args:
            is_all: It has no other rows of these partitions.
            additions: What :attr:`additions` was when the store was asked.
        """
        self.oldest_at = created_at(events[0]) if events else None
        if not is_all:
            return
        there = {event.number for event in events}
        # Rows that are missing were deleted by an operator or by another process.
        self._refused = {
            number: refused for number, refused in self._refused.items() if number in there
        }
        if additions == self.additions:
            self.rows = len(events)

    def _look_at_rows(self) -> None:
        if self.rows == 0:
            self.oldest_at = None

    def to_send(self, events: Iterable[StoredEvent], now: float) -> list[StoredEvent]:
        """Return those of the events that are to be sent now, in their order."""
        confirmed = set(self.confirmed)
        return [
            event
            for event in events
            if event.number not in confirmed
            and (event.number not in self._refused or self._refused[event.number].again_at <= now)
        ]

    def sent(
        self,
        confirmed: Iterable[StoredEvent],
        refused: Iterable[tuple[StoredEvent, str]],
        now: float,
    ) -> None:
        """Note what the broker has said about events."""
        for event in confirmed:
            self.confirmed.append(event.number)
            self._refused.pop(event.number, None)
        for event, reason in refused:
            again_at = now + REFUSED_AGAIN_S
            self._refused[event.number] = RefusedEvent(
                event.source, reason, again_at, size_of(event)
            )


def created_at(event: StoredEvent) -> float | None:
    """Return when an event was made, in seconds since the epoch."""
    if event.created_at is not None:
        return event.created_at
    timestamp_ms = event.event.record.timestamp_ms
    return None if timestamp_ms is None else timestamp_ms / 1000


def size_of(event: StoredEvent) -> int:
    """Return how many bytes the value of an event has."""
    return len(event.event.record.value or b"")
