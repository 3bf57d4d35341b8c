"""Which position of one partition is safe to commit, and which may have been stored. No I/O, no
clock, no locks.
"""

from __future__ import annotations

from array import array
from itertools import compress
from typing import NamedTuple

from reactive_kafka.commit.metadata.acks import AckMap
from reactive_kafka.commit.metadata.codec import has_room
from reactive_kafka.commit.metadata.user import UserMetadata
from reactive_kafka.commit.plans import PlanBook, PlannedRange, Plans
from reactive_kafka.commit.window import CLOSED_BASE, NOT_SETTLED, OPEN, SETTLED, RecordWindow
from reactive_kafka.records import TopicPartition

REPEAT_AFTER_S = 1.0
REPEAT_UNTIL_S = 60.0
"""When the first commit that succeeded behind one of unknown outcome is sent again, each wait twice
the one before; and how long after it: a request that its connection has lost may still be on its
way, and then it may not."""


class OffsetTracker(RecordWindow):
    """The records of one partition, from delivery to settlement, during one assignment.

    Records may be *planned* to be handled in ranges. No position that is given out for a commit
    lies inside of a planned range, done or not, until the group has a position behind it: see
    :mod:`reactive_kafka.commit.plans`.
    """

    __slots__ = (
        "_book",
        "_left",
        "_seen",
        "attempted",
        "committed",
        "counted",
        "kept",
        "limit",
        "owner",
        "start",
        "texts",
        "uncommitted_from",
    )

    # So many records are counted each time, before it is noted which of them are left.
    LONG = 8192

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        *,
        committed: int | None = None,
        commit_start: bool = False,
    ) -> None:
        super().__init__(partition, position)
        self.start = position
        # What the group has stored for it.
        self.committed = committed
        self.attempted = position if committed is None else min(committed, position)
        # -1: the start itself is worth a commit.
        self.uncommitted_from = -1 if commit_start else self.attempted
        # Behind it are offsets that are not read: no position above is committed.
        self.limit = CLOSED_BASE
        self.counted = 0
        # What an earlier assignment knew as done; it is not delivered again.
        self.kept: AckMap | None = None
        # The user's strings that wait to be stored; the engine's kind once it is tracked.
        self.texts = UserMetadata()
        # The shell's handle, for a message that is settled.
        self.owner: object = None
        # None while nothing was planned.
        self._book: PlanBook | None = None
        # Arrival number, and those before it that may not be settled.
        self._seen = 0
        self._left = list[int]()

    def close(self) -> None:
        """End the assignment: nothing is tracked any more, and every later verdict is refused."""
        if self.base == CLOSED_BASE:
            return
        self.compact()
        self.settled_before = self.settled
        self.run_first = self.run_at = -1
        # Every verdict compares its arrival number with the base anyway. So a late one is refused
        # on the same path as one that comes twice, and the hot path needs no check of its own for
        # an assignment that is over.
        self.base = CLOSED_BASE
        self.flags = bytearray()
        self.started = array("d")
        self.standing = bytearray()
        self._stood_since = {}
        self.runs = []
        self._book = None

    @property
    def is_closed(self) -> bool:
        """Whether the assignment is over."""
        return self.base == CLOSED_BASE

    @property
    def plans(self) -> Plans:
        """The ranges that are planned and not done, ascending."""
        return self._book.plans if self._book else ()

    def plan(self, planned: PlannedRange) -> None:
        """Records are to be handled as one range; they need not have been delivered yet.

        Nothing is planned once the assignment is over, as for the two methods that follow.
        ValueError: it overlaps another one, or begins before a position that may have been
        committed.
        """
        if not self.is_closed:
            if planned.start < self.committable:
                raise ValueError(
                    f"{self.partition}: {planned} begins before the position {self.committable}"
                )
            self._book = self._book or PlanBook()
            self._book.add(planned)

    def replan(self, old: PlannedRange, *new: PlannedRange) -> None:
        """A planned range is handled in parts from here on. Raises as :meth:`PlanBook.split`
        does.
        """
        if not self.is_closed:
            (self._book or PlanBook()).split(old, new)

    def plan_done(self, planned: PlannedRange, *, remember: bool = True) -> None:
        """A planned range is settled, and remembered until the group is behind it, unless nothing
        is ever committed.
        """
        if not self.is_closed:
            (self._book or PlanBook()).finish(
                planned, self.uncommitted_from if remember else planned.until
            )

    def planned_beyond(self, position: int) -> Plans:
        """The ranges that whoever goes on from *position* must keep to: those that are done,
        too.
        """
        return self._book.beyond(position) if self._book else ()

    def has_room_for(self, planned: PlannedRange) -> bool:
        """Whether one more plan would be stored beside the others: what is too much is left out,
        from the end.
        """
        position = self.committable
        return has_room(position, self.planned_beyond(position), planned)

    def outside_plans(self, position: int) -> int:
        """The position, or the start of the planned range that it lies inside of."""
        return self._book.outside(position) if self._book else position

    @property
    def committable(self) -> int:
        """The highest position with no unsettled record before it, inside of no planned range, and
        behind no hole.
        """
        return min(self.outside_plans(self.safe), self.limit)

    @property
    def safe(self) -> int:
        """The highest position with no unsettled record before it, planned ranges or not."""
        self.compact()
        return self.offset_of(self.base) if self.flags else self.position

    @property
    def highest(self) -> int:
        """The position after the highest settled record, whatever lies before it; ``committable``
        or higher.
        """
        safe = self.committable
        last = self.flags.rfind(SETTLED)
        return safe if last < 0 else self.outside_plans(self.offset_of(self.base + last) + 1)

    @property
    def settled(self) -> int:
        """Records settled in this assignment, in any way."""
        self.catch_up()
        return self.settled_before + self.flags.count(SETTLED)

    def newly_acked(self) -> int:
        """Records acked since this was asked last, so that the hot path counts nothing; no failure
        strategy's.
        """
        acked = self.settled - self.failed
        new = acked - self.counted
        self.counted = acked
        return new

    @property
    def unsettled(self) -> int:
        """Records delivered (or queued) and not settled."""
        self.catch_up()
        flags = self.flags
        base = self.base
        left = self._left = self._left and [
            one for one in self._left if one >= base and flags[one - base] != SETTLED
        ]
        since = max(self._seen - base, 0)
        count = len(left) + len(flags) - since - flags.count(SETTLED, since)
        # Each poll asks. Behind a straggler it would count a million each time, of which all but a
        # few are done.
        if len(flags) - since > max(self.LONG, 8 * count):
            left += compress(
                range(base + since, base + len(flags)), flags[since:].translate(NOT_SETTLED)
            )
            self._seen = base + len(flags)
        return count

    def unsettled_up_to(self, index: int) -> int:
        """Records that are not settled, up to the one with this arrival number."""
        self.catch_up()
        behind = max(0, index + 1 - self.base)
        return len(self.flags[:behind]) - self.flags.count(SETTLED, 0, behind)

    @property
    def window(self) -> int:
        """Records held in memory: the unsettled ones and those settled behind the first of them."""
        return len(self.flags)

    @property
    def open(self) -> int:
        """Records without a verdict, waiting or with a handler."""
        self.catch_up()
        return self.flags.count(OPEN)

    def has_settled(self, start: int, stop: int) -> bool:
        """Whether the records *start* up to *stop* (exclusive) are all settled; False when the
        assignment is over.
        """
        self.catch_up()
        first = max(0, start - self.base)
        last = stop - self.base
        return not self.is_closed and (
            last <= 0 or self.flags.count(SETTLED, first, last) == last - first
        )


class _Repeats(NamedTuple):
    # When the first commit behind the one of unknown outcome succeeded.
    since: float
    # When to send it again.
    next_at: float


class UnknownCommits:
    """What is not known of the commits of one partition; True while the outcome of one of them is
    unknown.

    Such a commit may land late, over a newer one, and move the position back. So the first commit
    that succeeds after it is sent again, at growing intervals, for as long as the other may be on
    its way.
    """

    __slots__ = ("_is_unknown", "_lowest", "_must_repeat", "_repeats")

    def __init__(self) -> None:
        self._is_unknown = False
        # Of the commit that succeeded behind it; None: none has.
        self._repeats: _Repeats | None = None
        # It has to be sent again though nothing is new.
        self._must_repeat = False
        # The lowest position of unknown outcome.
        self._lowest: int | None = None

    def __bool__(self) -> bool:
        return self._is_unknown

    def end(self) -> None:
        """The generation is over: the broker refuses what comes late from it."""
        self._is_unknown = self._must_repeat = False
        self._repeats = None

    def forget(self) -> None:
        """What may be stored for the partition is another member's."""
        self._lowest = None

    def lowest(self, position: int) -> int:
        """The lowest position that may be stored, or the one given if that is lower."""
        return position if self._lowest is None else min(position, self._lowest)

    def starts_elsewhere(self) -> None:
        """The partition is read from another place: only a commit from there ends what is
        unknown.
        """
        self._lowest = self._repeats = None
        self._must_repeat = False

    def add(self, position: int, *, is_repeated: bool) -> None:
        """It is not known whether a position was stored; *is_repeated*: it had been, and nothing
        new may go over it.
        """
        self._must_repeat = self._must_repeat or (is_repeated and self._repeats is not None)
        self._is_unknown = True
        self._repeats = None
        self._lowest = self.lowest(position)

    def stored(self, now: float, *, was_repeated: bool, is_last: bool) -> None:
        """A commit behind one of unknown outcome has succeeded: it is to be repeated, or was for
        long enough.
        """
        repeats = self._repeats
        if not self._is_unknown:
            return
        if repeats is None:
            self._must_repeat = False
            self._repeats = _Repeats(now, now + REPEAT_AFTER_S)
        elif was_repeated and (is_last or now >= repeats.since + REPEAT_UNTIL_S):
            self.end()
        elif was_repeated:
            # Each wait is as long as what has passed since the first success, so that minute costs
            # a partition at rest seven commits and not sixty.
            next_at = now + max(REPEAT_AFTER_S, now - repeats.since)
            self._repeats = repeats._replace(next_at=min(next_at, repeats.since + REPEAT_UNTIL_S))

    def is_due(self, now: float, *, is_last: bool) -> bool:
        """Whether what is stored has to be sent once more now."""
        return (
            self._must_repeat if self._repeats is None else is_last or now >= self._repeats.next_at
        )

    @property
    def next_at(self) -> float | None:
        """When something has to be sent once more, by the monotonic clock; None: nothing has."""
        if self._repeats is not None:
            return self._repeats.next_at
        return 0.0 if self._must_repeat else None
