"""The string that is stored with a position, and the one to store next. No I/O, no clock.

Three things share the one string of a partition, in this order: plans, the user's string, kept
acks. What does not fit is left out from the end.

The string belongs to its position and is made together with it. Only a new position uses up a
user's string, and only once the broker has confirmed it; with an unchanged position the string is
merely stored again. So a commit that fails needs no undoing. If it was stored and the answer was
lost, its string is used up when the next assignment finds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata import acks as ackmap
from reactive_kafka.tracking.metadata.codec import (
    LIMIT,
    decode,
    encode,
    has_topic,
    room_for_acks,
    units,
)
from reactive_kafka.tracking.metadata.done import KnownDone
from reactive_kafka.tracking.metadata.user import MetadataLimit, UserMetadata
from reactive_kafka.tracking.plans import Plans
from reactive_kafka.tracking.tracker import OffsetTracker

NOTHING = Committed(-1, "")
"""The group has no position, and that is known."""


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """One partition's share of a commit."""

    tracker: OffsetTracker
    position: int
    # The group has another position, as far as is known.
    is_new: bool
    # Stored with the position.
    text: str = ""
    # The user's string in it.
    user: str = ""
    # The number of that string; 0: it was stored there before.
    number: int = 0
    # The user's string did not fit, and was left out.
    is_lost: bool = False
    has_acks: bool = False
    has_topic: bool = False
    # Nothing is stored with the position, but perhaps the id of its topic.
    is_empty: bool = True
    # Offset of the last record before the position.
    last: int = -1
    # How many records were settled when this was made: kept acks change only with that.
    settled: int = -1

    @property
    def partition(self) -> TopicPartition:
        return self.tracker.partition

    @property
    def stored(self) -> Committed:
        """What the group is to store."""
        return Committed(self.position, self.text)


@dataclass(frozen=True, slots=True)
class MetadataPolicy:
    """What the partitions of one client store with their positions."""

    # The position right behind a record takes that record's string; otherwise each position takes
    # the newest string.
    is_exact: bool = False
    # Store which records above the position are done, as far as there is room.
    keeps_acks: bool = False
    # Store the id of the topic with every position; otherwise with plans and kept acks only.
    tells_topic: bool = False
    # How long a string the cluster stores.
    room: MetadataLimit = field(default_factory=MetadataLimit)

    def refused(self, commits: Collection[PendingCommit]) -> bool:
        """The broker found these texts too long; returns whether something can be left out."""
        # The broker does not tell its limit, only that this was too long. So the shortest text that
        # was refused is the limit from here on, and the positions are sent again at once without
        # what is over it: metadata never holds a position back. Plans are the exception: they are
        # needed, and stay.
        longest = max(
            (
                units(pending.text)
                for pending in commits
                if pending.user or pending.has_acks or pending.has_topic
            ),
            default=0,
        )
        if longest:
            self.room.refused(longest)
        return longest > 0


NO_COMMITS: Mapping[int, PendingCommit] = {}
"""No commit is of unknown outcome: so it is for nearly all partitions, nearly all the time."""


class OffsetMetadata:
    """The string that is stored with the position of one partition."""

    __slots__ = (
        "_acks_stored_at",
        "_done",
        "_known",
        "_policy",
        "_room",
        "_unanswered",
        "_user",
        "early",
        "lost_plans",
        "topic_id",
    )

    def __init__(self, policy: MetadataPolicy) -> None:
        self._policy = policy
        self._room = policy.room
        # What is done above the position, of the last tracker whose acks were kept.
        self._done: KnownDone | None = None
        # What the group has; None: not known for sure.
        self._known: Committed | None = None
        # The user's string in it, with its position.
        self._user: Committed | None = None
        # The id of the topic that is read; None: not known.
        self.topic_id: str | None = None
        # A string of the user's that was supplied before reading has started.
        self.early: str | None = None
        # Position and number of settled records whose acks are stored, or need no commit.
        self._acks_stored_at: tuple[int, int] | None = None
        # Position -> the commit of unknown outcome.
        self._unanswered = NO_COMMITS
        # An assignment has found other plans than the tracker's: a late commit overwrote them.
        self.lost_plans = False

    def starts(self, tracker: OffsetTracker, old: OffsetTracker | None) -> None:
        """The partition is read from another place; a string that waits keeps waiting.

        Args:
            old: The tracker of the place before.
        """
        later = self.early
        if later is None and old is not None:
            later = old.texts.later
        tracker.texts = UserMetadata(is_exact=self._policy.is_exact, later=later)
        self.early = None
        self._acks_stored_at = None
        self._unanswered = NO_COMMITS
        self.lost_plans = False

    def starts_elsewhere(self, tracker: OffsetTracker) -> None:
        """The partition is still ours and will be read from another place: keep what waits."""
        # An early string was supplied after the tracker's.
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
        """The partition continues where it was."""
        if self.early is not None:
            tracker.texts.store(self.early)
            self.early = None

    def found(self, tracker: OffsetTracker | None, stored: Committed | None) -> None:
        """An assignment has found this in the group."""
        self._known = NOTHING if stored is None else stored
        user = ""
        stored_plans: Plans = ()
        if stored is not None and stored.metadata:
            metadata = decode(stored.metadata, stored.offset)
            user = metadata.user
            stored_plans = metadata.plans
        self._user = Committed(self._known.offset, user)
        plans = () if tracker is None else tracker.planned_beyond(self._known.offset)
        self.lost_plans = bool(plans) and stored_plans != plans
        unanswered = self._unanswered
        self._unanswered = NO_COMMITS
        if tracker is not None and stored is not None and stored.offset in unanswered:
            # It was stored after all.
            _use_up(unanswered[stored.offset], tracker)

    def forget(self) -> None:
        """Another member may store a string for the partition from here on."""
        self._known = None
        self._user = None
        self._acks_stored_at = None
        self._unanswered = NO_COMMITS
        self.lost_plans = False

    @property
    def user(self) -> Committed | None:
        """Position and the user's string; None: not known for sure."""
        return None if self._known is None else self._user

    def units(self, tracker: OffsetTracker) -> int:
        """How long the text of the next position can be, in UTF-16 units, without making it.

        It is 0 if no acks are kept.
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
        """The commit of a position now, with the string to store with it."""
        due = self._with_user(tracker, position, is_new=is_new)
        if not self._policy.keeps_acks:
            return due
        return self._with_acks(due, self._look(tracker, position))

    def _with_user(self, tracker: OffsetTracker, position: int, *, is_new: bool) -> PendingCommit:
        texts = tracker.texts
        last = last_before(tracker, position) if self._policy.is_exact else -1
        supplied = texts.for_new(last) if is_new else texts.for_same(last)
        if supplied is not None:
            due = self._make(
                tracker, position, supplied.text, is_new=is_new, number=supplied.number, last=last
            )
            if is_new or not due.is_lost:
                return due
        return self._make(tracker, position, self._user_text_at(position), is_new=is_new, last=last)

    def _user_text_at(self, position: int) -> str:
        """The user's string that is stored with this very position."""
        if self._user is None or self._user.offset != position:
            return ""
        return self._user.metadata

    def _make(
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
        topic = ""
        if plans or self._policy.tells_topic:
            topic = self.topic_id or ""
        # Most partitions store nothing with their positions: nothing has to be encoded for them.
        if not (plans or user or topic):
            return PendingCommit(tracker, position, is_new, number=number, last=last)
        limit = self._room.for_user
        text = encode(position, plans, user, topic=topic, limit=limit)
        without_user = ""
        if plans or topic:
            without_user = encode(position, plans, "", topic=topic, limit=limit)
        # encode() has left the user's string out: it did not fit.
        is_lost = bool(user) and text == without_user
        return PendingCommit(
            tracker,
            position,
            is_new,
            text,
            "" if is_lost else user,
            number,
            is_lost,
            has_topic=has_topic(text, topic),
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
        if acks:
            text = encode(position, plans, due.user, acks, topic=topic)
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
        """The commit of a position that has not moved; None: its string needs no commit."""
        done = self._look(tracker, position) if self._policy.keeps_acks else None
        has_moved = done is not None and self._acks_stored_at != (position, done.settled)
        if not has_moved and not tracker.texts.has_acked:
            return None
        due = self._with_user(tracker, position, is_new=is_new)
        if done is not None:
            due = self._with_acks(due, done)
        if not due.number and not due.has_acks:
            return None
        if self._is_there(due, is_in_doubt=is_in_doubt):
            self._acks_stored_at = (position, due.settled)
            return None
        return due

    def may_be_due(self, tracker: OffsetTracker) -> bool:
        """Whether a string may have to be committed although no position has moved."""
        return self.lost_plans or self._policy.keeps_acks or tracker.texts.has_acked

    def lacks_plans(self, tracker: OffsetTracker, position: int, *, is_in_doubt: bool) -> bool:
        """Whether the group may have other plans with its position than the tracker."""
        due = self._make(tracker, position, self._user_text_at(position), is_new=False)
        return not self._is_there(due, is_in_doubt=is_in_doubt)

    def _is_there(self, due: PendingCommit, *, is_in_doubt: bool) -> bool:
        if self._known is None or self._known == NOTHING:
            return due.is_empty and not is_in_doubt
        return self._known == due.stored

    def stored(self, due: PendingCommit) -> None:
        """The broker has stored it, and the partition is still ours: the group has it."""
        self._known = due.stored
        self._user = Committed(due.position, due.user)
        self._unanswered = NO_COMMITS
        self.lost_plans = False
        if due.settled >= 0:
            self._acks_stored_at = (due.position, due.settled)

    def used_up(self, due: PendingCommit) -> None:
        """The broker has stored it, and its records are still tracked: its string is used up."""
        if due.is_new:
            self._room.dropped += due.is_lost
            _use_up(due, due.tracker)

    def unknown(self, due: PendingCommit) -> None:
        """It is not known whether it was stored."""
        self._known = None
        if due.is_new:
            self._unanswered = {**self._unanswered, due.position: due}


def _use_up(due: PendingCommit, tracker: OffsetTracker) -> None:
    tracker.texts.stored(due.number, due.last)
    tracker.texts.forget_before(due.last)


def last_before(tracker: OffsetTracker, position: int) -> int:
    """The offset of the last record before a position; if it is not known, the offset before it."""
    return tracker.offsets.last_before(position, tracker.base + len(tracker.flags))
