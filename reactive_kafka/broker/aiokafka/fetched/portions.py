"""How much of each partition a fetch may bring. No I/O.

What came of a partition is held until it is taken, and the next fetch asks for the others. Where handlers are slow, and
many partitions have a backlog, that would be ``max_partition_fetch_bytes`` of each: 1 GB of 1,000 partitions.
"""

from __future__ import annotations

from typing import Any

ANSWERS = 4
"""Where more than so many answers of the largest size are held, handlers are slower than fetches."""

SMALL = 65_536
"""Bytes of a partition that are enough then. Fast handlers need larger ones: each costs as much whatever it has."""


class Portions:
    """What the fetches of one client ask of each partition, in bytes."""

    def __init__(self) -> None:
        self._largest = 0  # batch that is known of
        self._whole = 0

    def came(self, batch_bytes: int) -> None:
        """A batch of so many bytes was fetched."""
        self._largest = max(self._largest, batch_bytes)

    def was_too_small(self, asked: int) -> bool:
        """Whether a first batch that is cut short may be whole in the next portion, which is larger than was *asked*.

        Kafka leaves out a batch that is too large, or sends it whole. Not every broker does.
        """
        if asked >= self._whole:
            return False
        self.came(2 * asked)
        return True

    def of(self, fetcher: Any) -> int:
        """What the next fetch of a client asks of each partition."""
        whole: int = fetcher._max_partition_fetch_bytes
        self._whole = whole
        most = ANSWERS * fetcher._fetch_max_bytes
        if len(fetcher._records) * max(whole, self._largest) <= most or _held_bytes(fetcher) <= most:
            return whole
        # A batch that does not fit comes only where its partition is the first one in an answer.
        return min(whole, max(SMALL, self._largest))


def _held_bytes(fetcher: Any) -> int:
    """How much the client holds, those batches included that were taken of a piece."""
    pieces = [one.__dict__.get("_partition_records") for one in fetcher._records.values()]  # an error has none
    return sum(piece._records.size_in_bytes() for piece in pieces if piece is not None)
