"""Finds records that are overdue, and says when to look next. No I/O, no clock.

Each partition has one answer, its lowest record that is overdue: where records start in order, a
look costs one step a partition. It is SmallRye's ``throttled.unprocessed-record-max-age.ms``, but
judged at the limit and not at the next flush.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from reactive_kafka.tracking.tracker import AGES, NOT_STARTED, OffsetTracker

RECHECK_S = 0.25
"""How soon a look finds that a poison record has settled."""

LOOK_S = 1.0
"""The longest time between two looks. If one comes later by more than this, the process did not run
meanwhile, and that time does not count."""


@dataclass(frozen=True, slots=True)
class Poison:
    """A record whose handler has had it for longer than the limit.

    Two of the same record are equal.
    """

    tracker: OffsetTracker
    index: int
    offset: int = field(compare=False)
    # When its handler got it (monotonic), moved on by the time that did not count.
    since: float = field(compare=False)
    # Records of its partition that were received after it and are not settled.
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
        """The time between the two does not count."""
        self._lost.append((since, until))

    def age_s(self, since: float, now: float) -> float:
        """How much of the time from *since* to *now* counts."""
        return max(0.0, now - self.due(since, 0.0))

    def before(self, age_s: float, now: float) -> float:
        """The moment that is *age_s* ago at *now*: what began then or earlier is that old."""
        moment = now - age_s
        for begin, until in reversed(self._lost):
            if until <= moment:
                break
            moment -= until - begin
        return moment

    def due(self, since: float, age_s: float) -> float:
        """When something from *since* will be *age_s* old, if all time counts from now on."""
        lost_s = sum(until - max(begin, since) for begin, until in self._lost if until > since)
        return since + age_s + lost_s

    def forget_before(self, moment: float) -> None:
        """Nothing that began before *moment* is asked about any more."""
        if self._lost and self._lost[0][1] <= moment:
            self._lost = [lost for lost in self._lost if lost[1] > moment]


class PoisonWatch:
    """Remembers what is overdue, so that each poison record is reported once.

    It has to be asked when :meth:`next_look` says. If it is asked later, this process did not run,
    and that time counts for no record's age.

    Args:
        max_age_s: The limit; 0 turns the watch off.
    """

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._time = CountedTime()
        # When the next look is to come at the latest.
        self._expected: float | None = None
        self._reported: set[Poison] = set()
        self.current: tuple[Poison, ...] = ()

    def begin(self, now: float) -> None:
        """There is something to watch from now on: count the time as if this were a look."""
        self._expected = now + LOOK_S if self._max_age_s else None

    def rest(self) -> bool:
        """Rest while nothing is in flight, until :meth:`begin`; False if a look is still needed."""
        if self._reported:
            return False
        self._expected = None
        return True

    def look(self, trackers: Iterable[OffsetTracker], now: float) -> list[Poison]:
        """What is overdue at *now* and was not reported before.

        What was out of sight during a rebalance is not reported again.
        """
        if not self._max_age_s:
            return []
        # A look that comes late says that the process was stopped or its loop blocked: no handler
        # could run, and no verdict could be taken. Without this every record in flight would be
        # poison after a suspended laptop wakes up.
        if self._expected is not None and now > self._expected + LOOK_S:
            self._time.lose(self._expected, now)
        self._expected = None
        before = self._time.before(self._max_age_s, now)
        found = []
        for tracker in trackers:
            poison = self._overdue(tracker, before, now)
            if poison is not None:
                found.append(poison)
        new = [poison for poison in found if poison not in self._reported]
        self.current = tuple(found)
        # Found ones first: of equal ones the set keeps these, which are up to date.
        self._reported = set(found) | self._reported
        return new

    def settled(self) -> list[Poison]:
        """What was reported and has a verdict by now; each is returned once.

        Those whose partition has gone are forgotten.
        """
        over = [poison for poison in self._reported if not poison.is_open]
        self._reported.difference_update(over)
        kept = [poison for poison in over if not poison.tracker.is_closed]
        return sorted(kept, key=lambda poison: poison.since)

    def next_look(self, trackers: Iterable[OffsetTracker], now: float) -> float | None:
        """When to look again; None if the watch is off.

        Args:
            trackers: Also suspended ones: the records of a retained partition keep their age.
        """
        if not self._max_age_s:
            return None
        starts = []
        for tracker in trackers:
            started = oldest_started(tracker)
            if started is not None:
                starts.append(started[1])
        oldest = min(starts, default=now)
        self._time.forget_before(oldest)
        due = self._time.due(oldest, self._max_age_s)
        if due <= now:
            # It is overdue: look soon whether it has settled.
            due = now + min(RECHECK_S, self._max_age_s)
        self._expected = min(due, now + LOOK_S)
        return self._expected

    def age_s(self, since: float, now: float) -> float:
        """How long a handler has had a record at *now*, without the time that did not count."""
        return self._time.age_s(since, now)

    def _overdue(self, tracker: OffsetTracker, before: float, now: float) -> Poison | None:
        found = overdue(tracker, before)
        if found is None:
            return None
        index, since = found
        moved_on = now - self._time.age_s(since, now)
        # Records before it may be unsettled, too: with keys, and where clocks were stopped.
        waiting = tracker.unsettled - tracker.unsettled_up_to(index)
        return Poison(tracker, index, tracker.offset_of(index), moved_on, waiting)


def oldest_started(tracker: OffsetTracker) -> tuple[int, float] | None:
    """The record that a handler has had for longest: its arrival number, and since when."""
    return min(_with_a_handler(tracker), key=itemgetter(1), default=None)


def overdue(tracker: OffsetTracker, before: float) -> tuple[int, float] | None:
    """The lowest record without a verdict that a handler has had since *before* or longer."""
    for index, since in _with_a_handler(tracker):
        if since <= before:
            return index, since
    return None


def _with_a_handler(tracker: OffsetTracker) -> Iterator[tuple[int, float]]:
    """Yield the records that a handler has and that age: arrival number, and since when it has it.

    Ascending by number. Where no later record can be older, the first one is enough.
    """
    # A worker notes only now and then which records of its run are done.
    tracker.catch_up()
    ageing = tracker.ageing()
    place = ageing.find(AGES)
    while place >= 0:
        since = tracker.started[place]
        if since != NOT_STARTED:
            yield tracker.base + place, since
            # Records that start in order may still have ages that are not: a clock that was stopped
            # makes its record younger.
            if tracker.in_order and tracker.ages_in_order:
                return
        elif tracker.in_order:
            # No record behind the first one that waits has started.
            return
        place = ageing.find(AGES, place + 1)
