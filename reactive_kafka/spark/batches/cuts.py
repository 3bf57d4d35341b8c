"""Cuts the queued records of a Spark channel into batches, and says how many to fetch. Pure.

A batch has a run of records from each of several partitions. Planned ranges that have not run in
this assignment (after a crash, a change of owner or a cancelled job) come first. They run exactly
as they were planned: otherwise a sink that recognises ranges by their ids would store records
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

# When this many times `batch_max_bytes` are queued, no more records are fetched.
WAITING_BATCHES = 2
# Returns the bytes of a piece of records.
Weigh = Callable[[Sequence[Any]], int]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of a batch. The first one that is reached closes it.

    A batch has at least one record, however large that is.
    """

    max_records: int
    max_bytes: int
    max_wait_s: float
    # Take the same number of records from all partitions. An executor reads one partition, so they
    # end at about the same time. Otherwise the partitions are emptied one after the other, which
    # leaves some for a concurrent job.
    is_even: bool = False


class BatchQueue:
    """Cuts the records in a channel's lanes into batches.

    Args:
        settings: The settings of the channel.
        lanes: The lanes of the channel.
        is_free: Returns whether records may be taken from a lane.
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
        self._sends_all_columns = spark.mode == "records"
        self._retry_topics = frozenset(
            settings.delayed_retry.topics if settings.delayed_retry else ()
        )
        self._weighed: set[Lane] = set()

    def wants(self, lane: Lane, records: int) -> int:
        """Return how many records one poll should bring.

        That is a small piece or the rest of a planned range, and nothing while enough bytes are
        queued.
        """
        if not lane.waiting and self._is_free(lane):
            forget_empty_plans(lane)
        tracker = lane.tracker
        has_columns = self._sends_all_columns or tracker.partition.topic in self._retry_topics
        most = PIECE_RECORDS if has_columns else MAX_WINDOW_RECORDS
        to_come = still_to_come(tracker.plans, tracker.position)
        if to_come:
            return min(to_come, most)
        self._weight(lane)
        queued = sum(weighed.weight for weighed in self._weighed if not weighed.revoked)
        # An empty lane gets a piece in any case, so that no partition waits because of the others.
        if lane.waiting and queued >= WAITING_BATCHES * self._limits.max_bytes:
            return 0
        return min(records, most)

    def due(self) -> float:
        """Return when a batch may be taken (monotonic); infinite if there is nothing to take."""
        limits = self._limits
        if self._lanes.is_at_end or self._lanes.out_of_room:
            # No more records can come, so there is nothing to wait for.
            limits = replace(limits, max_wait_s=0.0)
        return max(batch_due(self._free_lanes(), limits, self._weight), self._lanes.batch_at)

    def next_full(self, held: Iterable[Lane]) -> list[RecordRun]:
        """Return the next batch if it is full, so that it can be prepared. Its records stay queued.

        *held* are the lanes of the running batch.
        """
        lanes = self._free_lanes()
        for lane in held:
            can_be_next = not lane.queued and lane.state is OPEN and lane.advance()
            if can_be_next and self._is_free(lane) and has_room(lane):
                lanes.append(lane)
        if batch_due(lanes, replace(self._limits, max_wait_s=inf), self._weight) == inf:
            return []
        runs = take_batch(lanes, self._limits, weigh)
        for run in reversed(runs):
            give_back(run.slices)
        return runs

    def take(self) -> list[RecordRun]:
        """Take the next batch out of the lanes."""
        self._lanes.out_of_room.clear()
        return take_batch(self._free_lanes(), self._limits, weigh)

    def forget_weights(self) -> None:
        """Weigh all lanes again, because some were suspended, and only some may be retained."""
        self._weighed.clear()

    def _free_lanes(self) -> list[Lane]:
        """Return the lanes from which a batch may be taken."""
        free = [lane for lane in self._lanes.takeable_lanes() if self._is_free(lane)]
        for lane in free:
            forget_empty_plans(lane)
        return [lane for lane in free if has_room(lane)]

    def _weight(self, lane: Lane) -> int:
        """Return the bytes queued in a lane, which change when the number of records does."""
        self._weighed.add(lane)
        if lane.weighed != lane.waiting:
            lane.weighed = lane.waiting
            lane.weight = sum(weigh(piece) for _, piece in lane.pieces())
        return lane.weight


def weigh(piece: Sequence[Any]) -> int:
    """Return the bytes of a piece. Offsets that executors will read take no memory here."""
    if isinstance(piece, range):
        return 0
    columns: Any = piece
    return int(columns.nbytes)


class Candidates(NamedTuple):
    """The next records of one lane, which may go into the next batch."""

    lane: Lane
    # How many of the next records of the lane.
    records: int
    arrived: float
    # The planned range of these records, which must run as a whole. None: they can be cut anywhere.
    planned: PlannedRange | None = None
    # All records of the planned range have arrived.
    is_whole: bool = False


def next_plan(lane: Lane) -> PlannedRange | None:
    """Return the first planned range of a lane whose records were not taken yet, if any."""
    if not lane.tracker.plans:
        return None
    offset = next_offset(lane)
    return next((planned for planned in lane.tracker.plans if planned.until > offset), None)


def next_offset(lane: Lane) -> int:
    """Return the offset of the first queued record, or the position to read if none is queued."""
    first = next(lane.pieces(), None)
    return lane.tracker.position if first is None else lane.tracker.offset_of(first[0])


def has_room(lane: Lane) -> bool:
    """True if one more range can be planned: the metadata of a commit holds a limited number."""
    if next_plan(lane) is not None:
        return True
    offset = next_offset(lane)
    return lane.tracker.has_room_for(PlannedRange(offset, offset + lane.waiting))


def forget_empty_plans(lane: Lane) -> None:
    """Finish planned ranges without records, or the committed position would wait for them."""
    offset = next_offset(lane)
    for planned in lane.tracker.plans:
        if planned.until <= offset and not lane.workers:
            lane.tracker.plan_done(planned)


def candidates_in(lane: Lane) -> Candidates:
    """Return the records of a lane with work that may go into the next batch."""
    planned = next_plan(lane)
    if planned is None:
        return Candidates(lane, lane.waiting, lane.arrived)
    if next_offset(lane) < planned.start:
        # The records before the planned range.
        return Candidates(lane, _records_below(lane, planned.start), lane.arrived)
    is_whole = lane.tracker.position >= planned.until
    return Candidates(lane, _records_below(lane, planned.until), lane.arrived, planned, is_whole)


def _records_below(lane: Lane, offset: int) -> int:
    """Count the next records of a lane below an offset, up to a gap in their arrival numbers."""
    count = 0
    end = None
    for first, records in lane.pieces():
        if end not in (None, first):
            break
        end = first + len(records)
        below = bisect_left(range(first, end), offset, key=lane.tracker.offset_of)
        count += below
        if below < len(records):
            break
    return count


def batch_due(lanes: Iterable[Lane], limits: BatchLimits, weight: Callable[[Lane], int]) -> float:
    """Return when a batch may be taken from lanes with work, on the clock of arrivals.

    Infinite: there is none to take.
    """
    candidates = [candidates_in(lane) for lane in lanes]
    whole = [candidate.arrived for candidate in candidates if candidate.is_whole]
    if whole:
        return min(whole)
    unplanned = _unplanned(candidates)
    arrived = min((candidate.arrived for candidate in unplanned), default=inf)
    if sum(candidate.records for candidate in unplanned) >= limits.max_records:
        return arrived
    if sum(weight(candidate.lane) for candidate in unplanned) >= limits.max_bytes:
        return arrived
    return arrived + limits.max_wait_s


def take_batch(lanes: Iterable[Lane], limits: BatchLimits, weigh: Weigh) -> list[RecordRun]:
    """Take the next batch from lanes with work: whole planned ranges, or else new ones.

    They are in the order of the lanes, those of one lane in ascending order.
    """
    candidates = [candidates_in(lane) for lane in lanes]
    whole = [candidate for candidate in candidates if candidate.is_whole]
    if whole:
        return _take_planned(whole, limits, weigh)
    return _take_unplanned(_unplanned(candidates), limits, weigh)


def _unplanned(candidates: Iterable[Candidates]) -> list[Candidates]:
    return [
        candidate for candidate in candidates if candidate.planned is None and candidate.records
    ]


def _take_planned(
    candidates: list[Candidates], limits: BatchLimits, weigh: Weigh
) -> list[RecordRun]:
    """Take the first range, however large it is, and others if there is room for them."""
    batch: list[RecordRun] = []
    records_left = limits.max_records
    bytes_left = limits.max_bytes
    for candidate in candidates:
        if batch and candidate.records > records_left:
            continue
        slices = candidate.lane.take(candidate.records)
        weight = sum(weigh(part.records) for part in slices)
        if batch and weight > bytes_left:
            give_back(slices)
            continue
        batch.append(run_of(slices, candidate.planned))
        records_left -= candidate.records
        bytes_left -= weight
    return batch


def _take_unplanned(
    candidates: list[Candidates], limits: BatchLimits, weigh: Weigh
) -> list[RecordRun]:
    batch: list[RecordRun] = []
    records_left = limits.max_records
    bytes_left = limits.max_bytes
    if limits.is_even:
        shares = _even_shares(candidates, records_left)
    else:
        shares = [candidate.records for candidate in candidates]
    for candidate, share in zip(candidates, shares, strict=True):
        lane = candidate.lane
        slices: list[LaneSlice] = []
        wanted = min(share, records_left)
        while wanted > 0 and bytes_left > 0:
            (part,) = lane.take(wanted, most_pieces=1)
            weight = weigh(part.records)
            fits = len(part.records)
            if weight > bytes_left:
                # Estimate how many records fit, from their average size. The first record of a
                # batch is taken in any case.
                at_least = 0 if batch or slices else 1
                fits = max(at_least, len(part.records) * bytes_left // weight)
                lane.give_back(part.records[fits:], part.first + fits)
                bytes_left = 0
            if fits:
                slices.append(LaneSlice(lane, part.records[:fits], part.first))
            wanted -= fits
            records_left -= fits
            bytes_left -= weight
        batch += _runs_of(slices)
    return batch


def _even_shares(candidates: Sequence[Candidates], room: int) -> list[int]:
    """Return how many records to take of each lane: all that fit, as evenly as possible."""
    shares = [0] * len(candidates)
    fewest_first = sorted(range(len(candidates)), key=lambda number: candidates[number].records)
    for lanes_left, number in zip(range(len(candidates), 0, -1), fewest_first, strict=True):
        shares[number] = min(candidates[number].records, room // lanes_left)
        room -= shares[number]
    return shares


def _runs_of(slices: list[LaneSlice]) -> list[RecordRun]:
    """Make runs of consecutive records from slices of one lane, in ascending order."""
    runs: list[list[LaneSlice]] = []
    for part in sorted(slices, key=lambda part: part.first):
        if not runs or end_of(runs[-1][-1]) != part.first:
            runs.append([])
        runs[-1].append(part)
    return [run_of(run) for run in runs]
