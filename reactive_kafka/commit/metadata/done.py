"""What is known to be done above a position: what kept acks are made of. No I/O, no clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain, compress, pairwise
from operator import itemgetter

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.commit.window import SETTLED

_NOT_DONE = bytes(flag != SETTLED for flag in range(256))


def known_done(tracker: OffsetTracker, position: int) -> tuple[list[int], int]:
    """What is known of the records from a position on; nothing where records behind it were never read.

    Returns:
        The offsets that are not done, ascending, and where (exclusive) the last one that is done ends: everything
        else before that is done. What was kept of an earlier assignment is among it.
    """
    until = _done_until(tracker)
    if position < tracker.start or until <= position:
        return [], position
    found = list(compress(chain.from_iterable(_offsets(tracker)), tracker.flags.translate(_NOT_DONE)))
    if tracker.kept is not None:
        found += tracker.kept.open_between(tracker.position, until)
    return found[bisect_left(found, position) : bisect_left(found, until)], until


def bounds_of_done(tracker: OffsetTracker) -> tuple[int, int]:
    """At most so many offsets are open among how many from ``committable`` on; cheap, for who watches the size."""
    until = _done_until(tracker)
    flags, kept = tracker.flags, tracker.kept
    last = flags.rfind(SETTLED) + 1
    count = last - flags.count(SETTLED, 0, last)
    if kept is not None and kept.until >= until:
        count = len(flags) - flags.count(SETTLED) + len(kept.open_between(tracker.position, kept.until))
    return count, max(0, until - tracker.committable)


def _done_until(tracker: OffsetTracker) -> int:
    """Where the last record ends that is known to be done."""
    safe = tracker.safe
    last = tracker.flags.rfind(SETTLED)
    until = tracker.offset_of(tracker.base + last) + 1 if last >= 0 else safe
    return until if tracker.kept is None else max(until, tracker.kept.until)


def last_before(tracker: OffsetTracker, position: int) -> int:
    """Offset of the last record before a position that is committed; where none is known, the one before it."""
    runs = tracker.runs
    at = bisect_left(runs, position, key=itemgetter(1)) - 1
    if at < 0:
        return tracker.passed if 0 <= tracker.passed < position else position - 1
    arrival, offset = runs[at]
    ends = runs[at + 1][0] if at + 1 < len(runs) else tracker.base + len(tracker.flags)
    return min(position, offset + ends - arrival) - 1


def _offsets(tracker: OffsetTracker) -> Iterator[range]:
    """The offsets of the records in the window, ascending."""
    behind = tracker.base + len(tracker.flags)
    for (arrival, offset), (end, _) in pairwise((*tracker.runs, (behind, 0))):
        first = max(arrival, tracker.base)
        if first < end:
            yield range(offset + first - arrival, offset + end - arrival)
