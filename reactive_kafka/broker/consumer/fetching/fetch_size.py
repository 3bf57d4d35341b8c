"""How many bytes of each partition a fetch may return. No I/O.

Records of a partition are held until they are taken, and the next fetch asks for the other
partitions. With slow handlers and a backlog in many partitions, ``max_partition_fetch_bytes`` of
each would be held: 1 GB of 1,000 partitions.
"""

from __future__ import annotations

from collections.abc import Collection

from reactive_kafka.broker.consumer.fetching.read_partition import ReadPartition

ANSWERS = 4
"""If more answers of the largest size than this are held per node, handlers are slower than
fetches.
"""

SMALL = 65_536
"""The bytes of a partition to ask for then. Fast handlers need more: each fetched partition has a
fixed cost.
"""


class FetchSize:
    """The bytes of each partition that the fetches of one client ask for.

    Args:
        whole: ``max_partition_fetch_bytes``.
        answer_bytes: ``fetch_max_bytes``.
    """

    def __init__(self, whole: int, answer_bytes: int) -> None:
        self._whole = whole
        self._answer_bytes = answer_bytes
        # Size of the largest first batch of a partition. An eighth is subtracted at each answer, so
        # that one large batch does not count for ever.
        self._largest = 0

    def note_first_batch(self, batch_bytes: int) -> None:
        """Note the size of the largest first batch of all partitions in an answer."""
        self._largest = max(batch_bytes, self._largest - self._largest // 8)

    def enlarge(self, asked: int) -> bool:
        """Ask for more after a first batch was cut short. False if *asked* was the largest size.

        Kafka leaves out a batch that is too large, or sends it whole. Not every broker does.
        """
        if asked >= self._whole:
            return False
        self._largest = max(self._largest, 2 * asked)
        return True

    def bytes_per_partition(self, held: Collection[ReadPartition]) -> int:
        """Return how many bytes of each partition the next fetches ask for.

        Args:
            held: The partitions of which something was fetched and is not taken.
        """
        if len(held) < ANSWERS:
            return self._whole
        held_bytes = 0
        nodes = set[int | None]()
        for state in held:
            # Paused partitions are held for another reason than slow handlers.
            if state.piece is not None and not state.is_paused:
                held_bytes += state.piece.size
                nodes.add(state.leader)
        if held_bytes <= ANSWERS * self._answer_bytes * len(nodes):
            return self._whole
        # Brokers return a larger batch only if its partition is the first one in an answer.
        return min(self._whole, max(SMALL, self._largest))
