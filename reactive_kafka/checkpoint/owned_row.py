"""What one owner knows of one partition's row, and what it may write over it.

The row may have been written by requests of ours whose answers were lost. It is ours as long as it has our token: no
other owner writes with it.
"""

from __future__ import annotations

from asyncio import Lock
from typing import NamedTuple

from reactive_kafka.checkpoint.states import States
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.records import Committed, TopicPartition


class Sending(NamedTuple):
    """A write on its way, and whose records it settles."""

    write: Write
    tracker: OffsetTracker | None


class OwnedRow:
    """One partition of one owner, from the claim of its row to the end of the ownership.

    Args:
        owner: The client that claimed it.
        row: As the claim has written it.

    Attributes:
        row: As the store has it, as far as is known.
        is_unsure: A request may have been applied whose answer did not come.
        transaction: The tracker of a record whose transaction is open.
        behind_since: Since when something is settled that the store has not got; None: nothing is.
        lock: Held by who writes the row for the records of this tracker; another one's writes are told apart there.
    """

    def __init__(self, partition: TopicPartition, owner: str, row: Checkpoint) -> None:
        self.partition = partition
        self.owner = owner
        self.row = row
        self.states = States(row.state)
        self.tracker: OffsetTracker | None = None
        self.is_unsure = False
        self.transaction: OffsetTracker | None = None
        self.behind_since: float | None = None
        self.lock = Lock()
        self._takings: list[Checkpoint] = []  # rows with a new token that were sent, and maybe stored
        self._sent: list[Checkpoint] = []  # for the records of this tracker, and unanswered
        self._stored = -1  # the highest position that the store is known to have got for them

    def begin(self, tracker: OffsetTracker) -> bool:
        """Reading begins, or goes on from somewhere else; whether a state was dropped, because it goes back."""
        old, states = self.tracker, self.states
        goes_back = self.row.position is not None and tracker.start < self.row.position
        if goes_back:
            base = None
        elif old is not None and not old.is_closed and tracker.start >= old.start:
            base = states.at(min(tracker.start, old.committable))
        else:  # also where the old one's states are of a later place
            base = None if self.row.position is None else self.row.state
        self.tracker, self.states = tracker, States(base)
        self.behind_since, self._stored = None, -1
        self._sent.clear()
        self.lock = Lock()  # whoever holds the old one writes for records that are not ours any more
        return goes_back and self.row.state is not None

    # -- the row

    def is_ours(self, row: Checkpoint | None) -> bool:
        """Whether we have written the row that the store has."""
        return row is not None and (row.token == self.row.token or row in self._takings)

    def found(self, row: Checkpoint) -> None:
        """The store has this row of ours; where it was sent for this tracker's records, so was its state."""
        self.row = row
        self.is_unsure = False
        if row in self._sent and row.position is not None:
            self._sent.clear()
            self._stored = max(self._stored, row.position)
            self.states.found(row.position, row.state)
        if row in self._takings:
            self._takings.clear()

    def has_stored(self, offset: int) -> bool:
        """Whether the store has a position of these very records beyond *offset*; not one from before a seek back."""
        return offset < self._stored

    def has_sent(self, offset: int) -> bool:
        """Whether a position beyond *offset* was sent, and is stored, or may still be."""
        sent = (row.position for row in self._sent if row.position is not None)
        return offset < max(self._stored, *sent, -1)

    def renew(self) -> Sending:
        """What stores the row as it is with another token: nothing that was sent before can be stored over it.

        A token that no other owner's claim of this row takes: they would look alike. And it settles no record of ours.
        """
        row = self.row
        return Sending(Write(row.token, row._replace(token=row.token + 2), row.position), None)

    def renewed(self) -> None:
        """Such a write is confirmed."""
        self._sent.clear()

    def is_due(self, at: Committed) -> bool:
        """Whether there is anything to write: the store may have it already, or be further, by a request of ours."""
        if self.has_stored(at.offset):
            return False
        is_there = at == (self.row.position, self.row.metadata)
        return self.is_unsure or not is_there or self._state(at.offset) != self.row.state

    def write(self, at: Committed) -> Sending:
        """What is sent to store a position of the tracker's, with its state.

        Where the position does not grow the row takes another token: nothing that was sent before can land over it, and
        whoever has read it for a claim reads it again. Without a seek that is other metadata at the same position.
        """
        row, position = self.row, at.offset
        token = row.token if row.position is None or position > row.position else row.token + 1
        return Sending(
            Write(row.token, Checkpoint(token, position, self._state(position), at.metadata), row.position),
            None if self._is_of_before(position) else self.tracker,
        )

    def _is_of_before(self, position: int) -> bool:
        """Whether it is the row's own of before a seek: stored with other metadata it settles no record of now."""
        tracker = self.tracker
        if tracker is None or position < tracker.start:
            return True
        return position == self.row.position and position > max(self._stored, tracker.committable)

    def _state(self, position: int) -> str | None:
        return self.row.state if self._is_of_before(position) else self.states.at(position)

    def sent(self, sending: Sending) -> None:
        """It goes out; what becomes of it is not known from here on."""
        self.is_unsure = True
        write = sending.write
        if write.checkpoint.token != write.expected:
            self._takings.append(write.checkpoint)
        if sending.tracker is self.tracker:
            self._sent.append(write.checkpoint)

    def confirmed(self, sending: Sending) -> None:
        """The store has it; an answer that comes behind those of later writes says nothing of the row of now."""
        stored = sending.write.checkpoint
        if sending.tracker is self.tracker and stored.position is not None:
            self._stored = max(self._stored, stored.position)
        if self.row[:2] != (sending.write.expected, sending.write.position):
            self.is_unsure = True
            return
        self.is_unsure = False
        self.behind_since = None  # what was settled since is looked at soon
        self.row = stored
        if stored.token != sending.write.expected:
            self._takings.clear()
        if sending.tracker is self.tracker and stored.position is not None:
            self._sent.clear()
            self.states.stored(stored.position)

    # -- how far the store is behind

    def look(self, now: float) -> float | None:
        """Since when something is settled that the store has not got, as far as this is asked now and then."""
        tracker = self.tracker
        if tracker is None or tracker.is_closed or tracker.committable <= max(tracker.start, tracker.uncommitted_from):
            self.behind_since = None
        elif self.behind_since is None:
            self.behind_since = now
        return self.behind_since
