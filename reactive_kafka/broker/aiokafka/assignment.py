"""The partitions that one aiokafka client has been assigned, and where each of them is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from reactive_kafka.broker.aiokafka.asking import Questions
from reactive_kafka.broker.client import STATIC_GENERATION
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.records import TopicPartition


class Assignment(Questions):
    """A connected client, and what it owns from the end of one rebalance to the end of the next revocation."""

    def __init__(self, *, is_static: bool, read_committed: bool) -> None:
        self.is_static = is_static
        self.read_committed = read_committed
        self.started: set[TopicPartition] = set()
        # The client's own object, kept: when a pattern finds another topic, the client drops its assignment before it
        # calls on_partitions_revoked, and nothing could be committed or drained any more.
        self._theirs: Any = None

    @property
    def is_closed(self) -> bool:
        return self._client is None

    @property
    def generation(self) -> int:
        """The group's generation that this member is in, -1 outside of any; 0 for a static assignment."""
        return STATIC_GENERATION if self.is_static else int(self.client._coordinator.generation)

    def hold(self, partitions: Collection[Any]) -> None:
        """Keep newly assigned partitions from being fetched until ``start_at``, without the client resetting them."""
        self._theirs = self.client._subscription.subscription.assignment
        # Nothing flows before the hooks have run and the position is known, and the client must not choose a position
        # by itself (H12). So each partition is paused, and sought to 0: any position would do, but with none every poll
        # raises.
        for partition in partitions:
            state = self._theirs.state_value(partition)
            state.pause()
            state.seek(0)

    def let_go(self) -> None:
        self.started.clear()
        self._theirs = None

    def check_owner(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Raise NotOwnerError unless these partitions were assigned in *generation*, and still are."""
        if self.is_closed or self.generation != generation:
            raise NotOwnerError(f"the group has moved on from generation {generation}")
        self._check_assigned(partitions)

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        self._check_assigned(positions)
        fetcher = self.client._fetcher
        for partition, offset in positions.items():
            state = self._theirs.state_value(partition)
            state.seek(offset)
            fetcher._records.pop(partition, None)
            if partition not in self.started:
                state.resume()
                self.started.add(partition)
        fetcher._notify(fetcher._wait_consume_future)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition in self.started.intersection(partitions):
            self._theirs.state_value(partition).pause()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for partition in self.started.intersection(partitions):
            self._theirs.state_value(partition).resume()

    def states(self) -> dict[TopicPartition, Any]:
        """partition -> the client's state of it, for those that have started."""
        return {partition: self._theirs.state_value(partition) for partition in self.started}

    def positions(self) -> dict[TopicPartition, int]:
        return {partition: state.position for partition, state in self.states().items() if state.has_valid_position}

    def end_of(self, state: Any) -> int | None:
        """End of the log as the last fetch saw it; None before one was answered, or where the broker does not tell."""
        end = state.lso if self.read_committed else state.highwater
        return None if end is None or end < 0 else int(end)

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = frozenset() if self._theirs is None else frozenset(self._theirs.tps)
        missing = [partition for partition in partitions if partition not in assigned]
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")
