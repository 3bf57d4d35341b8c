"""How many records each partition may bring next: back-pressure that no partition can turn against another.

Half of ``max_in_flight`` is divided among the partitions and is theirs alone; the other half is for whoever
needs it first. So one busy partition gets more than half of the channel, and a stuck one leaves every other
its own part. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reactive_kafka.records import TopicPartition

MAX_WINDOW_RECORDS = 1_000_000
"""Longest window of one partition (unsettled records, and settled ones behind the first of them), at nine bytes
a record. Beyond it the partition waits for its oldest record, so that memory stays bounded behind a straggler."""


def budgets(unsettled: Mapping[TopicPartition, int], max_in_flight: int) -> dict[TopicPartition, int]:
    """How many more records each partition may bring, given what each has received and not settled.

    Args:
        unsettled: partition -> its records waiting or in flight, for every assigned partition.
        max_in_flight: The channel's limit. With more partitions than half of it, each may still have one
            record, so that none stands still.

    Returns:
        partition -> records, for those that may have any. All of them together keep the limit.
    """
    count = len(unsettled)
    if not count:
        return {}
    own = max_in_flight if count == 1 else max(1, max_in_flight // (2 * count))
    shared = max_in_flight - own * count - sum(max(0, held - own) for held in unsettled.values())
    extra = max(0, shared) // count
    allowed = {partition: max(0, own - held) + extra for partition, held in unsettled.items()}
    return {partition: records for partition, records in allowed.items() if records > 0}


READ_AHEAD = 10
"""With ``ordering = "key"``: how many times ``max_in_flight`` may be read while workers have nothing to do, because all
that was read waits behind keys that are busy. So one hot key, or one that is tried again, starves no other."""


def read_ahead(unsettled: Mapping[TopicPartition, int], max_in_flight: int) -> int:
    """How many more records each partition may bring in search of other keys, given what each has not settled."""
    room = READ_AHEAD * max_in_flight - sum(unsettled.values())
    return max(0, min(max_in_flight, room // max(1, len(unsettled))))


PAUSE_AFTER_S = 1.0
"""How long a partition without room is merely left out of polls. Pausing throws away what was fetched for it; but
while that lies unread the client fetches less from the same broker for the others."""


class Valves:
    """Which partitions are paused at the client: those without room for a while, and those that are stopped."""

    def __init__(self) -> None:
        self.closed: set[TopicPartition] = set()
        self._without_room_since: dict[TopicPartition, float] = {}

    def update(
        self,
        assigned: Collection[TopicPartition],
        wanted: Collection[TopicPartition],
        stopped: Collection[TopicPartition],
        now: float,
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """What to pause and what to resume, given who is polled for now and who is stopped for a reason of its own.

        One that is not read for now, and begins anew later in the same assignment, is paused at the client until then.
        """
        since = self._without_room_since
        self._without_room_since = {tp: since.get(tp, now) for tp in assigned if tp not in wanted}
        to_resume = [partition for partition in wanted if partition in self.closed]
        to_pause = [
            partition
            for partition, began in self._without_room_since.items()
            if partition not in self.closed and (partition in stopped or now - began >= PAUSE_AFTER_S)
        ]
        self.closed.difference_update(to_resume)
        self.closed.update(to_pause)
        return to_pause, to_resume

    def open_all(self) -> None:
        """A new assignment has come: nothing is paused at the client any more."""
        self.closed.clear()
        self._without_room_since.clear()
