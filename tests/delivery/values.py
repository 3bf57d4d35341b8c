"""Lanes as rooms get them, for tests of those rooms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import ChannelWorkers
from reactive_kafka.tracking.tracker import OffsetTracker


def lane_with(tracker: OffsetTracker, *pieces: Sequence[Any], now: float = 0.0) -> Lane:
    """A lane in which these records wait, piece by piece; its tracker knows them already."""
    lane = Lane(tracker)
    first = 0
    for piece in pieces:
        lane.add(piece, first, now)
        first += len(piece)
    return lane


def lane_queue() -> LaneQueue:
    """The queue of a channel whose partitions are read in order."""
    return LaneQueue(shared=False)


def workers_that_do_nothing() -> ChannelWorkers:
    """Workers that take whatever they are told, and call nothing."""
    return ChannelWorkers()
