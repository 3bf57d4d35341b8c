"""What a poll of the in-memory broker brings."""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.broker.client import Chunk, Poll
from reactive_kafka.broker.memory.log import PartitionLog
from reactive_kafka.broker.memory.member import Assignment
from reactive_kafka.broker.memory.state import MemoryState
from reactive_kafka.errors import OffsetOutOfRangeError
from reactive_kafka.records import TopicPartition


class Reader:
    """Reads the logs for one consumer.

    Attributes:
        ends: partition -> end of the log when a poll last looked.
    """

    def __init__(self, state: MemoryState) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self._state = state
        self._first = 0  # which partition a poll looks at first

    def take(self, owned: Assignment, budgets: Mapping[TopicPartition, int], most: int | None) -> Poll:
        """Take what is there, and move the positions."""
        poll = Poll()
        if self._state.faults.down:
            return poll
        held = owned.paused | owned.going | self._state.faults.leaders_away.keys()
        reading = [partition for partition in owned.positions if partition not in held]
        self._first += 1  # each poll begins with another partition, so that the order favours none
        turn = self._first % max(1, len(reading))
        left = sum(budgets.values()) if most is None else most
        for passed, partition in enumerate(reading[turn:] + reading[:turn]):
            log = self._state.log(partition)
            if log is None:
                continue
            self.ends[partition] = log.end
            budget = min(budgets.get(partition, 0), left)
            if budget > 0:
                left -= self._read(log, partition, owned, budget, poll)
                if not left and most is not None:
                    self._first += passed  # the next poll begins behind the last one that this one took from
        return poll

    def _read(self, log: PartitionLog, partition: TopicPartition, owned: Assignment, most: int, poll: Poll) -> int:
        position = owned.positions[partition]
        if not log.start <= position <= log.end:
            poll.errors[partition] = OffsetOutOfRangeError(partition, position)
            return 0
        records, next_offset = log.read(position, most)
        if next_offset > position:
            owned.positions[partition] = next_offset
            poll.chunks.append(Chunk(partition, records, next_offset, log.end))
        return len(records)
