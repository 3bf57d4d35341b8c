"""How many bytes each partition may bring next: ``max_in_flight_bytes``. No I/O, no clock.

The bytes are divided as :mod:`reactive_kafka.fetching.budget` divides records: half of them among
the partitions, and the other half for those that need it first.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.broker.client import ByteRoom
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
