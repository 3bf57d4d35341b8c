"""What stands beside the positions in the group, and what is to stand there next. No I/O, no clock.

Three things share the one string of a partition, in this order: plans, the user's string, kept acks. What does not fit
is left out from the end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reactive_kafka.commit.metadata import acks as ackmap
from reactive_kafka.commit.metadata.codec import LIMIT, decode, encode, room_for_acks, units
from reactive_kafka.commit.metadata.done import bounds_of_done, known_done
from reactive_kafka.commit.metadata.user import MetadataLimit, UserMetadata
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.records import Committed, TopicPartition

NOTHING = Committed(-1, "")
"""Known to be stored for a partition: nothing."""


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """One partition's share of a commit.

    Attributes:
        is_new: The group has another position, as far as is known.
        text: What goes beside the position.
        user: The user's string in it.
        number: Of that string, if it was supplied here; else 0.
        is_lost: There was a string of the user's, and it was left out.
        last: Offset of the last record before the position.
        settled: How many records were settled then: nothing else moves kept acks.
    """

    tracker: OffsetTracker
    position: int
    is_new: bool
    text: str = ""
    user: str = ""
    number: int = 0
    is_lost: bool = False
    has_acks: bool = False
    last: int = -1
    settled: int = -1

    @property
    def partition(self) -> TopicPartition:
        """Whose position it is."""
        return self.tracker.partition

    @property
    def stored(self) -> Committed:
        """What the group is to have."""
        return Committed(self.position, self.text)


class OffsetMetadata:
    """The strings of the partitions of one client.

    Args:
        is_exact: See :class:`reactive_kafka.commit.metadata.user.UserMetadata`.
        keeps_acks: What is done above a position goes with it, as far as there is room.
        room: What is known of the cluster.
    """

    def __init__(self, *, is_exact: bool = False, keeps_acks: bool = False, room: MetadataLimit | None = None) -> None:
        self.keeps_acks = keeps_acks
        self.room = MetadataLimit() if room is None else room
        self._is_exact = is_exact
        self._known: dict[TopicPartition, Committed] = {}  # what the group has, where that is known for sure
        self._users: dict[TopicPartition, Committed] = {}  # the user's string of what was known last
        self._early: dict[TopicPartition, str] = {}  # strings for partitions in which reading has not begun
        self._written: dict[TopicPartition, tuple[int, int]] = {}  # position, settled records: acks that need no commit
        self._unheard: dict[TopicPartition, dict[int, PendingCommit]] = {}  # of unknown outcome, by their positions

    # -- partitions come and go

    def begin(self, tracker: OffsetTracker, old: OffsetTracker | None) -> None:
        """A partition is read from a place of its own: what waited for its next position goes on waiting."""
        partition = tracker.partition
        later = self._early.pop(partition, None if old is None else old.texts.later)
        tracker.texts = UserMetadata(is_exact=self._is_exact, later=later)
        self._unheard.pop(partition, None)
        self._written.pop(partition, None)

    def begins_elsewhere(self, tracker: OffsetTracker) -> None:
        """A partition is ours still and will be read from another place: as in :meth:`begin`, when that is known."""
        if (later := tracker.texts.later) is not None:
            self._early.setdefault(tracker.partition, later)  # what is there already was supplied after it

    def taken_up(self, tracker: OffsetTracker) -> None:
        """A partition came straight back."""
        early = self._early.pop(tracker.partition, None)
        if early is not None:
            tracker.texts.store(early)

    def found(self, tracker: OffsetTracker | None, partition: TopicPartition, stored: Committed | None) -> None:
        """What the group had at an assignment."""
        self._know(partition, NOTHING if stored is None else stored)
        unheard = self._unheard.pop(partition, {})
        if tracker is not None and stored is not None and stored.offset in unheard:
            _use_up(unheard[stored.offset], tracker)  # it was stored after all

    def _know(self, partition: TopicPartition, stored: Committed) -> None:
        self._known[partition] = stored
        user = decode(stored.metadata, stored.offset).user if stored.metadata else ""
        self._users[partition] = Committed(stored.offset, user)

    def forget(self, partition: TopicPartition) -> None:
        """What may be stored for it is another's from here on."""
        for known in (self._known, self._users, self._written, self._unheard):
            known.pop(partition, None)

    def forget_early(self) -> None:
        """The assignment is over: what waited for reading to begin is not ours any more."""
        self._early.clear()

    def store_early(self, partition: TopicPartition, text: str) -> None:
        """A string for the first new position of a partition in which reading has not begun."""
        self._early[partition] = text

    # -- what is known

    def user_of(self, partition: TopicPartition) -> Committed | None:
        """Position and the user's string; None: not known for sure."""
        return self._users.get(partition) if partition in self._known else None

    def units(self, tracker: OffsetTracker) -> int:
        """At most so many UTF-16 units go with the next position, without making the text; 0 where no acks are kept."""
        if not self.keeps_acks:
            return 0
        count, window = bounds_of_done(tracker)
        position = tracker.committable
        due = self._with_user(tracker, position, is_new=True)
        if count >= window:
            return units(due.text)
        rest = LIMIT - room_for_acks(position, tracker.planned_beyond(position), due.user)
        return max(units(due.text), min(self.room.for_acks, rest + ackmap.bound(count, window)))

    # -- what is due

    def due(self, tracker: OffsetTracker, position: int, *, is_new: bool) -> PendingCommit:
        """What is to stand beside a position that is committed now."""
        due = self._with_user(tracker, position, is_new=is_new)
        return self._with_acks(due) if self.keeps_acks else due

    def _with_user(self, tracker: OffsetTracker, position: int, *, is_new: bool) -> PendingCommit:
        texts = tracker.texts
        last = tracker.last_before(position) if self._is_exact else -1
        supplied = texts.for_new(last) if is_new else texts.for_same(last)
        if supplied is not None:
            due = self._made(tracker, position, supplied.text, is_new=is_new, number=supplied.number, last=last)
            if is_new or not due.is_lost:
                return due
        return self._made(tracker, position, self._there(tracker, position), is_new=is_new, last=last)

    def _there(self, tracker: OffsetTracker, position: int) -> str:
        """The user's string that stands beside this very position."""
        user = self._users.get(tracker.partition)
        return user.metadata if user is not None and user.offset == position else ""

    def _made(
        self, tracker: OffsetTracker, position: int, user: str, *, is_new: bool, number: int = 0, last: int = -1
    ) -> PendingCommit:
        plans = tracker.planned_beyond(position)
        text = encode(position, plans, user, limit=self.room.for_user) if plans or user else ""
        is_lost = bool(user) and text == (encode(position, plans) if plans else "")
        return PendingCommit(tracker, position, is_new, text, "" if is_lost else user, number, is_lost, last=last)

    def _with_acks(self, due: PendingCommit) -> PendingCommit:
        tracker, position = due.tracker, due.position
        plans = tracker.planned_beyond(position)
        text, acks = due.text, ""
        budget = room_for_acks(position, plans, due.user, self.room.for_acks)
        open_offsets, until = known_done(tracker, position)
        if until > position and budget > 0:
            acks, _ = ackmap.encode(open_offsets, position, until, budget)
            text = encode(position, plans, due.user, acks) if acks else text
        return PendingCommit(
            tracker, position, due.is_new, text, due.user, due.number, due.is_lost,
            has_acks=bool(acks), last=due.last, settled=tracker.settled,
        )  # fmt: skip

    def restated(
        self, tracker: OffsetTracker, position: int, *, is_new: bool, is_in_doubt: bool
    ) -> PendingCommit | None:
        """What is to be committed where no position has moved; None: nothing has changed, or it can wait."""
        has_moved = self.keeps_acks and self._written.get(tracker.partition) != (position, tracker.settled)
        if not has_moved and not tracker.texts.has_acked:
            return None
        due = self.due(tracker, position, is_new=is_new)
        if not due.number and not due.has_acks:
            return None
        if self._is_there(due, is_in_doubt=is_in_doubt):
            self._written[tracker.partition] = (position, due.settled)
            return None
        return due

    def lacks_plans(self, tracker: OffsetTracker, position: int, *, is_in_doubt: bool) -> bool:
        """Whether the group may have other plans beside its position than the tracker."""
        due = self._made(tracker, position, self._there(tracker, position), is_new=False)
        return not self._is_there(due, is_in_doubt=is_in_doubt)

    def _is_there(self, due: PendingCommit, *, is_in_doubt: bool) -> bool:
        known = self._known.get(due.partition, NOTHING)
        return known == due.stored if known != NOTHING else not (due.text or is_in_doubt)

    # -- what became of it

    def stored(self, due: PendingCommit) -> None:
        """The broker has stored it, and the partition is still ours."""
        self._known[due.partition] = due.stored
        self._users[due.partition] = Committed(due.position, due.user)
        self._unheard.pop(due.partition, None)
        if due.settled >= 0:
            self._written[due.partition] = (due.position, due.settled)

    def used_up(self, due: PendingCommit) -> None:
        """The broker has stored it, for records that are still tracked."""
        if due.is_new:
            self.room.dropped += due.is_lost
            _use_up(due, due.tracker)

    def unknown(self, due: PendingCommit) -> None:
        """Nobody knows whether it was stored."""
        self._known.pop(due.partition, None)
        if due.is_new:
            self._unheard.setdefault(due.partition, {})[due.position] = due

    def refused(self, dues: Collection[PendingCommit]) -> bool:
        """The broker takes less than was sent for these; whether there is something to leave out."""
        longest = max((units(due.text) for due in dues if due.user or due.has_acks), default=0)
        if longest:
            self.room.refused(longest)
        return longest > 0


def _use_up(due: PendingCommit, tracker: OffsetTracker) -> None:
    tracker.texts.stored(due.number, due.last)
    tracker.texts.forget_before(due.last)
