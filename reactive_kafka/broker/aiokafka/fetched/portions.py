"""How much of each partition a fetch may bring. No I/O.

What came of a partition is held until it is taken, and the next fetch asks for the others. Where
handlers are slow, and many partitions have a backlog, that would be ``max_partition_fetch_bytes``
of each: 1 GB of 1,000 partitions.
"""

from __future__ import annotations

from typing import Any

ANSWERS = 4
"""Where more than so many answers of the largest size are held of each node, handlers are slower
than fetches.
"""

SMALL = 65_536
"""Bytes of a partition that are enough then. Fast handlers need larger ones: each costs as much
whatever it has.
"""


class Portions:
    """What the fetches of one client ask of each partition, in bytes.

    Args:
        whole: ``max_partition_fetch_bytes``.
    """

    def __init__(self, whole: int) -> None:
        self._whole = whole
        # First batch of late; with each answer an eighth of it is forgotten.
        self._largest = 0

    def answered(self, batch_bytes: int) -> None:
        """An answer has come, and so many bytes has the largest of the batches that its partitions
        begin with.
        """
        self._largest = max(batch_bytes, self._largest - self._largest // 8)

    def was_too_small(self, asked: int) -> bool:
        """Whether a first batch that is cut short may be whole in the next portion, which is larger
        than was *asked*.

        Kafka leaves out a batch that is too large, or sends it whole. Not every broker does.
        """
        if asked >= self._whole:
            return False
        self._largest = max(self._largest, 2 * asked)
        return True

    def of(self, fetcher: Any, assignment: Any) -> int:
        """What the next fetches of a client ask of each partition."""
        most = ANSWERS * fetcher._fetch_max_bytes
        states = assignment._tp_state
        if len(fetcher._records) <= ANSWERS:
            return self._whole
        held_bytes = 0
        held = list[Any]()
        for one, result in fetcher._records.items():
            # An error has no records; and where the client calls them otherwise, fetches go on as
            # without this.
            records = getattr(getattr(result, "_partition_records", None), "_records", None)
            # Pauses say nothing of handlers.
            if records is not None and one in states and not states[one]._paused:
                held_bytes += records.size_in_bytes()
                held.append(one)
        # Leaders are looked up only where that may matter: 1,000 partitions cost more than all else
        # here.
        nodes = (
            1
            if held_bytes <= most
            else len(set(map(fetcher._client.cluster.leader_for_partition, held)))
        )
        if held_bytes <= most * nodes:
            return self._whole
        # A batch that does not fit comes only where its partition is the first one in an answer.
        return min(self._whole, max(SMALL, self._largest))
