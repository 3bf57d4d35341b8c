"""A row of the checkpoint store that this member has claimed, and the client that claimed it.

The answer to a request may get lost, so what the store has is not always known. A row with our
token is ours: no other owner writes that token.
"""

from __future__ import annotations

from asyncio import Lock
from typing import NamedTuple

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.checkpoint.state_history import StateHistory
from reactive_kafka.checkpoint.store import Checkpoint, Write
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker

FENCED = Backoff(1.0, 30.0)
"""How soon a client claims a row again that another owner has taken over."""


def committed_of(checkpoint: Checkpoint) -> Committed | None:
    """Return the row's position and metadata as Kafka would report them."""
    if checkpoint.position is None:
        return None
    return Committed(checkpoint.position, checkpoint.metadata)


class ClientPartition:
    """What one client of the channel knows of one partition: its assignment, and its row."""

    def __init__(self, client: str) -> None:
        self.client = client
        # The group has assigned the partition to the client.
        self.is_assigned = False
        # The client may claim the row: the partition is assigned, and is not being revoked.
        self.may_claim = False
        # In this assignment the row was found to be the client's.
        self.is_ours = False
        # The position that Kafka has, as far as is known.
        self.in_kafka: Committed | None = None
        # The row that the client claimed last, until another owner takes it.
        self.row: OwnedRow | None = None
        # When the row may be claimed again; None: no other owner has taken it.
        self._claim_at: float | None = None
        self._waits = Waits(FENCED)

    def assign(self) -> None:
        """Begin an assignment. An owner that fenced the client before it does not matter now."""
        self.is_assigned = True
        self.may_claim = True
        self.is_ours = False
        self.in_kafka = None
        self.unfence()

    def revoke(self) -> None:
        """End the assignment."""
        self.is_assigned = False
        self.may_claim = False
        self.is_ours = False

    def fence(self, now: float) -> None:
        """Claim the row no more for a while: another owner has taken it."""
        self._claim_at = now + self._waits.next_s()

    def unfence(self) -> None:
        """Allow claims again, or note that the row is the client's again."""
        self._claim_at = None
        self._waits.progressed()

    @property
    def not_in_kafka(self) -> Committed | None:
        """The position in our row, if Kafka does not have it yet as far as we know."""
        if self.row is None or not self.is_ours:
            return None
        stored = committed_of(self.row.checkpoint)
        return None if stored == self.in_kafka else stored

    def fenced_for(self, now: float) -> float | None:
        """Return for how many seconds the row must not be claimed; None: it is not fenced."""
        if self._claim_at is None:
            return None
        return max(0.0, self._claim_at - now)


class PendingWrite(NamedTuple):
    """A write to send, and the tracker whose records it settles; None: it settles none."""

    write: Write
    tracker: OffsetTracker | None


class OwnedRow:
    """One partition's row, from its claim until another owner takes it.

    Args:
        partition: The partition whose positions the row has.
        owner: The client that has claimed the row.
        checkpoint: What the claim has written.
    """

    def __init__(
        self, partition: TopicPartition, owner: ClientPartition, checkpoint: Checkpoint
    ) -> None:
        self.partition = partition
        self.owner = owner
        # What the store has, as far as is known.
        self.checkpoint = checkpoint
        self.states = StateHistory(checkpoint.state)
        # The tracker of the records that are read now.
        self.tracker: OffsetTracker | None = None
        # Another owner, or another client of this channel, has the row.
        self.is_lost = False
        # A request without an answer may have changed the row in the store.
        self.is_unsure = False
        # The tracker of the records in an open transaction.
        self.transaction: OffsetTracker | None = None
        # Since when a settled record has not been stored.
        self.behind_since: float | None = None
        # Held while the row is written for records of this tracker.
        self.lock = Lock()
        # Rows with a new token that were sent and may be stored.
        self._sent_with_new_token: list[Checkpoint] = []
        # Rows that were sent for records of this tracker, and are not answered yet.
        self._sent: list[Checkpoint] = []
        # The same for the trackers before it whose state this one continues with.
        self._sent_before: list[Checkpoint] = []
        # The highest position of this tracker's records that the store is known to have.
        self._stored = -1

    def begin(self, tracker: OffsetTracker) -> bool:
        """Read on with a new tracker.

        Returns:
            Whether a state was dropped because reading restarts before the stored position.
        """
        old = self.tracker
        stored = self.checkpoint.position
        goes_back = stored is not None and tracker.start < stored
        if old is not None and not old.is_closed and not goes_back:
            self.states.restart(min(tracker.start, old.committable))
            self._sent_before += self._sent
        else:
            is_kept = stored is not None and not goes_back
            self.states = StateHistory(self.checkpoint.state if is_kept else None)
            self._sent_before.clear()
        self.tracker = tracker
        self.behind_since = None
        self._stored = -1
        self._sent.clear()
        # The holder of the old lock writes for records of the old tracker. It must not keep the
        # new ones waiting.
        self.lock = Lock()
        return goes_back and self.checkpoint.state is not None

    @property
    def is_in_transaction(self) -> bool:
        """Whether an open transaction is going to store the position."""
        return self.transaction is not None and self.transaction is self.tracker

    def is_ours(self, stored: Checkpoint | None) -> bool:
        """Return whether the row *stored*, which the store has, was written by us."""
        if stored is None:
            return False
        return stored.token == self.checkpoint.token or stored in self._sent_with_new_token

    def found(self, stored: Checkpoint) -> None:
        """Note that the store has the row *stored*, which is ours.

        If it was sent for records of this tracker, its state is theirs, too. The same holds if it
        was sent before a seek forward, for records before the new start.
        """
        self.checkpoint = stored
        self.is_unsure = False
        if stored in self._sent and stored.position is not None:
            self._sent.clear()
            self._sent_before.clear()
            self._stored = max(self._stored, stored.position)
            self.states.found(stored.position, stored.state)
        elif (
            stored in self._sent_before
            and stored.position is not None
            and self.tracker is not None
            and stored.position <= self.tracker.start
        ):
            self._sent_before.clear()
            self.states.found_late(stored.position, stored.state)
        if stored in self._sent_with_new_token:
            self._sent_with_new_token.clear()

    def has_stored(self, offset: int) -> bool:
        """Return whether the store has a position beyond *offset* that this tracker's records set.

        A position from before a seek does not count.
        """
        return offset < self._stored

    def has_sent(self, offset: int) -> bool:
        """Return whether a position beyond *offset* was sent that is or may yet be stored."""
        sent = (row.position for row in self._sent if row.position is not None)
        return offset < max(self._stored, *sent, -1)

    def renewal(self) -> PendingWrite:
        """Return a write of the row under a new token. It settles no record.

        Once it is stored, nothing that was sent earlier can be stored any more.
        """
        # + 2, because another owner that claims this row writes + 1. The two must differ.
        row = self.checkpoint
        renewed = row._replace(token=row.token + 2)
        return PendingWrite(Write(row.token, renewed, row.position), None)

    def renewed(self) -> None:
        """Note that the renewal is confirmed: earlier requests are void."""
        self._sent.clear()
        self._sent_before.clear()

    def is_due(self, committed: Committed) -> bool:
        """Return whether *committed* has to be written.

        An earlier request may have stored it, or a later position, already.
        """
        if self.has_stored(committed.offset):
            return False
        if self.is_unsure or committed != (self.checkpoint.position, self.checkpoint.metadata):
            return True
        return self._state_for(committed.offset) != self.checkpoint.state

    def pending_write(self, committed: Committed) -> PendingWrite:
        """Return the write that stores a position of the tracker, with its state.

        A write names the token and the position that it expects in the row, and is refused if the
        row has others. So the token fences earlier writes off.
        """
        # A position that does not grow (after a seek back, or with other metadata) takes a new
        # token. Under one token positions only grow, so nothing sent earlier can be stored over
        # this row, and a claim that has read the old row is refused and reads again.
        row = self.checkpoint
        position = committed.offset
        grows = row.position is None or position > row.position
        token = row.token if grows else row.token + 1
        checkpoint = Checkpoint(token, position, self._state_for(position), committed.metadata)
        settles = None if self._is_from_before_seek(position) else self.tracker
        return PendingWrite(Write(row.token, checkpoint, row.position), settles)

    def _is_from_before_seek(self, position: int) -> bool:
        """Return whether storing *position* settles no record of this tracker.

        That is so if it is the row's own position from before a seek.
        """
        tracker = self.tracker
        if tracker is None or position < tracker.start:
            return True
        if position != self.checkpoint.position:
            return False
        return position > max(self._stored, tracker.committable)

    def _state_for(self, position: int) -> str | None:
        if self._is_from_before_seek(position):
            return self.checkpoint.state
        return self.states.at_position(position)

    def sent(self, pending: PendingWrite) -> None:
        """Note that the write is sent. Its outcome is unknown until it is answered."""
        self.is_unsure = True
        write = pending.write
        if write.checkpoint.token != write.expected:
            _add_new(self._sent_with_new_token, write.checkpoint)
        if pending.tracker is self.tracker:
            _add_new(self._sent, write.checkpoint)

    def confirmed(self, pending: PendingWrite) -> None:
        """Note that the store has confirmed the write."""
        write = pending.write
        stored = write.checkpoint
        is_of_tracker = pending.tracker is self.tracker
        if is_of_tracker and stored.position is not None:
            self._stored = max(self._stored, stored.position)
        if self.checkpoint[:2] != (write.expected, write.position):
            # A later write was answered first: this answer says nothing about the present row.
            self.is_unsure = True
            return
        self.is_unsure = False
        # note_behind() finds what was settled since the write was sent.
        self.behind_since = None
        self.checkpoint = stored
        if stored.token != write.expected:
            self._sent_with_new_token.clear()
        if is_of_tracker and stored.position is not None:
            self._sent.clear()
            self._sent_before.clear()
            self.states.stored(stored.position)

    def note_behind(self, now: float) -> float | None:
        """Return since when a settled record has not been stored; None: all are stored.

        It is exact only to the interval at which it is called.
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


def _add_new(rows: list[Checkpoint], row: Checkpoint) -> None:
    """Add a row, unless an equal one is there: a full store refuses the same one for hours."""
    if row not in rows:
        rows.append(row)
