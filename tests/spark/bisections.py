"""What a bisection leaves, for tests of the rooms that store it."""

from __future__ import annotations

from reactive_kafka.errors import BadDataError
from reactive_kafka.spark.batches.bisection import Bisection
from reactive_kafka.spark.batches.runs import run_of
from reactive_kafka.tracking.plans import PlannedRange
from tests.delivery.values import lane_with
from tests.tracking.values import ORDERS_0, tracker_of


def plans_of_a_deep_bisection(start: int, records: int) -> tuple[PlannedRange, ...]:
    """All that is left to run when the very first of so many records has been found to be bad."""
    error = BadDataError("bad")
    tracker = tracker_of(ORDERS_0, start)
    tracker.deliver(range(start, start + records), 0)
    bisection = Bisection([run_of(lane_with(tracker, range(records)).take(records))], error)
    while bisection.left[0].records > 1:
        bisection.failed(error, is_data_error=True)
    return tuple(piece.planned for piece in bisection.left)
