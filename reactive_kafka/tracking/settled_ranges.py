"""Which offsets of a partition are settled above its committed position. Pure."""

from __future__ import annotations

from reactive_kafka.tracking.tracker import NACKED, OPEN_FLAG, SETTLED, OffsetTracker

OffsetRange = tuple[int, int]
"""The first offset of a range, and the one after its last."""

MOST_RANGES = 24


def settled_above(tracker: OffsetTracker, most: int = MOST_RANGES) -> tuple[OffsetRange, ...]:
    """Return the ranges of settled offsets from the committed position on, in order.

    Records that finished behind an unsettled one lie in ranges of their own. If there are more than
    *most*, the last range reaches over all that follow, unsettled records included: a picture
    cannot show them apart.
    """
    if tracker.is_closed:
        return ()
    tracker.catch_up()
    flags = tracker.flags
    start = tracker.committed
    if start is None:
        start = tracker.start
    # What has left the window is settled.
    reached = tracker.offset_of(tracker.base) if flags else tracker.position
    ranges: list[OffsetRange] = [(start, reached)] if reached > start else []
    place = flags.find(SETTLED)
    while place >= 0:
        end = _end_of_run(flags, place)
        if len(ranges) >= most:
            end = flags.rfind(SETTLED) + 1
            _append(ranges, ranges.pop()[0], _after(tracker, end))
            break
        _append(ranges, tracker.offset_of(tracker.base + place), _after(tracker, end))
        place = flags.find(SETTLED, end)
    return tuple(ranges)


def _end_of_run(flags: bytes | bytearray, place: int) -> int:
    """Return where the settled records end that begin at *place*."""
    found = (flags.find(OPEN_FLAG, place), flags.find(NACKED, place))
    return min((end for end in found if end >= 0), default=len(flags))


def _after(tracker: OffsetTracker, place: int) -> int:
    """Return the offset after the record before *place*."""
    return tracker.offset_of(tracker.base + place - 1) + 1


def _append(ranges: list[OffsetRange], start: int, end: int) -> None:
    """Add a range, and join it with the last one if nothing lies between them."""
    if ranges and ranges[-1][1] >= start:
        start = ranges.pop()[0]
    ranges.append((start, end))
