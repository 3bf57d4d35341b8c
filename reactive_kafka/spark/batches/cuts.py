"""Where the queued records are cut into Spark batches. Pure.

A batch takes a run of records from each of several partitions. Planned ranges that have not been run in this
assignment (after a crash, a change of owner or a cancelled job) come first, and whole: a range is run again exactly as
it was cut, or a sink that goes by the range's id would hold records twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reactive_kafka.commit.plans import PlannedRange
from reactive_kafka.delivery.lane import Lane, Slice
from reactive_kafka.spark.batches.runs import RecordRun, end_of, give_back, run_of

Weigh = Callable[[Sequence[Any]], int]
"""The bytes of a piece of records."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What closes a batch, whichever comes first. An empty batch takes one record, however large it is.

    Attributes:
        is_even: Take equally from all partitions, so that executors, which read one partition each, end together.
            Otherwise one partition is emptied after the other, which leaves some for a concurrent job.
    """

    max_records: int
    max_bytes: int
    max_wait_s: float
    is_even: bool = False


class Waiting(NamedTuple):
    """The records of one lane that may go into the next batch.

    Attributes:
        records: The number of its next records.
        planned: The range that they are, to be run as a whole; None: they may be cut anywhere.
        is_whole: All records of the planned range are here.
    """

    lane: Lane
    records: int
    arrived: float
    planned: PlannedRange | None = None
    is_whole: bool = False


def next_plan(lane: Lane) -> PlannedRange | None:
    """The first planned range of a lane of which no record was taken; None if there is none."""
    plans = lane.tracker.plans
    if not plans:
        return None
    at = next_offset(lane)
    return next((planned for planned in plans if planned.until > at), None)


def next_offset(lane: Lane) -> int:
    """The offset of the first queued record of a lane; the position to read from if none is queued."""
    for index, _ in lane.pieces():
        return lane.tracker.offset_of(index)
    return lane.tracker.position


def has_room(lane: Lane) -> bool:
    """Whether one more range can be planned: the offset metadata of a commit holds a limited number."""
    if next_plan(lane) is not None:
        return True
    at = next_offset(lane)
    return lane.tracker.has_room_for(PlannedRange(at, at + lane.waiting))


def forget_empty_plans(lane: Lane) -> None:
    """Finish planned ranges of which no record is left in the log: they would hold back the committed position."""
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
    """How many of the next records of a lane are below an offset, up to the first gap in their arrival numbers."""
    found, expected, offset_of = 0, None, lane.tracker.offset_of
    for first, records in lane.pieces():
        if expected is not None and first != expected:
            break
        expected = first + len(records)
        below = bisect_left(range(first, expected), offset, key=offset_of)
        found += below
        if below < len(records):
            break
    return found


def batch_due(lanes: Iterable[Lane], limits: BatchLimits, weight: Callable[[Lane], int]) -> float | None:
    """When a batch may be taken from these lanes, which have work, on the clock of their arrivals.

    At once if a planned range is whole, or enough records or bytes are queued; None if there is nothing to take.

    Args:
        weight: The bytes queued in a lane.
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


def take_batch(lanes: Iterable[Lane], limits: BatchLimits, weigh: Weigh) -> list[RecordRun]:
    """Take the next batch out of lanes that have work: whole planned ranges if there are any, else new ranges.

    Returns:
        The runs in the order of the lanes, ascending within each.
    """
    waiting = [waiting_in(lane) for lane in lanes]
    planned = [one for one in waiting if one.is_whole]
    if planned:
        return _take_planned(planned, limits, weigh)
    return _take_fresh([one for one in waiting if one.planned is None and one.records], limits, weigh)


def _take_planned(waiting: list[Waiting], limits: BatchLimits, weigh: Weigh) -> list[RecordRun]:
    """The first range however large it is, and others as far as there is room."""
    batch: list[RecordRun] = []
    room, bytes_left = limits.max_records, limits.max_bytes
    for one in waiting:
        if batch and one.records > room:
            continue
        slices = one.lane.take(one.records)
        weight = sum(weigh(part.records) for part in slices)
        if batch and weight > bytes_left:
            give_back(slices)
            continue
        batch.append(run_of(slices, one.planned))
        room, bytes_left = room - one.records, bytes_left - weight
    return batch


def _take_fresh(waiting: list[Waiting], limits: BatchLimits, weigh: Weigh) -> list[RecordRun]:
    batch: list[RecordRun] = []
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
        batch += _runs_of(slices)
    return batch


def _even_shares(waiting: Sequence[Waiting], room: int) -> list[int]:
    """How many records to take of each lane: all that there is room for, and as evenly as they have them."""
    shares = [0] * len(waiting)
    fewest_first = sorted(range(len(waiting)), key=lambda at: waiting[at].records)
    for others, at in zip(range(len(waiting), 0, -1), fewest_first, strict=True):
        shares[at] = min(waiting[at].records, room // others)
        room -= shares[at]
    return shares


def _runs_of(slices: list[Slice]) -> list[RecordRun]:
    """Slices of one lane as runs of consecutive records, ascending."""
    runs: list[list[Slice]] = []
    for part in sorted(slices, key=lambda part: part.first):
        if runs and end_of(runs[-1][-1]) == part.first:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [run_of(run) for run in runs]
