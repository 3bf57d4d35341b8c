"""The queued records of a Spark channel: how many to fetch, and when and where they are cut into
batches. Pure.

A batch takes a run of records from each of several partitions. Planned ranges that have not been
run in this assignment (after a crash, a change of owner or a cancelled job) come first, and whole:
a range is run again exactly as it was cut, or a sink that goes by the range's id would hold records
twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.lanes.lane import Lane, LaneSlice
from reactive_kafka.delivery.lanes.lane_states import OPEN
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.fetching.budget import MAX_WINDOW_RECORDS
from reactive_kafka.spark.batches.columns import PIECE_RECORDS
from reactive_kafka.spark.batches.runs import RecordRun, end_of, give_back, run_of
from reactive_kafka.tracking.plans import PlannedRange, still_to_come

# With this many times ``batch_max_bytes`` queued nothing more is fetched.
WAITING_BATCHES = 2
# The bytes of a piece of records.
Weigh = Callable[[Sequence[Any]], int]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What closes a batch, whichever comes first. An empty batch takes one record, however large it
    is.
    """

    max_records: int
    max_bytes: int
    max_wait_s: float
    # Take equally from all partitions, so that executors, which read one partition each, end
    # together. Otherwise one partition is emptied after the other, which leaves some for a
    # concurrent job.
    is_even: bool = False


class BatchQueue:
    """Cuts the records in a channel's lanes into batches; *is_free*: whether records may be taken
    from a lane.
    """

    def __init__(
        self, settings: IncomingSettings, lanes: LaneQueue, is_free: Callable[[Lane], bool]
    ) -> None:
        spark = settings.spark
        is_even = spark.max_concurrent_jobs == 1 or lanes.shared
        self._limits = BatchLimits(
            spark.batch_max_records, spark.batch_max_bytes, spark.batch_max_wait_s, is_even
        )
        self._lanes = lanes
        self._is_free = is_free
        self._ships_all = spark.mode == "records"
        self._retry_topics = frozenset(
            settings.delayed_retry.topics if settings.delayed_retry else ()
        )
        self._weighed: set[Lane] = set()

    def wants(self, lane: Lane, records: int) -> int:
        """How many records one poll should bring: small pieces, whole planned ranges, and no more
        than memory holds.
        """
        if not lane.waiting and self._is_free(lane):
            forget_empty_plans(lane)
        tracker = lane.tracker
        is_shipped = self._ships_all or tracker.partition.topic in self._retry_topics
        most = PIECE_RECORDS if is_shipped else MAX_WINDOW_RECORDS
        if to_come := still_to_come(tracker.plans, tracker.position):
            return min(to_come, most)
        self._weight(lane)
        queued = sum(one.weight for one in self._weighed if not one.revoked)
        # An empty lane gets a piece all the.
        if lane.waiting and queued >= WAITING_BATCHES * self._limits.max_bytes:
            # same: no partition starves because of the others.
            return 0
        return min(records, most)

    def due(self) -> float:
        """When a batch may be taken (monotonic); infinite if there is nothing to take."""
        in_vain = self._lanes.is_at_end or self._lanes.out_of_room
        limits = replace(self._limits, max_wait_s=0.0) if in_vain else self._limits
        return max(batch_due(self._free_lanes(), limits, self._weight), self._lanes.batch_at)

    def ahead(self, held: Iterable[Lane]) -> list[RecordRun]:
        """The next batch, if nothing can be added to it any more, for whoever prepares it: its
        records stay queued.

        *held*: the lanes that the batch before has been taken from.
        """
        free = self._free_lanes()
        free += [
            lane
            for lane in held
            if not lane.queued
            and lane.state is OPEN
            and lane.advance()
            and self._is_free(lane)
            and has_room(lane)
        ]
        if batch_due(free, replace(self._limits, max_wait_s=inf), self._weight) == inf:
            return []
        runs = take_batch(free, self._limits, weigh)
        for run in reversed(runs):
            give_back(run.slices)
        return runs

    def take(self) -> list[RecordRun]:
        """Take the next batch."""
        self._lanes.out_of_room.clear()
        return take_batch(self._free_lanes(), self._limits, weigh)

    def forget_weights(self) -> None:
        """Lanes were suspended: those that are retained are weighed again."""
        self._weighed.clear()

    def _free_lanes(self) -> list[Lane]:
        """The lanes from which a batch may be taken."""
        free = [lane for lane in self._lanes.takeable_lanes() if self._is_free(lane)]
        for lane in free:
            forget_empty_plans(lane)
        return [lane for lane in free if has_room(lane)]

    def _weight(self, lane: Lane) -> int:
        """The bytes queued in a lane; its pieces are weighed again when the number of records has
        changed.
        """
        self._weighed.add(lane)
        if lane.weighed != lane.waiting:
            lane.weighed = lane.waiting
            lane.weight = sum(weigh(piece) for _, piece in lane.pieces())
        return lane.weight


def weigh(piece: Sequence[Any]) -> int:
    """The bytes of a piece; offsets that executors read take no memory here."""
    columns: Any = piece
    return 0 if isinstance(piece, range) else int(columns.nbytes)


class Waiting(NamedTuple):
    """The records of one lane that may go into the next batch."""

    lane: Lane
    # Of its next ones.
    records: int
    arrived: float
    # The range that they are, to be run as a whole; None: cut them anywhere.
    planned: PlannedRange | None = None
    # All records of the planned range are here.
    is_whole: bool = False


def next_plan(lane: Lane) -> PlannedRange | None:
    """The first planned range of a lane of which no record was taken; None if there is none."""
    if not lane.tracker.plans:
        return None
    at = next_offset(lane)
    return next((planned for planned in lane.tracker.plans if planned.until > at), None)


def next_offset(lane: Lane) -> int:
    """The offset of the first queued record of a lane; the position to read from if none is
    queued.
    """
    first = next(lane.pieces(), None)
    return lane.tracker.position if first is None else lane.tracker.offset_of(first[0])


def has_room(lane: Lane) -> bool:
    """Whether one more range can be planned: the offset metadata of a commit holds a limited
    number.
    """
    if next_plan(lane) is not None:
        return True
    at = next_offset(lane)
    return lane.tracker.has_room_for(PlannedRange(at, at + lane.waiting))


def forget_empty_plans(lane: Lane) -> None:
    """Finish planned ranges of which no record is left in the log: they would hold back the
    committed position.
    """
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
    """How many of the next records of a lane are below an offset, up to the first gap in their
    arrival numbers.
    """
    found = 0
    end = None
    for first, records in lane.pieces():
        if end not in (None, first):
            break
        end = first + len(records)
        below = bisect_left(range(first, end), offset, key=lane.tracker.offset_of)
        found += below
        if below < len(records):
            break
    return found


def batch_due(lanes: Iterable[Lane], limits: BatchLimits, weight: Callable[[Lane], int]) -> float:
    """When, on the clock of arrivals, a batch may be taken from lanes with work; infinite if there
    is none to take.
    """
    waiting = [waiting_in(lane) for lane in lanes]
    if whole := [one.arrived for one in waiting if one.is_whole]:
        return min(whole)
    fresh = [one for one in waiting if one.planned is None and one.records]
    arrived = min((one.arrived for one in fresh), default=inf)
    is_full = sum(one.records for one in fresh) >= limits.max_records
    if is_full or sum(weight(one.lane) for one in fresh) >= limits.max_bytes:
        return arrived
    return arrived + limits.max_wait_s


def take_batch(lanes: Iterable[Lane], limits: BatchLimits, weigh: Weigh) -> list[RecordRun]:
    """The next batch of lanes with work: whole planned ranges, else new ones; in the lanes' order,
    each ascending.
    """
    waiting = [waiting_in(lane) for lane in lanes]
    if planned := [one for one in waiting if one.is_whole]:
        return _take_planned(planned, limits, weigh)
    return _take_fresh(
        [one for one in waiting if one.planned is None and one.records], limits, weigh
    )


def _take_planned(waiting: list[Waiting], limits: BatchLimits, weigh: Weigh) -> list[RecordRun]:
    """The first range however large it is, and others as far as there is room."""
    batch: list[RecordRun] = []
    room = limits.max_records
    bytes_left = limits.max_bytes
    for one in waiting:
        if batch and one.records > room:
            continue
        slices = one.lane.take(one.records)
        weight = sum(weigh(part.records) for part in slices)
        if batch and weight > bytes_left:
            give_back(slices)
            continue
        batch.append(run_of(slices, one.planned))
        room = room - one.records
        bytes_left = bytes_left - weight
    return batch


def _take_fresh(waiting: list[Waiting], limits: BatchLimits, weigh: Weigh) -> list[RecordRun]:
    batch: list[RecordRun] = []
    room = limits.max_records
    bytes_left = limits.max_bytes
    shares = _even_shares(waiting, room) if limits.is_even else [one.records for one in waiting]
    for one, share in zip(waiting, shares, strict=True):
        slices: list[LaneSlice] = []
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
                slices.append(LaneSlice(one.lane, part.records[:fits], part.first))
            left = left - fits
            room = room - fits
            bytes_left = bytes_left - weight
        batch += _runs_of(slices)
    return batch


def _even_shares(waiting: Sequence[Waiting], room: int) -> list[int]:
    """How many records to take of each lane: all that there is room for, and as evenly as they have
    them.
    """
    shares = [0] * len(waiting)
    fewest_first = sorted(range(len(waiting)), key=lambda at: waiting[at].records)
    for others, at in zip(range(len(waiting), 0, -1), fewest_first, strict=True):
        shares[at] = min(waiting[at].records, room // others)
        room -= shares[at]
    return shares


def _runs_of(slices: list[LaneSlice]) -> list[RecordRun]:
    """Slices of one lane as runs of consecutive records, ascending."""
    runs: list[list[LaneSlice]] = []
    for part in sorted(slices, key=lambda part: part.first):
        if not runs or end_of(runs[-1][-1]) != part.first:
            runs.append([])
        runs[-1].append(part)
    return [run_of(run) for run in runs]
