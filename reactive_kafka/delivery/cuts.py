"""How queued records are cut into Spark batches. No I/O, no clock.

A batch takes a run of records from each of several partitions. Planned ranges that were not run in this assignment
(after a crash, by another owner, by a cancelled job) come first and whole: a range is run again exactly as it was cut,
or a sink that is keyed by range ids would hold records twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reactive_kafka.commit.plans import PlannedRange
from reactive_kafka.delivery.lane import Lane, Slice

Weigh = Callable[[Sequence[Any]], int]
"""The size of a piece of records, in bytes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What closes a batch, whichever comes first. An empty batch takes one record, however large it is.

    Attributes:
        is_even: Take as many records from each partition, so that the executors, which read one each, end together.
            Else take all of one partition after the other, so that some are left for a concurrent job.
    """

    max_records: int
    max_bytes: int
    max_wait_s: float
    is_even: bool = False


class Waiting(NamedTuple):
    """The records of one lane that may go into the next batch.

    Attributes:
        records: How many of its next records.
        planned: The range that they are, to be run as a whole; None: they may be cut anywhere.
        is_whole: All of the planned range has been read.
    """

    lane: Lane
    records: int
    arrived: float
    planned: PlannedRange | None = None
    is_whole: bool = False


def next_plan(lane: Lane) -> PlannedRange | None:
    """The first planned range of a lane that was not taken; None if there is none."""
    plans = lane.tracker.plans
    if not plans:
        return None
    at = next_offset(lane)
    return next((planned for planned in plans if planned.until > at), None)


def next_offset(lane: Lane) -> int:
    """The offset of the first queued record of a lane; its position if none is queued."""
    for index, _ in lane.pieces():
        return lane.tracker.offset_of(index)
    return lane.tracker.position


def still_to_come(lane: Lane) -> int:
    """How many offsets of a lane's planned ranges were not read yet."""
    plans = lane.tracker.plans
    return max(0, plans[-1].until - lane.tracker.position) if plans else 0


def has_room(lane: Lane) -> bool:
    """Whether one more range of this partition fits into the metadata of its committed position."""
    if next_plan(lane) is not None:
        return True
    at = next_offset(lane)
    return lane.tracker.has_room_for(PlannedRange(at, at + lane.waiting))


def forget_empty_plans(lane: Lane) -> None:
    """Have planned ranges without a record in the log hold back the committed position no longer."""
    at = next_offset(lane)
    for planned in lane.tracker.plans:
        if planned.until <= at and not lane.workers:
            lane.tracker.plan_done(planned)


def waiting_in(lane: Lane) -> Waiting:
    """The records of a lane with work that may go into the next batch."""
    planned = next_plan(lane)
    if planned is None:
        return Waiting(lane, lane.waiting, lane.arrived)
    at = next_offset(lane)
    if at < planned.start:
        return Waiting(lane, _records_below(lane, planned.start), lane.arrived)
    is_whole = lane.tracker.position >= planned.until
    return Waiting(lane, _records_below(lane, planned.until), lane.arrived, planned, is_whole)


def _records_below(lane: Lane, offset: int) -> int:
    """How many of the next records of a lane are below an offset, with consecutive arrival numbers."""
    found, expected, offset_of = 0, None, lane.tracker.offset_of
    for first, records in lane.pieces():
        count = len(records)
        if expected is not None and first != expected:
            break
        if offset_of(first + count - 1) < offset:
            found, expected = found + count, first + count
            continue
        low, high = 0, count - 1  # the first in this piece that is not below it
        while low < high:
            middle = (low + high) // 2
            if offset_of(first + middle) < offset:
                low = middle + 1
            else:
                high = middle
        return found + low
    return found


def batch_due(lanes: Iterable[Lane], limits: Limits, weight: Callable[[Lane], int]) -> float | None:
    """When a batch may be taken from these lanes, which have work, by the clock of their arrival times.

    At once if a planned range is whole, or enough records or bytes are queued; None while there is nothing to take.

    Args:
        weight: The queued bytes of a lane.
    """
    waiting = [waiting_in(lane) for lane in lanes]
    if any(one.is_whole for one in waiting):
        return min(one.arrived for one in waiting if one.is_whole)
    fresh = [one for one in waiting if one.planned is None and one.records]
    if not fresh:
        return None
    arrived = min(one.arrived for one in fresh)
    is_full = sum(one.records for one in fresh) >= limits.max_records
    if is_full or sum(weight(one.lane) for one in fresh) >= limits.max_bytes:
        return arrived
    return arrived + limits.max_wait_s


class Taken(NamedTuple):
    """Consecutive records that a batch takes from one lane; planned as a range of its own.

    Attributes:
        planned: The range they were planned as earlier; None: they are cut now.
    """

    lane: Lane
    slices: tuple[Slice, ...]
    planned: PlannedRange | None

    @property
    def first(self) -> int:
        """Arrival number of its first record."""
        return self.slices[0].first

    @property
    def records(self) -> int:
        """How many records they are."""
        return sum(len(part.records) for part in self.slices)


def take_batch(lanes: Iterable[Lane], limits: Limits, weigh: Weigh) -> list[Taken]:
    """Take the next batch from lanes with work: whole planned ranges if there are any, else other records, in turn.

    Returns:
        The runs in the order of the lanes, ascending within each.
    """
    waiting = [waiting_in(lane) for lane in lanes]
    planned = [one for one in waiting if one.is_whole]
    if planned:
        return _take_planned(planned, limits, weigh)
    return _take_fresh([one for one in waiting if one.planned is None and one.records], limits, weigh)


def _take_planned(waiting: list[Waiting], limits: Limits, weigh: Weigh) -> list[Taken]:
    """The first range however large it is, and others as far as there is room."""
    batch: list[Taken] = []
    room, bytes_left = limits.max_records, limits.max_bytes
    for one in waiting:
        if batch and one.records > room:
            continue
        slices = one.lane.take(one.records)
        weight = sum(weigh(part.records) for part in slices)
        if batch and weight > bytes_left:
            for part in reversed(slices):
                one.lane.give_back(part.records, part.first)
            continue
        batch.append(Taken(one.lane, tuple(slices), one.planned))
        room, bytes_left = room - one.records, bytes_left - weight
    return batch


def _take_fresh(waiting: list[Waiting], limits: Limits, weigh: Weigh) -> list[Taken]:
    batch: list[Taken] = []
    room, bytes_left = limits.max_records, limits.max_bytes
    shares = _even_shares(waiting, room) if limits.is_even else [one.records for one in waiting]
    for one, share in zip(waiting, shares, strict=True):
        slices: list[Slice] = []
        left = min(share, room)
        while left > 0 and bytes_left > 0:
            (part,) = one.lane.take(left, most_pieces=1)
            weight = weigh(part.records)
            fits = len(part.records)
            if weight > bytes_left:
                fits = max(0 if batch or slices else 1, len(part.records) * bytes_left // weight)
                one.lane.give_back(part.records[fits:], part.first + fits)
                bytes_left = 0
            if fits:
                slices.append(Slice(one.lane, part.records[:fits], part.first))
            left, room, bytes_left = left - fits, room - fits, bytes_left - weight
        batch += _runs_of(one.lane, slices)
    return batch


def _even_shares(waiting: Sequence[Waiting], room: int) -> list[int]:
    """How many records to take from each: as many as there is room for, divided as evenly as they allow."""
    shares = [0] * len(waiting)
    fewest_first = sorted(range(len(waiting)), key=lambda at: waiting[at].records)
    for others, at in zip(range(len(waiting), 0, -1), fewest_first, strict=True):
        shares[at] = min(waiting[at].records, room // others)
        room -= shares[at]
    return shares


def _runs_of(lane: Lane, slices: list[Slice]) -> list[Taken]:
    """Slices of one lane as runs of consecutive records, ascending."""
    runs: list[list[Slice]] = []
    for part in sorted(slices, key=lambda part: part.first):
        if runs and runs[-1][-1].first + len(runs[-1][-1].records) == part.first:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [Taken(lane, tuple(run), None) for run in runs]
