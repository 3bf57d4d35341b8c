"""Which record is overdue, and when to look next. No I/O, no clock.

Each partition has one answer, its lowest record that is overdue: looking costs one step a partition
where records start in order. SmallRye's ``throttled.unprocessed-record-max-age.ms``, judged at the
limit and not at the next flush.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from reactive_kafka.tracking.tracker import NOT_STARTED, OffsetTracker

RECHECK_S = 0.25
"""How soon a poison record that has settled is seen to have settled."""

LOOK_S = 1.0
"""How long between two looks at most; one that comes late by more than this is late by time that
did not pass.
"""


@dataclass(frozen=True, slots=True)
class Poison:
    """A record whose handler has had it for longer than the limit; two of one record are equal."""

    tracker: OffsetTracker
    index: int
    offset: int = field(compare=False)
    # When its handler got it (monotonic), moved on by the time that did not count.
    since: float = field(compare=False)
    # Records received behind it in its partition, and not settled.
    waiting: int = field(compare=False)

    @property
    def is_open(self) -> bool:
        """Whether it has no verdict yet, and its tracker may still take one."""
        return self.tracker.is_open(self.index)


class CountedTime:
    """The monotonic clock without the stretches in which this process did not run.

    A process that was stopped, or a loop that was blocked, could neither run a handler nor take its
    verdict.
    """

    def __init__(self) -> None:
        # (from, to), ascending and apart.
        self._lost: list[tuple[float, float]] = []

    def lose(self, since: float, until: float) -> None:
        """What lies between the two does not count."""
        self._lost.append((since, until))

    def age_s(self, since: float, now: float) -> float:
        """How much of the time from *since* to *now* counts."""
        return max(0.0, now - self.due(since, 0.0))

    def before(self, age_s: float, now: float) -> float:
        """The last moment that is *age_s* old at *now*: what began then, or earlier, is at least
        that old.
        """
        moment = now - age_s
        for begin, until in reversed(self._lost):
            if until <= moment:
                break
            moment -= until - begin
        return moment

    def due(self, since: float, age_s: float) -> float:
        """When what began at *since* will be *age_s* old, if all time counts from now on."""
        return (
            since
            + age_s
            + sum(until - max(begin, since) for begin, until in self._lost if until > since)
        )

    def forget_before(self, moment: float) -> None:
        """Nothing that began before *moment* is asked about any more."""
        if self._lost and self._lost[0][1] <= moment:
            self._lost = [lost for lost in self._lost if lost[1] > moment]


class PoisonWatch:
    """Remembers what is overdue, so that each poison record is reported once; a limit of 0 turns it
    off.

    It is to be asked when :meth:`next_look` says: where that was not possible, this process did not
    run, and the time counts for no record's age.
    """

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._time = CountedTime()
        self._expected: float | None = None
        self._reported: set[Poison] = set()
        self.current: tuple[Poison, ...] = ()

    def begin(self, now: float) -> None:
        """Something is to be watched from now on, where nothing was: time counts as if this were a
        look.
        """
        self._expected = now + LOOK_S if self._max_age_s else None

    def rest(self) -> bool:
        """Where nothing is in flight: whether nothing needs a look before :meth:`begin`; none is
        expected then.
        """
        if self._reported:
            return False
        self._expected = None
        return True

    def look(self, trackers: Iterable[OffsetTracker], now: float) -> list[Poison]:
        """What is overdue at *now* and was not reported before: what a rebalance has put out of
        sight is not new.
        """
        if not self._max_age_s:
            return []
        # A look that comes late says that the process was stopped or its loop blocked: no handler
        # could go on, and no verdict could be taken. Without this every record in flight would be
        # poison after a suspended laptop wakes up.
        if self._expected is not None and now > self._expected + LOOK_S:
            self._time.lose(self._expected, now)
        self._expected = None
        before = self._time.before(self._max_age_s, now)
        found = [poison for tracker in trackers if (poison := self._overdue(tracker, before, now))]
        new = [poison for poison in found if poison not in self._reported]
        self.current = tuple(found)
        # As they were found last.
        self._reported = set(found) | self._reported
        return new

    def settled(self) -> list[Poison]:
        """What was reported and has a verdict by now, each told once; those whose partition has
        gone are forgotten.
        """
        over = [poison for poison in self._reported if not poison.is_open]
        self._reported.difference_update(over)
        return sorted((one for one in over if not one.tracker.is_closed), key=lambda one: one.since)

    def next_look(self, trackers: Iterable[OffsetTracker], now: float) -> float | None:
        """When to look again; None if the watch is off. Suspended trackers count: what is retained
        has its age.
        """
        if not self._max_age_s:
            return None
        oldest = min(
            (found[1] for tracker in trackers if (found := oldest_started(tracker))), default=now
        )
        self._time.forget_before(oldest)
        due = self._time.due(oldest, self._max_age_s)
        if due <= now:
            # overdue: look soon whether it has settled.
            due = now + min(RECHECK_S, self._max_age_s)
        self._expected = min(due, now + LOOK_S)
        return self._expected

    def age_s(self, since: float, now: float) -> float:
        """How long a handler has had a record at *now*, the time that did not count left out."""
        return self._time.age_s(since, now)

    def _overdue(self, tracker: OffsetTracker, before: float, now: float) -> Poison | None:
        found = overdue(tracker, before)
        if found is None:
            return None
        index, since = found
        moved_on = now - self._time.age_s(since, now)
        # Records before it may be unsettled, too: with keys, and where their clocks have stood.
        behind = tracker.unsettled - tracker.unsettled_up_to(index)
        return Poison(tracker, index, tracker.offset_of(index), moved_on, behind)


def oldest_started(tracker: OffsetTracker) -> tuple[int, float] | None:
    """The record without a verdict that a handler has had for longest: its arrival number, and
    since when.
    """
    return min(_with_a_handler(tracker), key=itemgetter(1), default=None)


def overdue(tracker: OffsetTracker, before: float) -> tuple[int, float] | None:
    """The lowest record without a verdict that a handler has had since *before* or longer."""
    return next((found for found in _with_a_handler(tracker) if found[1] <= before), None)


def _with_a_handler(tracker: OffsetTracker) -> Iterator[tuple[int, float]]:
    """Arrival number and start of the records that a handler has, ascending."""
    tracker.catch_up()
    ageing = tracker.ageing()
    at = ageing.find(0)
    while at >= 0:
        since = tracker.started[at]
        if since != NOT_STARTED:
            yield tracker.base + at, since
            # And so no other can be older.
            if tracker.in_order and tracker.ages_in_order:
                return
        elif tracker.in_order:
            # None has been started behind the first one that waits.
            return
        at = ageing.find(0, at + 1)
