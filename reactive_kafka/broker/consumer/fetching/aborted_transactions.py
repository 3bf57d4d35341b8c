"""Which batches of one fetch belong to aborted transactions. Pure.

The answer to a fetch names, for each partition, the aborted transactions in it: the producer, and
the offset of the first record. A transaction ends at the marker of its producer.

Source: Kafka's ``CompletedFetch`` (``consumeAbortedTransactionsUpTo``).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop
from struct import Struct

# The version of a marker, and its type. They are the key of its record.
_MARKER = Struct(">hh")
_ABORT = 0


class AbortedTransactions:
    """The aborted transactions of one partition, for a reader that goes through it once.

    Args:
        named: Producer id and first offset of each.
    """

    def __init__(self, named: Iterable[tuple[int, int]]) -> None:
        self._later = [(first_offset, producer_id) for producer_id, first_offset in named]
        heapify(self._later)
        self._open: set[int] = set()

    def reach(self, offset: int) -> None:
        """Note that the reader is at the batch that begins at *offset*."""
        while self._later and self._later[0][0] <= offset:
            self._open.add(heappop(self._later)[1])

    def end(self, producer_id: int) -> None:
        """Note that the reader has passed a producer's marker of an aborted transaction.

        Kafka may return such a marker without any record of the transaction.
        """
        self._open.discard(producer_id)

    def has(self, producer_id: int) -> bool:
        """True if the transactional batches of a producer here are part of an aborted one."""
        return producer_id in self._open


def is_abort_marker(key: bytes) -> bool:
    """True if a control record with this key ends an aborted transaction.

    Raises:
        struct.error: The key is cut short.
    """
    return bool(_MARKER.unpack_from(key)[1] == _ABORT)
