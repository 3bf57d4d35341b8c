"""A row of the checkpoint store that this member has claimed: what is known of it, and what may be
written over it.

Requests of ours may have changed it whose answers were lost. As long as it has our token it is
ours: no other owner writes that token.
"""

from __future__ import annotations

from asyncio import Lock
from typing import NamedTuple

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.checkpoint.states import States
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker

FENCED = Backoff(1.0, 30.0)
"""How soon a client claims a row again that another owner has taken over."""


def committed_of(row: Checkpoint) -> Committed | None:
    """What Kafka would say of the row."""
    return None if row.position is None else Committed(row.position, row.metadata)


class Share:
    """What one client of the channel has in a partition."""

    def __init__(self, client: str) -> None:
        self.client = client
        # By the group.
        self.is_assigned = False
        # Its row; the partition is not about to go.
        self.may_claim = False
        # Its row was found to be the client's in this assignment.
        self.is_ours = False
        # The committed position, as far as is known.
        self.in_kafka: Committed | None = None
        # That the client claimed last, until another owner has it.
        self.row: OwnedRow | None = None
        # None: not fenced.
        self._claim_at: float | None = None
        self._waits = Waits(FENCED)

    def assign(self) -> None:
        """An assignment brings it. Whoever fenced the client before has no say in it."""
        self.is_assigned = self.may_claim = True
        self.is_ours = False
        self.in_kafka = None
        self.unfence()

    def revoke(self) -> None:
        """The assignment is over."""
        self.is_assigned = self.may_claim = self.is_ours = False

    def fence(self, now: float) -> None:
        """Another owner has taken the row over: it is not to be claimed for a while."""
        self._claim_at = now + self._waits.next_s()

    def unfence(self) -> None:
        """The row is the client's again, or may be claimed."""
        self._claim_at = None
        self._waits.progressed()

    @property
    def not_in_kafka(self) -> Committed | None:
        """What the row, if it is ours, has and Kafka, as far as we know, has not."""
        stored = committed_of(self.row.row) if self.row is not None and self.is_ours else None
        return None if stored == self.in_kafka else stored

    def fenced_for(self, now: float) -> float | None:
        """How long the row is not to be claimed, in seconds; None: nobody has taken it over."""
        return None if self._claim_at is None else max(0.0, self._claim_at - now)


class Sending(NamedTuple):
    """A write that is sent, and the tracker whose records it settles; None: it settles none."""

    write: Write
    tracker: OffsetTracker | None


class OwnedRow:
    """One partition's row, from its claim, which has written *row*, until another owner has it."""

    def __init__(self, partition: TopicPartition, owner: Share, row: Checkpoint) -> None:
        self.partition = partition
        self.owner = owner
        # In the store, as far as is known.
        self.row = row
        self.states = States(row.state)
        self.tracker: OffsetTracker | None = None
        # Another owner has it, or another client of the channel.
        self.is_lost = False
        # A request without an answer may have changed it.
        self.is_unsure = False
        # Of the records in an open transaction.
        self.transaction: OffsetTracker | None = None
        # Since when a settled record has not been stored.
        self.behind_since: float | None = None
        # Held while the row is written for the records of this tracker.
        self.lock = Lock()
        # With a new token; sent, and maybe stored.
        self._takings: list[Checkpoint] = []
        # For records of this tracker; sent, not answered.
        self._sent: list[Checkpoint] = []
        # The highest position that the store is known to have for them.
        self._stored = -1

    def begin(self, tracker: OffsetTracker) -> bool:
        """Read with a new tracker. True if a state was dropped, because reading restarts before the
        stored position.
        """
        old = self.tracker
        self.tracker = tracker
        goes_back = self.row.position is not None and tracker.start < self.row.position
        if old is not None and not old.is_closed and not goes_back:
            self.states.restart(min(tracker.start, old.committable))
        else:
            self.states = States(None if goes_back or self.row.position is None else self.row.state)
        self.behind_since = None
        self._stored = -1
        self._sent.clear()
        # Whoever holds the old one writes for records of the old tracker.
        self.lock = Lock()
        return goes_back and self.row.state is not None

    @property
    def is_in_transaction(self) -> bool:
        """Whether an open transaction is to store the position."""
        return self.transaction is not None and self.transaction is self.tracker

    def is_ours(self, row: Checkpoint | None) -> bool:
        """Whether the row in the store was written by us."""
        return row is not None and (row.token == self.row.token or row in self._takings)

    def found(self, row: Checkpoint) -> None:
        """The store has this row, which is ours. If it was sent for this tracker's records, so was
        its state.
        """
        self.row = row
        self.is_unsure = False
        if row in self._sent and row.position is not None:
            self._sent.clear()
            self._stored = max(self._stored, row.position)
            self.states.found(row.position, row.state)
        if row in self._takings:
            self._takings.clear()

    def has_stored(self, offset: int) -> bool:
        """Whether the store has a position of this tracker's records beyond *offset*, not one from
        before a seek.
        """
        return offset < self._stored

    def has_sent(self, offset: int) -> bool:
        """Whether a position beyond *offset* was sent that is stored, or may still be."""
        sent = (row.position for row in self._sent if row.position is not None)
        return offset < max(self._stored, *sent, -1)

    def renew(self) -> Sending:
        """A write of the row with another token, so that nothing sent earlier can be stored. It
        settles no record.
        """
        # + 2, because + 1 is what another owner's claim of this row writes, and the two must not
        # look alike.
        row = self.row
        return Sending(Write(row.token, row._replace(token=row.token + 2), row.position), None)

    def renewed(self) -> None:
        """That write is confirmed."""
        self._sent.clear()

    def is_due(self, at: Committed) -> bool:
        """Whether there is anything to write. A request of ours may have stored it, or a later
        position, already.
        """
        if self.has_stored(at.offset):
            return False
        is_there = at == (self.row.position, self.row.metadata)
        return self.is_unsure or not is_there or self._state(at.offset) != self.row.state

    def write(self, at: Committed) -> Sending:
        """The write that stores a position of the tracker's with its state."""
        # A position that does not grow (after a seek back, or with other metadata) takes a new
        # token. Under one token positions only grow, so nothing sent earlier can land over this
        # row, and a claim that has read the old row is rejected and reads again.
        row = self.row
        position = at.offset
        token = row.token if row.position is None or position > row.position else row.token + 1
        return Sending(
            Write(
                row.token,
                Checkpoint(token, position, self._state(position), at.metadata),
                row.position,
            ),
            None if self._is_of_before(position) else self.tracker,
        )

    def _is_of_before(self, position: int) -> bool:
        """Whether the position is the row's own from before a seek: storing it settles no record of
        this tracker.
        """
        tracker = self.tracker
        if tracker is None or position < tracker.start:
            return True
        return position == self.row.position and position > max(self._stored, tracker.committable)

    def _state(self, position: int) -> str | None:
        return self.row.state if self._is_of_before(position) else self.states.at(position)

    def sent(self, sending: Sending) -> None:
        """The write is sent: its outcome is unknown until it is answered."""
        self.is_unsure = True
        write = sending.write
        if write.checkpoint.token != write.expected:
            self._takings.append(write.checkpoint)
        if sending.tracker is self.tracker:
            self._sent.append(write.checkpoint)

    def confirmed(self, sending: Sending) -> None:
        """The store has confirmed it. An answer that later writes have overtaken says nothing of
        the present row.
        """
        stored = sending.write.checkpoint
        if sending.tracker is self.tracker and stored.position is not None:
            self._stored = max(self._stored, stored.position)
        if self.row[:2] != (sending.write.expected, sending.write.position):
            self.is_unsure = True
            return
        self.is_unsure = False
        # look() finds what was settled since.
        self.behind_since = None
        self.row = stored
        if stored.token != sending.write.expected:
            self._takings.clear()
        if sending.tracker is self.tracker and stored.position is not None:
            self._sent.clear()
            self.states.stored(stored.position)

    def look(self, now: float) -> float | None:
        """Since when a settled record has not been stored. Right only if it is asked now and
        then.
        """
        tracker = self.tracker
        if (
            tracker is None
            or tracker.is_closed
            or tracker.committable <= max(tracker.start, tracker.uncommitted_from)
        ):
            self.behind_since = None
        elif self.behind_since is None:
            self.behind_since = now
        return self.behind_since
