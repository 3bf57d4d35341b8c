"""Partitions that an open transaction holds up: readers of what is committed wait at its first record. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.observe.events import Observer, TransactionHangs
from reactive_kafka.partitions.partition import Standstill
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition

HANGS_S = 10.0
"""How long a last stable offset may stand still before it is told: transactions of seconds are usual."""


class StableOffsets:
    """Since when the last stable offsets of a client's partitions have stood still, with records behind them.

    That is a warning, and not a reason for a channel not to be ready: there are producers whose transactions take
    minutes, and neither a restart nor another member could read any further.
    """

    def __init__(self, channel: str, table: PartitionTable, observer: Observer) -> None:
        self._channel = channel
        self._table = table
        self._observer = observer

    def found(self, held_up: Mapping[TopicPartition, tuple[int, int]], asked_at: float, now: float) -> None:
        """Note what a look that began at *asked_at* has found: partition -> last stable offset and end of its log."""
        for one in self._table:
            before, (stable, end) = one.stands, held_up.get(one.id, (-1, -1))
            since = before.since if before is not None and before.stable == stable else asked_at
            one.stands = Standstill(stable, end, since, now - since >= HANGS_S) if one.id in held_up else None
            if one.stands and one.stands.is_long and not (before and before.is_long and before.stable == stable):
                hangs = TransactionHangs(channel=self._channel, partition=one.id, stable=stable, end=end)
                self._observer.on(hangs)

    def warnings(self, now: float) -> list[str]:
        """What stands still now, for people, the longest first."""
        standing = sorted((one.stands.since, one.id, one.stands) for one in self._table if one.stands is not None)
        return [
            f"the last stable offset of {name} has stood at {stands.stable} for {now - since:.0f} s, the end is "
            f"{stands.end}: an open transaction"
            for since, name, stands in standing
            if stands.is_long
        ]
