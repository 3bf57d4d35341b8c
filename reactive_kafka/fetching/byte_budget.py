"""How many bytes each partition may bring next: ``max_in_flight_bytes``. No I/O, no clock.

The bytes are divided as :mod:`reactive_kafka.fetching.budget` divides records: half of them among
the partitions, and the other half for those that need it first.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.broker.client import ByteRoom
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.records import TopicPartition


def byte_room(held: Mapping[TopicPartition, int], most: int) -> ByteRoom:
    """Return what the next poll may bring.

    Args:
        held: Partition -> its bytes in flight, for all partitions of a client, also for those that
            are about to go.
        most: The most bytes in flight, of all partitions together.
    """
    own = most if len(held) < 2 else max(1, most // (2 * len(held)))
    taken_of_shared = sum(max(0, size - own) for size in held.values())
    shared = max(0, most - own * len(held) - taken_of_shared)
    return ByteRoom({name: max(0, own - size) for name, size in held.items()}, shared)


def rest_of_plan(lane: Lane) -> int:
    """Return how many offsets a partition has to bring although it has no room for more bytes.

    0, unless only these can make room: a planned range runs as a whole, so if some of it waits in
    the lane, the rest must come. The bound may have been higher when the range was planned, or the
    partition may have had more of it. And delayed records are not released before all planned
    ranges were read.
    """
    position = lane.tracker.position
    planned = next((plan for plan in lane.tracker.plans if plan.until > position), None)
    if planned is None:
        return 0
    is_begun = planned.start < position and lane.waiting > 0
    if is_begun or lane.delayed:
        return planned.until - position
    return 0
