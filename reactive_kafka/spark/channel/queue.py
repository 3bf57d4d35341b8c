"""The queued records of a Spark channel: how many to fetch, and when and where they are cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reactive_kafka.commit.plans import still_to_come
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.partitions.budget import MAX_WINDOW_RECORDS
from reactive_kafka.spark.batches import cuts
from reactive_kafka.spark.batches.columns import PIECE_RECORDS
from reactive_kafka.spark.batches.runs import RecordRun

WAITING_BATCHES = 2
"""With this many times ``batch_max_bytes`` queued nothing more is fetched."""


class BatchQueue:
    """Cuts the records in a channel's lanes into batches.

    Args:
        is_free: Whether records may be taken from a lane.
    """

    def __init__(self, settings: IncomingSettings, lanes: Lanes, is_free: Callable[[Lane], bool]) -> None:
        spark = settings.spark
        is_even = spark.max_concurrent_jobs == 1 or lanes.shared
        self._limits = cuts.BatchLimits(spark.batch_max_records, spark.batch_max_bytes, spark.batch_max_wait_s, is_even)
        self._lanes = lanes
        self._is_free = is_free
        self._ships_all = spark.mode == "records"
        self._retry_topics = frozenset(settings.delayed_retry.topics if settings.delayed_retry else ())
        self._weighed: set[Lane] = set()

    def wants(self, lane: Lane, records: int) -> int:
        """How many records one poll should bring: small pieces, whole planned ranges, and no more than memory holds."""
        if not lane.waiting and self._is_free(lane):
            cuts.forget_empty_plans(lane)
        tracker = lane.tracker
        is_shipped = self._ships_all or tracker.partition.topic in self._retry_topics
        most = PIECE_RECORDS if is_shipped else MAX_WINDOW_RECORDS
        to_come = still_to_come(tracker.plans, tracker.position)
        if to_come:
            return min(to_come, most)
        self._weight(lane)
        queued = sum(one.weight for one in self._weighed if not one.revoked)
        if lane.waiting and queued >= WAITING_BATCHES * self._limits.max_bytes:  # an empty lane gets a piece all the
            return 0  # same: no partition starves because of the others
        return min(records, most)

    def due(self) -> float | None:
        """When a batch may be taken (monotonic); None if there is nothing to take."""
        return cuts.batch_due(self._free_lanes(), self._limits, self._weight)

    def take(self) -> list[RecordRun]:
        """Take the next batch; its lanes count as held."""
        runs = cuts.take_batch(self._free_lanes(), self._limits, weigh)
        self.hold(runs)
        return runs

    def hold(self, runs: Sequence[RecordRun]) -> None:
        """The lanes of runs count as held, until they are released."""
        for lane in lanes_of(runs):
            self._lanes.hold(lane)

    def release(self, runs: Sequence[RecordRun]) -> None:
        """A job has let go of the lanes of its runs."""
        for lane in lanes_of(runs):
            self._lanes.release(lane)

    def forget_weights(self) -> None:
        """Lanes were suspended: those that are retained are weighed again."""
        self._weighed.clear()

    def _free_lanes(self) -> list[Lane]:
        """The lanes from which a batch may be taken."""
        free = []
        for lane in self._lanes.whole_lanes():
            if self._is_free(lane):
                cuts.forget_empty_plans(lane)
                if cuts.has_room(lane):
                    free.append(lane)
        return free

    def _weight(self, lane: Lane) -> int:
        """The bytes queued in a lane; its pieces are weighed again when the number of records has changed."""
        self._weighed.add(lane)
        if lane.weighed != lane.waiting:
            lane.weighed, lane.weight = lane.waiting, sum(weigh(piece) for _, piece in lane.pieces())
        return lane.weight


def lanes_of(runs: Sequence[RecordRun]) -> list[Lane]:
    """The lanes of some runs, each once."""
    return list({id(run.lane): run.lane for run in runs}.values())


def weigh(piece: Sequence[Any]) -> int:
    """The bytes of a piece; offsets that executors read take no memory here."""
    columns: Any = piece
    return 0 if isinstance(piece, range) else int(columns.nbytes)
