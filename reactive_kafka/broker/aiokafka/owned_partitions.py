"""Which partitions a consumer owns, and may commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reactive_kafka.broker.aiokafka.group_requests import CoordinatorRequests
from reactive_kafka.broker.client import STATIC_GENERATION
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions
from reactive_kafka.broker.consumer.membership.group_parts import GroupMembership
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.records import TopicPartition


class OwnedPartitions:
    """What a consumer owns from the end of one rebalance to the end of the next revocation.

    Args:
        reads: What it reads.
        is_closed: True before the start of the consumer, and after its stop.
        is_static: The consumer has chosen its partitions itself and joins no group.
    """

    def __init__(
        self, reads: ReadPartitions, is_closed: Callable[[], bool], *, is_static: bool
    ) -> None:
        self.is_static = is_static
        # The membership in the group; None: the consumer has chosen its partitions itself, or has
        # not started.
        self.group: GroupMembership | None = None
        # Reaches the coordinator of the group. A static assignment may commit to a group, too.
        self.coordinator: CoordinatorRequests | None = None
        self._is_closed = is_closed
        self._reads = reads

    @property
    def is_closed(self) -> bool:
        return self._is_closed()

    @property
    def generation(self) -> int:
        """The generation of the group that this member is in; -1 outside of any.

        It is 0 for a static assignment.
        """
        return STATIC_GENERATION if self.group is None else self.group.owned.generation

    def check_owner(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        """Raise NotOwnerError unless *partitions* were assigned in *generation* and still are."""
        if self.is_closed:
            raise NotOwnerError("the consumer has stopped")
        if self.group is not None:
            self.group.owned.check(partitions, generation)
            return
        if generation != STATIC_GENERATION:
            raise NotOwnerError(f"a static assignment has no generation {generation}")
        self._reads.check_owned(partitions)
