"""Warns of open transactions that hold up readers of committed records. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.observe.events import Observer, TransactionHangs
from reactive_kafka.partitions.log_state import OpenTransactionHold
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition

HANGS_S = 10.0
"""How long a last stable offset may stand still without a warning: transactions take seconds."""


class StableOffsets:
    """Notes since when the last stable offsets of a client's partitions have not moved.

    Readers of committed records stop at the last stable offset, the first record of the oldest open
    transaction. That is a warning, and no reason for a channel not to be ready: some producers have
    transactions of minutes, and neither a restart nor another member could read any further.
    """

    def __init__(self, channel: str, table: PartitionTable, observer: Observer) -> None:
        self._channel = channel
        self._table = table
        self._observer = observer

    def found(
        self, held_up: Mapping[TopicPartition, tuple[int, int]], asked_at: float, now: float
    ) -> None:
        """Note what a look has found.

        Args:
            held_up: Partition -> its last stable offset and the end of its log.
            asked_at: When the look began (monotonic).
        """
        for partition in self._table:
            before = partition.log.held_up or OpenTransactionHold(-1, -1, asked_at, False)
            partition.log.note_hold(None)
            if partition.id in held_up:
                stable, end = held_up[partition.id]
                is_same = before.last_stable == stable
                since = before.since if is_same else asked_at
                is_long = now - since >= HANGS_S
                partition.log.note_hold(OpenTransactionHold(stable, end, since, is_long))
                if is_long and not (before.is_long and is_same):
                    self._observer.on(
                        TransactionHangs(
                            channel=self._channel, partition=partition.id, stable=stable, end=end
                        )
                    )

    def warnings(self, now: float) -> list[str]:
        """Return a warning for each partition that is held up now, the longest first."""
        found = [
            (partition.log.held_up.since, partition.id, partition.log.held_up)
            for partition in self._table
            if partition.log.held_up is not None
        ]
        return [
            f"the last stable offset of {name} has stood at {stable} for {now - since:.0f} s, the "
            f"end is {end}: an open transaction"
            for _, name, (stable, end, since, is_long) in sorted(found)
            if is_long
        ]
