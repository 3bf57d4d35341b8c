"""What is known of the commits of one partition, through its assignments. No I/O, no clock.

Three marks are the tracker's, of one assignment: ``committed``, ``attempted``,
``uncommitted_from``. What is here outlives the tracker: what the group has, and what it may have.
"""

from __future__ import annotations

from reactive_kafka.tracking.metadata.pending import (
    MetadataPolicy,
    OffsetMetadata,
    PendingCommit,
)
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.tracking.unknown_commits import UnknownCommits

NO_POSITIONS = range(0)


class CommitState:
    """The position that the group has of one partition, and the string that is stored with it."""

    __slots__ = ("behind", "is_void", "metadata", "stored", "unknown")

    def __init__(self, policy: MetadataPolicy, unknown: UnknownCommits | None = None) -> None:
        # The group's position, as far as is known; None: none, or none of the log's.
        self.stored: int | None = None
        # Positions that may be stored for a place that was left by a seek.
        self.behind = NO_POSITIONS
        # Another member had the partition since the request in flight was sent: that request
        # stores nothing for it.
        self.is_void = False
        self.unknown = UnknownCommits() if unknown is None else unknown
        self.metadata = OffsetMetadata(policy)

    # -- what an assignment changes

    def is_as_left(self, tracker: OffsetTracker, committed: int | None) -> bool:
        """Whether the group's position is the one that was known, or one that we may have stored.

        An answer that was lost leaves a range of positions that may be stored.
        """
        if committed is None or committed == self.stored:
            return committed == self.stored
        if committed in self.behind:
            return True
        lowest = self.unknown.lowest(tracker.uncommitted_from)
        return max(tracker.start, lowest) <= committed <= tracker.attempted

    def retain(self, tracker: OffsetTracker, committed: int | None) -> None:
        """The partition continues where it was, and the group has this position."""
        if committed is not None and committed != self.stored:
            self.stored = committed
            # Was it stored for a place that a seek has left? Then commits follow the new place.
            if committed not in self.behind or committed <= tracker.uncommitted_from:
                tracker.confirmed(committed)
        self.metadata.retained(tracker)

    def drop(self, tracker: OffsetTracker, *, was_committing: bool, is_ours: bool) -> None:
        """Note that the tracker is closed: the partition was lost, or it starts again.

        Args:
            was_committing: The tracker's positions were committed until now.
            is_ours: The partition is still ours, and starts again with another tracker.
        """
        if was_committing and not is_ours:
            self.is_void = True
        self.behind = NO_POSITIONS
        self.unknown.forget()
        self.metadata.forget()
        # A string that waits for the next position keeps waiting.
        if is_ours:
            self.metadata.starts_elsewhere(tracker)

    def start(self, tracker: OffsetTracker, old: OffsetTracker | None, stored: int | None) -> None:
        """The partition is read from another place.

        Args:
            old: The tracker of the place before, if positions of it were committed until now.
            stored: The group's position if it is not the tracker's: it may be none of the records
                that are read from here on.
        """
        if old is None:
            self.behind = NO_POSITIONS
        else:
            lowest = self.unknown.lowest(old.uncommitted_from)
            highest = old.attempted
            if self.behind and old.uncommitted_from <= old.start:
                # Nothing of that place was stored. What may be stored is of the place before it.
                lowest = min(lowest, self.behind[0])
                highest = max(highest, self.behind[-1])
            self.behind = range(lowest, highest + 1)
        is_first = old is None and self.stored is None
        if is_first and tracker.committed is not None and tracker.committed <= tracker.start:
            self.unknown.continues()
        else:
            self.unknown.starts_elsewhere()
        self.metadata.starts(tracker, old)
        self.stored = tracker.committed if stored is None else stored

    # -- what a commit changes

    def send(self) -> None:
        """A request is sent for the partition as it is now."""
        self.is_void = False

    def confirm(self, pending: PendingCommit) -> None:
        """The group has this position now."""
        self.metadata.stored(pending)
        self.stored = pending.position

    def confirm_position(self, position: int) -> None:
        """The group has this position now; nothing is known of its string."""
        self.stored = position

    # -- what is to be committed where no position has moved

    def rests(self, tracker: OffsetTracker) -> bool:
        """True if nothing is to commit: every record is settled and committed, metadata included.

        False if that takes a closer look.
        """
        if tracker.flags or tracker.position != tracker.uncommitted_from or self.unknown:
            return False
        return not self.metadata.may_be_due(tracker)

    def unmoved(self, tracker: OffsetTracker) -> int:
        """The position to commit if only its metadata has changed: the group's own."""
        if self.unknown and tracker.attempted > tracker.start:
            # It may be stored, and the group does not go back.
            return tracker.attempted
        return tracker.start if self.stored is None else self.stored

    def may_be_stored(self, tracker: OffsetTracker) -> bool:
        """Whether the position to commit where none has moved is one of unknown outcome."""
        if not self.unknown or tracker.attempted != self.unmoved(tracker):
            return False
        return tracker.uncommitted_from < tracker.attempted != self.stored

    def restated(self, tracker: OffsetTracker) -> PendingCommit | None:
        """The commit of new strings and kept acks with a position that has not moved, if any."""
        return self.metadata.restated(
            tracker,
            self.unmoved(tracker),
            is_new=self.may_be_stored(tracker),
            is_in_doubt=bool(self.unknown),
        )

    def lacks_plans(self, tracker: OffsetTracker) -> bool:
        """Whether the group may have other plans with its position than the tracker."""
        return self.metadata.lacks_plans(
            tracker, self.unmoved(tracker), is_in_doubt=bool(self.unknown)
        )

    def pending_plans(self, tracker: OffsetTracker) -> PendingCommit:
        """The commit of the tracker's plans, with the position that the group has."""
        return self.metadata.due(tracker, self.unmoved(tracker), is_new=self.may_be_stored(tracker))

    def divide_plan(self, tracker: OffsetTracker) -> bool:
        """Divide the plan that the group's position lies inside of; False if there is none.

        That happens after a seek back. A plan that begins before the position cannot be stored with
        it, and the reader that continues there would cut the records in another way.
        """
        position = self.unmoved(tracker)
        for planned in tracker.plans:
            if planned.start < position < planned.until:
                tracker.replan(
                    planned, planned._replace(until=position), planned._replace(start=position)
                )
                return True
        return False
