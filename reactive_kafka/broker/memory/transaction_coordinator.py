"""The transaction coordinator of the in-memory broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from reactive_kafka.broker.client import TransactionId
from reactive_kafka.broker.memory.group import Group
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import Committed, TopicPartition

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.memory_state import MemoryState


@dataclass(slots=True)
class _TransactionalId:
    """A transactional id, its current owner, and the parts of its open transaction."""

    current: TransactionId
    timeout_s: float = 0.0
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    # Set while a transaction is open: aborts it when its time is over.
    timer: asyncio.TimerHandle | None = None
    # Partitions of the last transaction whose leader was away at its end.
    waiting_for_leaders: list[TopicPartition] = field(default_factory=list)

    def fence(self) -> None:
        """Raise the epoch: the current owner may not write any more."""
        self.current = self.current._replace(epoch=self.current.epoch + 1)


class TransactionCoordinator:
    """Gives out transactional ids, and ends transactions.

    The epoch of a request is that of the moment when it was sent. It is checked when the request
    takes effect, as brokers do. So a request that a fault holds up meanwhile is a zombie's, and is
    refused.
    """

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._ids: dict[str, _TransactionalId] = {}
        self._producer_ids = count(1000)

    def claim(self, transactional_id: str, timeout_s: float) -> TransactionId:
        """Give an id to its next owner, and abort the transaction that is still open."""
        owner = self._ids.get(transactional_id)
        if owner is None:
            first = TransactionId(transactional_id, next(self._producer_ids), 0)
            owner = self._ids[transactional_id] = _TransactionalId(first)
        else:
            self._end(owner, False)
            owner.fence()
        owner.timeout_s = timeout_s
        self._check_last_ended(owner)
        return owner.current

    def add_partition(self, transaction: TransactionId, partition: TopicPartition) -> None:
        """Add a partition that is about to be written to the transaction."""
        self._begin_if_needed(transaction).partitions[partition] = None

    def add_group(self, transaction: TransactionId, group_id: str) -> None:
        """Add a group to the transaction."""
        self._begin_if_needed(transaction).groups[group_id] = None

    def commit_in(
        self,
        transaction: TransactionId,
        group: Group,
        member_id: str,
        generation: int,
        offsets: Mapping[TopicPartition, Committed],
    ) -> None:
        """Keep positions until the transaction ends.

        Raises as :meth:`Group.commit` does, and if the transaction is over.
        """
        group.check(member_id, generation)
        if group.name not in self._current(transaction).groups:
            raise TransientBrokerError(
                f"group {group.name!r} takes no part in a transaction of {_name(transaction)}"
            )
        group.hold(transaction.transactional_id, member_id, generation, offsets)

    def end(self, transaction: TransactionId, is_committed: bool) -> None:
        """Commit or abort the open transaction."""
        self._end(self._current(transaction), is_committed)

    def close(self) -> None:
        for owner in self._ids.values():
            if owner.timer is not None:
                owner.timer.cancel()

    def _current(self, transaction: TransactionId) -> _TransactionalId:
        owner = self._ids.get(transaction.transactional_id)
        if owner is None or owner.current != transaction:
            raise TransientBrokerError(
                f"{_name(transaction)} is fenced: a later epoch of this transactional id exists"
            )
        return owner

    def _begin_if_needed(self, transaction: TransactionId) -> _TransactionalId:
        owner = self._current(transaction)
        self._check_last_ended(owner)
        if owner.timer is None:
            owner.timer = asyncio.get_running_loop().call_later(
                owner.timeout_s, self._expire, owner
            )
        return owner

    def _check_last_ended(self, owner: _TransactionalId) -> None:
        """Raise until the last transaction has ended: each of its partitions has a marker."""
        owner.waiting_for_leaders = [
            partition
            for partition in owner.waiting_for_leaders
            if partition in self._state.faults.leaders_away
        ]
        if owner.waiting_for_leaders:
            by = owner.current.transactional_id
            partition = owner.waiting_for_leaders[0]
            raise TransientBrokerError(
                f"a transaction of {by!r} ends once the leader of {partition} answers"
            )

    def _expire(self, owner: _TransactionalId) -> None:
        self._end(owner, False)
        owner.fence()

    def _end(self, owner: _TransactionalId, is_committed: bool) -> None:
        if owner.timer is None:
            # No transaction is open.
            return
        owner.timer.cancel()
        partitions = owner.partitions
        groups = owner.groups
        owner.timer = None
        owner.partitions = {}
        owner.groups = {}
        # A partition whose leader is away is not read, so its marker can be written at once.
        owner.waiting_for_leaders = [
            partition for partition in partitions if partition in self._state.faults.leaders_away
        ]
        by = owner.current.transactional_id
        for partition in partitions:
            if (log := self._state.log(partition)) is not None:
                log.end_transaction(by, is_committed)
        self._state.changed.notify()
        for group_id in groups:
            self._state.group(group_id).end_transaction(by, is_committed)


def _name(transaction: TransactionId) -> str:
    return f"{transaction.transactional_id!r} of epoch {transaction.epoch}"
