"""What stands beside a committed position, and what is to stand there next. No I/O, no clock.

Three things share the one string of a partition, in this order: plans, the user's string, kept
acks. What does not fit is left out from the end.

The string belongs to its position and is made together with it. Only a new position uses a user's
string up, and only once the broker has confirmed it; with an unchanged position the string is
merely stated again. So a commit that fails needs no undoing, and one that was stored unheard is
used up when the next assignment finds it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata import acks as ackmap
from reactive_kafka.tracking.metadata.codec import LIMIT, decode, encode, room_for_acks, units
from reactive_kafka.tracking.metadata.done import KnownDone
from reactive_kafka.tracking.metadata.user import MetadataLimit, UserMetadata
from reactive_kafka.tracking.tracker import OffsetTracker

# Known to be stored for a partition: nothing.
NOTHING = Committed(-1, "")


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """One partition's share of a commit."""

    tracker: OffsetTracker
    position: int
    # The group has another position, as far as is known.
    is_new: bool
    # Goes beside the position.
    text: str = ""
    # The user's string in it.
    user: str = ""
    # Of that string, if it was supplied here.
    number: int = 0
    # There was a string of the user's, and it was left out.
    is_lost: bool = False
    has_acks: bool = False
    has_topic: bool = False
    # Beside the position nothing is told but its topic.
    is_empty: bool = True
    # Offset of the last record before the position.
    last: int = -1
    # How many records were settled then: nothing else moves kept acks.
    settled: int = -1

    @property
    def partition(self) -> TopicPartition:
        return self.tracker.partition

    @property
    def stored(self) -> Committed:
        """What the group is to have."""
        return Committed(self.position, self.text)


@dataclass(frozen=True, slots=True)
class MetadataPolicy:
    """What the partitions of one client store beside their positions."""

    # A record's own string goes with the position right behind it; else the newest always goes.
    is_exact: bool = False
    # What is done above a position goes with it, as far as there is room.
    keeps_acks: bool = False
    # Its topic's id goes with every position; else with plans and kept acks only.
    tells_topic: bool = False
    # How much the cluster takes, as far as is known.
    room: MetadataLimit = field(default_factory=MetadataLimit)

    def refused(self, commits: Collection[PendingCommit]) -> bool:
        """The broker takes less than was sent for these; whether there is something to leave
        out.
        """
        # The broker's limit is not told, only that this was too long. So the shortest text that was
        # refused is the limit from here on, and the positions are sent again at once without what
        # is over it: metadata never holds a position back. Plans are the exception, they are needed
        # and stay.
        longest = max(
            (units(one.text) for one in commits if one.user or one.has_acks or one.has_topic),
            default=0,
        )
        if longest:
            self.room.refused(longest)
        return longest > 0


class OffsetMetadata:
    """The string beside the committed position of one partition."""

    __slots__ = (
        "_done",
        "_known",
        "_policy",
        "_room",
        "_unheard",
        "_user",
        "_written",
        "early",
        "lost_plans",
        "topic_id",
    )

    def __init__(self, policy: MetadataPolicy) -> None:
        self._policy = policy
        self._room = policy.room
        # Of the last tracker whose acks were kept.
        self._done: KnownDone | None = None
        # What the group has; None: not known for sure.
        self._known: Committed | None = None
        # The user's string of what was known last.
        self._user: Committed | None = None
        # Of the incarnation of the topic that is read; None: not known.
        self.topic_id: str | None = None
        # The user's, supplied before reading has started: for the first new position.
        self.early: str | None = None
        # Position, settled records: acks that need no commit.
        self._written: tuple[int, int] | None = None
        # Of unknown outcome, by their positions.
        self._unheard: dict[int, PendingCommit] = {}
        # An assignment found other plans than the tracker's: a late commit went over them.
        self.lost_plans = False

    def starts(self, tracker: OffsetTracker, old: OffsetTracker | None) -> None:
        """The partition is read from a place of its own: what waits for its next position goes on
        waiting.
        """
        later = self.early if self.early is not None or old is None else old.texts.later
        tracker.texts = UserMetadata(is_exact=self._policy.is_exact, later=later)
        self.early = self._written = None
        self._unheard = {}
        self.lost_plans = False

    def starts_elsewhere(self, tracker: OffsetTracker) -> None:
        """The partition is still ours and will be read from another place: as in :meth:`starts`,
        when that is known.
        """
        # Else it was supplied after the tracker's.
        if self.early is None:
            self.early = tracker.texts.later

    def store_early(self, text: str) -> None:
        """Store a string of the user's with the first new position, once reading has started."""
        self.early = text

    def forget_early(self) -> None:
        """The partition is not ours any more: the string that waits goes with it."""
        self.early = None

    def reads_topic(self, topic_id: str | None) -> None:
        """Records of the topic with this id are read from here on; None: it is not known."""
        self.topic_id = topic_id

    def retained(self, tracker: OffsetTracker) -> None:
        """The partition goes on where it stood."""
        if self.early is not None:
            tracker.texts.store(self.early)
            self.early = None

    def found(self, tracker: OffsetTracker | None, stored: Committed | None) -> None:
        """What the group had at an assignment."""
        self._known = NOTHING if stored is None else stored
        there = (
            decode(stored.metadata, stored.offset)
            if stored is not None and stored.metadata
            else None
        )
        self._user = Committed(self._known.offset, "" if there is None else there.user)
        plans = () if tracker is None else tracker.planned_beyond(self._known.offset)
        self.lost_plans = bool(plans) and (there is None or there.plans != plans)
        unheard = self._unheard
        self._unheard = {}
        if tracker is not None and stored is not None and stored.offset in unheard:
            # It was stored after all.
            _use_up(unheard[stored.offset], tracker)

    def forget(self) -> None:
        """What may be stored for it is another member's from here on."""
        self._known = self._user = self._written = None
        self._unheard = {}
        self.lost_plans = False

    @property
    def user(self) -> Committed | None:
        """Position and the user's string; None: not known for sure."""
        return None if self._known is None else self._user

    def units(self, tracker: OffsetTracker) -> int:
        """At most so many UTF-16 units go with the next position, without making the text; 0 where
        no acks are kept.
        """
        if not self._policy.keeps_acks:
            return 0
        position = tracker.committable
        open_offsets, until = self._look(tracker, position).above(position)
        count = len(open_offsets)
        window = until - position
        due = self._with_user(tracker, position, is_new=True)
        if count >= window:
            return units(due.text)
        rest = LIMIT - room_for_acks(
            position, tracker.planned_beyond(position), due.user, topic=self.topic_id or ""
        )
        return max(units(due.text), min(self._room.for_acks, rest + ackmap.bound(count, window)))

    def due(self, tracker: OffsetTracker, position: int, *, is_new: bool) -> PendingCommit:
        """What is to stand beside a position that is committed now."""
        due = self._with_user(tracker, position, is_new=is_new)
        return (
            self._with_acks(due, self._look(tracker, position)) if self._policy.keeps_acks else due
        )

    def _with_user(self, tracker: OffsetTracker, position: int, *, is_new: bool) -> PendingCommit:
        texts = tracker.texts
        last = last_before(tracker, position) if self._policy.is_exact else -1
        supplied = texts.for_new(last) if is_new else texts.for_same(last)
        if supplied is not None:
            due = self._made(
                tracker, position, supplied.text, is_new=is_new, number=supplied.number, last=last
            )
            if is_new or not due.is_lost:
                return due
        return self._made(tracker, position, self._there(position), is_new=is_new, last=last)

    def _there(self, position: int) -> str:
        """The user's string that stands beside this very position."""
        return (
            self._user.metadata if self._user is not None and self._user.offset == position else ""
        )

    def _made(
        self,
        tracker: OffsetTracker,
        position: int,
        user: str,
        *,
        is_new: bool,
        number: int = 0,
        last: int = -1,
    ) -> PendingCommit:
        plans = tracker.planned_beyond(position)
        topic = self.topic_id or "" if plans or self._policy.tells_topic else ""
        # Of most partitions, so it is made fast.
        if not (plans or user or topic):
            return PendingCommit(tracker, position, is_new, number=number, last=last)
        text, bare = (
            encode(position, plans, said, topic=topic, limit=self._room.for_user)
            if plans or said or topic
            else ""
            for said in (user, "")
        )
        is_lost = bool(user) and text == bare
        return PendingCommit(
            tracker,
            position,
            is_new,
            text,
            "" if is_lost else user,
            number,
            is_lost,
            has_topic=bool(topic),
            is_empty=not plans and (is_lost or not user),
            last=last,
        )

    def _with_acks(self, due: PendingCommit, done: KnownDone) -> PendingCommit:
        tracker = due.tracker
        position = due.position
        text = due.text
        acks = ""
        plans = tracker.planned_beyond(position)
        topic = self.topic_id or ""
        budget = room_for_acks(position, plans, due.user, self._room.for_acks, topic=topic)
        open_offsets, until = done.above(position)
        if until > position and budget > 0:
            acks, _ = ackmap.encode(open_offsets, position, until, budget)
            text = encode(position, plans, due.user, acks, topic=topic) if acks else text
        is_empty = due.is_empty and not acks
        return replace(due, text=text, has_acks=bool(acks), is_empty=is_empty, settled=done.settled)

    def _look(self, tracker: OffsetTracker, position: int) -> KnownDone:
        if self._done is None or self._done.tracker is not tracker:
            self._done = KnownDone(tracker)
        self._done.look(position)
        return self._done

    def restated(
        self, tracker: OffsetTracker, position: int, *, is_new: bool, is_in_doubt: bool
    ) -> PendingCommit | None:
        """What is to be committed where no position has moved; None: nothing has changed, or it can
        wait.
        """
        done = self._look(tracker, position) if self._policy.keeps_acks else None
        has_moved = done is not None and self._written != (position, done.settled)
        if not has_moved and not tracker.texts.has_acked:
            return None
        due = self._with_user(tracker, position, is_new=is_new)
        due = due if done is None else self._with_acks(due, done)
        if not due.number and not due.has_acks:
            return None
        if self._is_there(due, is_in_doubt=is_in_doubt):
            self._written = (position, due.settled)
            return None
        return due

    def lacks_plans(self, tracker: OffsetTracker, position: int, *, is_in_doubt: bool) -> bool:
        """Whether the group may have other plans beside its position than the tracker."""
        due = self._made(tracker, position, self._there(position), is_new=False)
        return not self._is_there(due, is_in_doubt=is_in_doubt)

    def _is_there(self, due: PendingCommit, *, is_in_doubt: bool) -> bool:
        if self._known is None or self._known == NOTHING:
            return due.is_empty and not is_in_doubt
        return self._known == due.stored

    def stored(self, due: PendingCommit) -> None:
        """The broker has stored it, and the partition is still ours."""
        self._known = due.stored
        self._user = Committed(due.position, due.user)
        self._unheard = {}
        self.lost_plans = False
        if due.settled >= 0:
            self._written = (due.position, due.settled)

    def used_up(self, due: PendingCommit) -> None:
        """The broker has stored it, for records that are still tracked."""
        if due.is_new:
            self._room.dropped += due.is_lost
            _use_up(due, due.tracker)

    def unknown(self, due: PendingCommit) -> None:
        """It is not known whether it was stored."""
        self._known = None
        if due.is_new:
            self._unheard[due.position] = due


def _use_up(due: PendingCommit, tracker: OffsetTracker) -> None:
    tracker.texts.stored(due.number, due.last)
    tracker.texts.forget_before(due.last)


def last_before(tracker: OffsetTracker, position: int) -> int:
    """The offset of the last record before a position; if it is not known, the offset before it."""
    return tracker.offsets.last_before(position, tracker.base + len(tracker.flags))


def may_be_due(metadata: OffsetMetadata, tracker: OffsetTracker) -> bool:
    """Whether it takes a closer look to say that nothing is to be committed where no position has
    moved.
    """
    return metadata.lost_plans or metadata._policy.keeps_acks or tracker.texts.has_acked
