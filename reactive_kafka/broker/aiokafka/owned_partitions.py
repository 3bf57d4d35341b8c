"""The partitions that a consumer owns, and the state that aiokafka keeps of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import aiokafka
from aiokafka.consumer.subscription_state import TopicPartitionState

from reactive_kafka.broker.aiokafka.client_calls import as_aiokafka
from reactive_kafka.broker.aiokafka.cluster_queries import KafkaQueries
from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests
from reactive_kafka.broker.client import STATIC_GENERATION
from reactive_kafka.broker.consumer.membership.group_parts import GroupMembership
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.records import TopicPartition


class OwnedPartitions:
    """What a consumer owns from the end of one rebalance to the end of the next revocation.

    Args:
        consumer: Has the connected client.
        is_static: The consumer has chosen its partitions itself and joins no group.
        read_committed: It reads with ``isolation_level = "read_committed"``.
    """

    def __init__(
        self, consumer: KafkaQueries, *, is_static: bool, read_committed: bool = False
    ) -> None:
        self.is_static = is_static
        self.read_committed = read_committed
        # Those for which start_at has set a position.
        self.started: set[TopicPartition] = set()
        # Those that are being revoked: polls return no more of their records.
        self.leaving: set[TopicPartition] = set()
        # The membership in the group; None: the consumer has chosen its partitions itself, or has
        # not started.
        self.group: GroupMembership | None = None
        # Reaches the coordinator of the group. A static assignment may commit to a group, too.
        self.coordinator: CoordinatorRequests | None = None
        self._consumer = consumer
        # aiokafka's Assignment.
        self._assignment: Any = None

    @property
    def client(self) -> aiokafka.AIOKafkaConsumer:
        """The connected client. TransientBrokerError: the consumer is not started."""
        return self._consumer.client

    @property
    def is_closed(self) -> bool:
        return self._consumer.is_closed

    @property
    def generation(self) -> int:
        """The generation of the group that this member is in; -1 outside of any.

        It is 0 for a static assignment.
        """
        return STATIC_GENERATION if self.group is None else self.group.owned.generation

    def hold(self, partitions: Collection[Any]) -> None:
        """Keep newly assigned partitions from being fetched until ``start_at``."""
        self._assignment = self.client._subscription.subscription.assignment
        # The client must neither fetch before the hooks have run and the position is known, nor
        # choose a position by itself (H12). So each partition is paused and sought to 0. Any
        # position would do, but without one every poll raises.
        for partition in partitions:
            state = self._assignment.state_value(partition)
            state.pause()
            state.seek(0)

    def add(self, partitions: Collection[TopicPartition]) -> list[Any]:
        """Add new partitions to the assignment. Returns them as aiokafka's type.

        This changes the client's assignment in place. Its own ``assign`` would drop the state of
        the other partitions, and what was fetched for them.
        """
        assignment = self.client._subscription.subscription.assignment
        new = [
            partition
            for partition in as_aiokafka(sorted(partitions))
            if partition not in assignment.tps
        ]
        assignment._tp_state.update(
            {partition: TopicPartitionState(assignment) for partition in new}
        )
        assignment._topic_partitions |= frozenset(new)
        return new

    def remove(self, partitions: Collection[Any]) -> None:
        """Remove partitions (aiokafka's type), and what was fetched for them.

        The state of all others stays. An answer that is on its way loses them in ``FetchClient``.
        """
        assignment = self.client._subscription.subscription.assignment
        fetcher = self.client._fetcher
        fetcher._client.forget()
        assignment._topic_partitions -= frozenset(partitions)
        for partition in partitions:
            assignment._tp_state.pop(partition, None)
            fetcher._records.pop(partition, None)
            ours = TopicPartition(partition.topic, partition.partition)
            self.started.discard(ours)
            self.leaving.discard(ours)
        fetcher._notify(fetcher._wait_consume_future)

    def let_go(self) -> None:
        """Forget the assignment: it was revoked, or the consumer has stopped."""
        self.started.clear()
        self.leaving.clear()
        self._assignment = None

    def check_owner(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Raise NotOwnerError unless *partitions* were assigned in *generation* and still are."""
        if self.is_closed:
            raise NotOwnerError("the consumer has stopped")
        if self.group is not None:
            self.group.owned.check(partitions, generation)
            return
        if generation != STATIC_GENERATION:
            raise NotOwnerError(f"a static assignment has no generation {generation}")
        self._check_assigned(partitions)

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Set where partitions are read from next, and drop what was fetched for them."""
        self._check_assigned(positions)
        fetcher = self.client._fetcher
        fetcher._client.forget()
        for partition, offset in positions.items():
            state = self._assignment.state_value(partition)
            state.seek(offset)
            fetcher._records.pop(partition, None)
            if partition not in self.started and partition not in self.leaving:
                state.resume()
                self.started.add(partition)
        fetcher._notify(fetcher._wait_consume_future)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition in self.started.intersection(partitions):
            self._assignment.state_value(partition).pause()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        for partition in self.started.intersection(partitions) - self.leaving:
            self._assignment.state_value(partition).resume()

    def states(self) -> dict[TopicPartition, Any]:
        """Return partition -> aiokafka's state of it, for those that have started."""
        return {partition: self._assignment.state_value(partition) for partition in self.started}

    def positions(self) -> dict[TopicPartition, int]:
        """Return partition -> offset of the next record to take, for those that have started."""
        return {
            partition: state.position
            for partition, state in self.states().items()
            if state.has_valid_position
        }

    def end_of(self, state: Any) -> int | None:
        """Return the end of the log that the last fetch was answered with.

        None before a fetch was answered, and if the broker does not tell the end.
        """
        end = state.lso if self.read_committed else state.highwater
        return None if end is None or end < 0 else int(end)

    def held_up(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return partition -> (last stable offset, end) where only an open transaction is left.

        Both offsets are those of the last fetch.
        """
        found: dict[TopicPartition, tuple[int, int]] = {}
        if not self.read_committed or self.is_closed:
            return found
        for partition, state in self.states().items():
            # A paused partition is not fetched, so its offsets may be of any age.
            if not state.has_valid_position or state.paused:
                continue
            if state.lso is None or state.lso < 0:
                continue
            if state.lso <= state.position < state.highwater:
                found[partition] = (int(state.lso), int(state.highwater))
        return found

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        assigned = frozenset() if self._assignment is None else frozenset(self._assignment.tps)
        missing = [partition for partition in partitions if partition not in assigned]
        if missing:
            raise NotOwnerError(f"not assigned: {', '.join(map(str, missing))}")
