"""Partitions that an open transaction holds up: readers of what is committed wait at its first
record. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.observe.events import Observer, TransactionHangs
from reactive_kafka.partitions.log_state import OpenTransactionHold
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition

HANGS_S = 10.0
"""How long a last stable offset may stand still before it is told: transactions of seconds are
usual.
"""


class StableOffsets:
    """Since when the last stable offsets of a client's partitions have stood still, with records
    behind them.

    That is a warning, and not a reason for a channel not to be ready: there are producers whose
    transactions take minutes, and neither a restart nor another member could read any further.
    """

    def __init__(self, channel: str, table: PartitionTable, observer: Observer) -> None:
        self._channel = channel
        self._table = table
        self._observer = observer

    def found(
        self, held_up: Mapping[TopicPartition, tuple[int, int]], asked_at: float, now: float
    ) -> None:
        """Note what a look that began at *asked_at* has found: partition -> last stable offset and
        end of its log.
        """
        for one in self._table:
            before = one.log.held_up or OpenTransactionHold(-1, -1, asked_at, False)
            one.log.note_hold(None)
            if one.id in held_up:
                stable, end = held_up[one.id]
                is_same = before.last_stable == stable
                since = before.since if is_same else asked_at
                is_long = now - since >= HANGS_S
                one.log.note_hold(OpenTransactionHold(stable, end, since, is_long))
                if is_long and not (before.is_long and is_same):
                    self._observer.on(
                        TransactionHangs(
                            channel=self._channel, partition=one.id, stable=stable, end=end
                        )
                    )

    def warnings(self, now: float) -> list[str]:
        """What stands still now, for people, the longest first."""
        found = [
            (one.log.held_up.since, one.id, one.log.held_up)
            for one in self._table
            if one.log.held_up is not None
        ]
        return [
            f"the last stable offset of {name} has stood at {at} for {now - since:.0f} s, the end is {end}: an open "
            "transaction"
            for _, name, (at, end, since, is_long) in sorted(found)
            if is_long
        ]
