"""Pauses partitions at the client that have no room for a while. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reactive_kafka.partitions.partition import Partition
from reactive_kafka.records import TopicPartition

PAUSE_AFTER_S = 1.0
"""How long a partition without room is only left out of polls. Pausing throws away what was fetched
for it; but while that lies unread the client fetches less from the same broker for the others."""


class FetchPauses:
    """Decides which partitions of one client are paused."""

    def __init__(self) -> None:
        self._round = 0
        self._paused: list[Partition] = []

    def update(
        self,
        left_out: Iterable[Partition],
        wanted: Collection[TopicPartition],
        stopped: Collection[TopicPartition],
        now: float,
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Return what to pause and what to resume.

        A partition that is not read for now, and starts again later in the same assignment, stays
        paused at the client until then.

        Args:
            left_out: The partitions from which this poll wants nothing.
            wanted: Those that it asks for.
            stopped: Those that are not fetched for another reason than room: they are paused at
                once.
        """
        # A partition that has gone comes back as another one, which the client has not paused.
        self._paused = [partition for partition in self._paused if partition.is_ours]
        to_resume = [
            partition
            for partition in self._paused
            if partition.fetch.is_paused and partition.id in wanted
        ]
        for partition in to_resume:
            partition.fetch.resume()
        to_pause = []
        self._round += 1
        for partition in left_out:
            left_out_s = partition.fetch.leave_out(self._round, now)
            if partition.fetch.is_paused:
                continue
            if partition.id in stopped or left_out_s >= PAUSE_AFTER_S:
                partition.fetch.pause()
                to_pause.append(partition)
        still_paused = [
            partition
            for partition in self._paused
            if partition.fetch.is_paused and partition not in to_pause
        ]
        self._paused = still_paused + to_pause
        return (
            [partition.id for partition in to_pause],
            [partition.id for partition in to_resume],
        )
