"""The in-memory broker's transactional producer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from reactive_kafka.broker.client import (
    TRANSACTION_TIMEOUT_MS,
    TransactionId,
    Written,
    WrittenBatch,
)
from reactive_kafka.broker.memory.memory_producer import MemoryWriter, int_property
from reactive_kafka.broker.memory.memory_state import MemoryState
from reactive_kafka.errors import BrokerError
from reactive_kafka.records import RecordBytes, RecordFields, TopicPartition


@dataclass(slots=True)
class _Tenure:
    """The time from a claim to the first call that fails."""

    transaction: TransactionId
    is_over: bool = False
    has_begun: bool = False
    # The broker may have heard of the transaction.
    is_known_to_broker: bool = False
    # The calls that are on their way.
    running_calls: int = 0


class MemoryTransactionalProducer(MemoryWriter):
    """Writes in transactions.

    A call that the seam does not allow raises BrokerError, so that no test passes with it.
    """

    def __init__(
        self, state: MemoryState, transactional_id: str, properties: Mapping[str, object]
    ) -> None:
        super().__init__(state, properties)
        self._transactional_id = transactional_id
        self._timeout_s = (
            int_property(properties, "transaction_timeout_ms", TRANSACTION_TIMEOUT_MS) / 1000
        )
        self._tenure: _Tenure | None = None

    async def claim(self) -> None:
        if self._tenure is not None:
            self._tenure.is_over = True
        by = self._transactional_id
        transactions = self._state.transactions
        claimed = await self._state.faults.ask(
            "claim", lambda: transactions.claim(by, self._timeout_s), by
        )
        self._tenure = _Tenure(claimed)

    def begin(self) -> None:
        tenure = self._current_tenure()
        if tenure.has_begun:
            raise BrokerError(
                f"{self._transactional_id!r} has begun a transaction, and not ended it"
            )
        tenure.has_begun = True

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        with self._in_transaction() as tenure:
            tenure.is_known_to_broker = True
            return await super().write(to, records)

    async def add_group(self, group_id: str) -> TransactionId:
        with self._in_transaction() as tenure:
            tenure.is_known_to_broker = True
            transaction = tenure.transaction
            transactions = self._state.transactions
            await self._state.faults.ask(
                "add_group", lambda: transactions.add_group(transaction, group_id), group_id
            )
            return transaction

    async def commit(self) -> None:
        await self._end(True)

    async def abort(self) -> None:
        await self._end(False)

    async def stop(self) -> None:
        await super().stop()
        tenure = self._tenure
        self._tenure = None
        if tenure is not None and tenure.has_begun:
            with suppress(BrokerError):
                await self._ask_end(tenure, False)

    async def _end(self, is_committed: bool) -> None:
        with self._in_transaction() as tenure:
            if tenure.running_calls > 1:
                raise BrokerError(
                    f"{tenure.running_calls - 1} calls of {self._transactional_id!r} "
                    "are still on their way"
                )
            await self._ask_end(tenure, is_committed)
            tenure.has_begun = False
            tenure.is_known_to_broker = False

    async def _ask_end(self, tenure: _Tenure, is_committed: bool) -> None:
        # A client does not end a transaction that the broker has not heard of.
        if tenure.is_known_to_broker:
            transactions = self._state.transactions
            await self._state.faults.ask(
                "end",
                lambda: transactions.end(tenure.transaction, is_committed),
                self._transactional_id,
            )

    def _appender(self, target: TopicPartition) -> Callable[[Sequence[RecordBytes]], list[Written]]:
        transaction = self._current_tenure().transaction
        by = self._transactional_id

        def append(records: Sequence[RecordBytes]) -> list[Written]:
            self._state.transactions.add_partition(transaction, target)
            return [self._state.append(target, record, by) for record in records]

        return append

    def _current_tenure(self) -> _Tenure:
        if self._tenure is None or self._tenure.is_over:
            raise BrokerError(
                f"{self._transactional_id!r} has to be claimed first: "
                "that comes after any error, too"
            )
        return self._tenure

    @contextmanager
    def _in_transaction(self) -> Iterator[_Tenure]:
        """Count one call in the transaction. If it fails, the tenure is over."""
        tenure = self._current_tenure()
        if not tenure.has_begun:
            raise BrokerError(f"{self._transactional_id!r} has begun no transaction")
        tenure.running_calls += 1
        try:
            yield tenure
        except BaseException:
            tenure.is_over = True
            raise
        finally:
            tenure.running_calls -= 1
