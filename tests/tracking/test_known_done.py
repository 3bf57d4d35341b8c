"""What is done above a position, kept up from tick to tick: as if it were computed anew, by work
for what is new.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import SupportsIndex

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.tracking.metadata.acks import AckMap
from reactive_kafka.tracking.metadata.done import KnownDone
from reactive_kafka.tracking.tracker import SETTLED, OffsetTracker
from tests.app.helpers import tp

PIECE = 4096
MANY = 300_000
ACTS = ("deliver", "settle", "range", "up to", "nack", "letter", "look", "look", "end")


def anew(tracker: OffsetTracker, position: int) -> tuple[list[int], int]:
    """The offsets from a position on that are not done, and where the last done one ends, record by
    record.
    """
    safe = tracker.safe
    offsets = [tracker.offset_of(tracker.base + at) for at in range(tracker.window)]
    done = [offset for offset, flag in zip(offsets, tracker.flags, strict=True) if flag == SETTLED]
    until = done[-1] + 1 if done else safe
    if tracker.kept is not None:
        until = max(until, tracker.kept.until)
    if position < tracker.start or until <= position:
        return [], position
    found = sorted(set(offsets) - set(done))
    if tracker.kept is not None:
        found += tracker.kept.open_between(tracker.position, until)
    return found[bisect_left(found, position) : bisect_left(found, until)], until


@given(st.data(), st.integers(1, 9), st.integers(0, 40))
def test_it_is_what_is_found_anew_after_anything_that_happens(
    data: st.DataObject, piece: int, most: int
) -> None:
    start = data.draw(st.integers(0, 3))
    tracker = OffsetTracker(tp(), start)
    if data.draw(st.booleans()):
        kept = data.draw(st.lists(st.integers(start, start + 60), unique=True).map(sorted))
        tracker.kept = AckMap(start, start + 61, array("q", kept))
    done = KnownDone(tracker, most=most, piece=piece)
    came = nacked = 0
    for _ in range(data.draw(st.integers(1, 25))):
        index = data.draw(st.integers(0, came + 1))
        match data.draw(st.sampled_from(ACTS)):
            case "deliver":
                steps = data.draw(st.lists(st.integers(1, 3), max_size=12))
                offsets = [tracker.position + sum(steps[: at + 1]) - 1 for at in range(len(steps))]
                tracker.deliver(
                    offsets, tracker.position + sum(steps) + data.draw(st.integers(0, 2))
                )
                came += len(steps)
            case "settle" if index < came:
                tracker.settle(index)
            case "range":
                tracker.settle_range(
                    index, data.draw(st.integers(index, came)) if index <= came else index
                )
            case "up to" if index < came:
                tracker.settle_up_to(index)
            case "nack" if index < came:
                nacked = index if tracker.nack(index) else nacked
            case "letter" if index < came:
                tracker.settle_nacked(nacked)
            case "end" if data.draw(st.integers(0, 5)) == 0:
                tracker.close()
                came = 0
                break
            case "look":
                position = data.draw(
                    st.just(tracker.committable) | st.integers(0, tracker.position + 2)
                )
                _is_as_anew(done, tracker, position, most)
    _is_as_anew(done, tracker, tracker.committable, most)


def _is_as_anew(done: KnownDone, tracker: OffsetTracker, position: int, most: int) -> None:
    done.look(position)
    told, until = done.above(position)
    expected, expected_until = anew(tracker, position)
    assert until == expected_until
    assert told == expected if len(expected) <= most else told[: most + 1] == expected[: most + 1]
    assert done.settled == tracker.settled


class Counted(bytearray):
    """Flags that count how many of them somebody has looked at."""

    looked_at = 0

    def __getitem__(self, key: SupportsIndex | slice) -> bytearray | int:  # type: ignore[override]
        found = super().__getitem__(key)
        self.looked_at += len(found) if isinstance(found, bytearray) else 1
        return found

    def count(self, value: int, start: int = 0, stop: int | None = None) -> int:  # type: ignore[override]
        stop = len(self) if stop is None else stop
        self.looked_at += max(0, stop - start)
        return super().count(value, start, stop)


def looked_at(tracker: OffsetTracker, done: KnownDone) -> int:
    """How many flags one tick looks at."""
    assert isinstance(tracker.flags, Counted)
    before = tracker.flags.looked_at
    done.look(tracker.committable)
    done.above(tracker.committable)
    assert done.settled >= 0
    return tracker.flags.looked_at - before


def behind_a_stuck_one(count: int) -> OffsetTracker:
    tracker = OffsetTracker(tp(), 0)
    tracker.flags = Counted()
    tracker.deliver(range(count), count)
    tracker.settle_range(1, count)
    return tracker


def test_what_is_settled_behind_a_stuck_record_is_looked_at_once() -> None:
    tracker = behind_a_stuck_one(MANY)
    done = KnownDone(tracker)
    assert looked_at(tracker, done) >= MANY
    first = tracker.deliver(range(MANY, MANY + 100), MANY + 100)
    tracker.settle_range(first, first + 100)
    assert looked_at(tracker, done) <= 2 * PIECE + 2 * 100


def test_no_more_is_looked_at_than_a_text_has_room_for() -> None:
    tracker = OffsetTracker(tp(), 0)
    tracker.flags = Counted()
    tracker.deliver(range(MANY), MANY)
    tracker.settle(MANY - 1)
    done = KnownDone(tracker)
    done.look(0)
    assert tracker.flags.looked_at <= 3 * (6 * 4096 + PIECE)
    told, until = done.above(0)
    assert until == MANY
    assert told == list(range(len(told)))
    assert len(told) > 6 * 4096
