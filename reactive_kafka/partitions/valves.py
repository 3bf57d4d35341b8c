"""Which partitions are paused at the client: those without room for a while, and those that are stopped. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reactive_kafka.partitions.partition import Partition
from reactive_kafka.records import TopicPartition

PAUSE_AFTER_S = 1.0
"""How long a partition without room is merely left out of polls. Pausing throws away what was fetched for it; but
while that lies unread the client fetches less from the same broker for the others."""


class Valves:
    """Pauses the partitions of one client; what is true of one of them stands with it."""

    def __init__(self) -> None:
        self._round = 0
        self._closed: list[Partition] = []

    def update(
        self,
        left_out: Iterable[Partition],
        wanted: Collection[TopicPartition],
        stopped: Collection[TopicPartition],
        now: float,
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """What to pause and what to resume, given who is polled for now and who is stopped for a reason of its own.

        One that is not read for now, and starts anew later in the same assignment, is paused at the client until then.
        """
        to_resume = [one for one in self._closed if one.is_paused and one.id in wanted]
        for one in to_resume:
            one.is_paused = False
        to_pause = []
        self._round += 1
        for one in left_out:
            # Being polled for in between ends the wait. A round's number tells that without a look at all the others.
            if one.left_out_in != self._round - 1:
                one.left_out_since = now
            one.left_out_in = self._round
            if not one.is_paused and (one.id in stopped or now - one.left_out_since >= PAUSE_AFTER_S):
                one.is_paused = True
                to_pause.append(one)
        self._closed = [one for one in self._closed if one.is_paused and one not in to_pause] + to_pause
        return [one.id for one in to_pause], [one.id for one in to_resume]
