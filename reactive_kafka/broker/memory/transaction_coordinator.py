"""Transactions as the in-memory broker keeps them: who may write under a transactional id, and what
is open.
"""

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
class _Claimed:
    """A transactional id, who has it, and what takes part in the transaction that is open."""

    current: TransactionId
    timeout_s: float = 0.0
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    # While one is open.
    timer: asyncio.TimerHandle | None = None
    # Whose leader was away at the end of the last one.
    ending: list[TopicPartition] = field(default_factory=list)

    def is_over(self) -> None:
        """Nobody who has the id now may write any more."""
        self.current = self.current._replace(epoch=self.current.epoch + 1)


class TransactionCoordinator:
    """Gives out transactional ids, and ends transactions.

    What takes effect late is refused by its epoch, as the brokers refuse it: that is what keeps
    zombies out.
    """

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._claimed: dict[str, _Claimed] = {}
        self._producer_ids = count(1000)

    def claim(self, transactional_id: str, timeout_s: float) -> TransactionId:
        """Give an id to its next owner, and abort what the last one has left open."""
        claimed = self._claimed.get(transactional_id)
        if claimed is None:
            first = TransactionId(transactional_id, next(self._producer_ids), 0)
            claimed = self._claimed[transactional_id] = _Claimed(first)
        else:
            self._end(claimed, False)
            claimed.is_over()
        claimed.timeout_s = timeout_s
        self._check_ended(claimed)
        return claimed.current

    def add_partition(self, transaction: TransactionId, partition: TopicPartition) -> None:
        """Have a partition that is about to be written take part."""
        self._begun(transaction).partitions[partition] = None

    def add_group(self, transaction: TransactionId, group_id: str) -> None:
        """Have a group take part."""
        self._begun(transaction).groups[group_id] = None

    def commit_in(
        self,
        transaction: TransactionId,
        group: Group,
        member_id: str,
        generation: int,
        offsets: Mapping[TopicPartition, Committed],
    ) -> None:
        """Keep positions until the transaction ends. Raises as :meth:`Group.commit` does, and where
        it is over.
        """
        group.check(member_id, generation)
        if group.name not in self._current(transaction).groups:
            raise TransientBrokerError(
                f"group {group.name!r} takes no part in a transaction of {_name(transaction)}"
            )
        group.hold(transaction.transactional_id, member_id, generation, offsets)

    def end(self, transaction: TransactionId, is_committed: bool) -> None:
        """Commit or abort what is open."""
        self._end(self._current(transaction), is_committed)

    def close(self) -> None:
        for claimed in self._claimed.values():
            if claimed.timer is not None:
                claimed.timer.cancel()

    def _current(self, transaction: TransactionId) -> _Claimed:
        claimed = self._claimed.get(transaction.transactional_id)
        if claimed is None or claimed.current != transaction:
            raise TransientBrokerError(
                f"{_name(transaction)} is fenced: a later epoch of this transactional id exists"
            )
        return claimed

    def _begun(self, transaction: TransactionId) -> _Claimed:
        claimed = self._current(transaction)
        self._check_ended(claimed)
        if claimed.timer is None:
            claimed.timer = asyncio.get_running_loop().call_later(
                claimed.timeout_s, self._expire, claimed
            )
        return claimed

    def _check_ended(self, claimed: _Claimed) -> None:
        """Until each partition has its marker the last transaction is about to end, and the next
        one has to wait.
        """
        claimed.ending = [one for one in claimed.ending if one in self._state.faults.leaders_away]
        if claimed.ending:
            by = claimed.current.transactional_id
            partition = claimed.ending[0]
            raise TransientBrokerError(
                f"a transaction of {by!r} ends once the leader of {partition} answers"
            )

    def _expire(self, claimed: _Claimed) -> None:
        self._end(claimed, False)
        claimed.is_over()

    def _end(self, claimed: _Claimed, is_committed: bool) -> None:
        if claimed.timer is None:
            # None is open.
            return
        claimed.timer.cancel()
        partitions = claimed.partitions
        groups = claimed.groups
        claimed.timer = None
        claimed.partitions = {}
        claimed.groups = {}
        # A leader that is away is read by nobody, so its marker can stand there at once.
        claimed.ending = [one for one in partitions if one in self._state.faults.leaders_away]
        by = claimed.current.transactional_id
        for partition in partitions:
            if (log := self._state.log(partition)) is not None:
                log.end_transaction(by, is_committed)
        self._state.changed.notify()
        for group_id in groups:
            self._state.group(group_id).end_transaction(by, is_committed)


def _name(transaction: TransactionId) -> str:
    return f"{transaction.transactional_id!r} of epoch {transaction.epoch}"
