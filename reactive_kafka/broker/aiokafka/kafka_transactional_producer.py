"""aiokafka's transactional producer behind the seam."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import aiokafka
import aiokafka.errors as kafka_errors
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.producer.sender import AddPartitionsToTxnHandler
from aiokafka.producer.transaction_manager import TransactionManager

from reactive_kafka.broker.aiokafka.client_calls import CALL_DEADLINE_S, within
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.error_translation import COORDINATOR_MOVED
from reactive_kafka.broker.aiokafka.kafka_producer import AiokafkaProducer
from reactive_kafka.broker.aiokafka.producer_client import ProducerClient
from reactive_kafka.broker.client import TRANSACTION_TIMEOUT_MS, BatchRefusedError, TransactionId
from reactive_kafka.broker.wire.definitions import ADD_OFFSETS_TO_TXN
from reactive_kafka.broker.wire.requests import call
from reactive_kafka.errors import (
    BrokerError,
    OutcomeUnknownError,
    RejectedRecordError,
    TransientBrokerError,
)

SOON_S = 0.003
"""How soon to begin a transaction again if the markers of the last one are not written yet, which
takes the broker some milliseconds. The client waits 20 or 100 ms: most of the time of a small
transaction.
"""
END_DEADLINE_S = 10.0
"""How long to wait for the end of a transaction. Its coordinator may be moving to another node."""


# aiokafka is untyped.
class _AddPartitions(AddPartitionsToTxnHandler):  # type: ignore[misc]
    def handle_response(self, answer: Any) -> float | None:
        codes = (code for _, rows in answer.errors for _, code in rows)
        return _shorten_wait(super().handle_response(answer), codes)


def _shorten_wait(wait_s: float | None, codes: Iterable[int]) -> float | None:
    """Return a shorter wait if the only obstacle is the end of the last transaction."""
    is_busy = any(code == kafka_errors.ConcurrentTransactions.errno for code in codes)
    return SOON_S if is_busy and wait_s is not None else wait_s


async def _add_partitions(sender: Any, transactional_id: str, partitions: Any) -> bool:
    node = await sender._find_coordinator(CoordinationType.TRANSACTION, transactional_id)
    return bool(await _AddPartitions(sender, partitions).do(node))


async def _add_group(sender: Any, transactional_id: str, group_id: str) -> None:
    """Tell the transaction's coordinator that positions of a group follow, until it knows.

    aiokafka's own ``send_offsets_to_transaction`` would also send the positions, but without member
    and generation.

    Raises:
        aiokafka.errors.KafkaError: The coordinator refuses.
    """
    manager = sender._txn_manager
    values = {
        "transactional_id": transactional_id,
        "producer_id": manager.producer_id,
        "producer_epoch": manager.producer_epoch,
        "group_id": group_id,
    }
    while True:
        node = await sender._find_coordinator(CoordinationType.TRANSACTION, transactional_id)
        # From version 2 on a fenced producer gets a code that aiokafka does not know.
        asking = call(
            sender.client,
            node,
            ADD_OFFSETS_TO_TXN,
            values,
            versions="0-1",
            group=ConnectionGroup.COORDINATION,
        )
        try:
            answer = await asking
        except kafka_errors.KafkaError:
            # The node may be gone.
            sender._coordinator_dead(CoordinationType.TRANSACTION)
            wait_s = _retry_backoff_s(sender)
        else:
            if not answer["error_code"]:
                manager.consumer_group_added(group_id)
                return
            wait_s = _wait_before_retry(sender, answer["error_code"], group_id)
        await asyncio.sleep(wait_s)


def _retry_backoff_s(sender: Any) -> float:
    client: ProducerClient = sender.client
    return client.settings.retry_backoff_ms / 1000


def _wait_before_retry(sender: Any, code: int, group_id: str) -> float:
    """Return after how long to send a refused AddOffsetsToTxn again, or raise the refusal."""
    refusal = class_for(code)
    manager = sender._txn_manager
    if issubclass(refusal, kafka_errors.ConcurrentTransactions):
        return SOON_S
    if issubclass(refusal, COORDINATOR_MOVED):
        sender._coordinator_dead(CoordinationType.TRANSACTION)
        return _retry_backoff_s(sender)
    if issubclass(refusal, kafka_errors.CoordinatorLoadInProgressError):
        return _retry_backoff_s(sender)
    if issubclass(refusal, kafka_errors.InvalidProducerEpoch):
        raise kafka_errors.ProducerFenced()
    if issubclass(refusal, kafka_errors.TransactionalIdAuthorizationFailed):
        raise refusal(manager.transactional_id)
    if issubclass(refusal, kafka_errors.GroupAuthorizationFailedError):
        error = refusal(group_id)
        # The client must not commit the transaction without the positions.
        manager.error_transaction(error)
        raise error
    raise refusal()


def _retrieve_failures(manager: TransactionManager) -> None:
    """Keep asyncio from reporting failed transactions.

    The client keeps such an error for a caller that awaits the end of the transaction. There is no
    such caller if the end was given up at its deadline, or if an earlier step has failed. Both have
    raised the reason already.
    """

    def seen(fail: Callable[[BaseException], None], error: BaseException) -> None:
        fail(error)
        manager.wait_for_transaction_end().exception()

    manager.error_transaction = partial(seen, manager.error_transaction)
    manager.fatal_error = partial(seen, manager.fatal_error)


class AiokafkaTransactionalProducer(AiokafkaProducer):
    """Writes in transactions of one transactional id.

    A client that has failed is useless until the next claim.
    """

    def __init__(self, name: str, transactional_id: str, properties: Mapping[str, Any]) -> None:
        ours = {
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            **properties,
            "transactional_id": transactional_id,
        }
        super().__init__(name, ours)
        self._transactional_id = transactional_id

    async def claim(self) -> None:
        # While the old client is being closed, its last requests may still be sent. The broker
        # refuses them once the new client has its epoch, which is before this returns.
        await self._clients.replace()

    def _prepare(self, client: aiokafka.AIOKafkaProducer) -> None:
        """Have a new client report what fails in its transactions, too."""
        super()._prepare(client)
        client._sender._do_add_partitions_to_txn = partial(
            _add_partitions, client._sender, self._transactional_id
        )
        _retrieve_failures(client._txn_manager)

    async def _current_client(self) -> aiokafka.AIOKafkaProducer:
        if self._clients.client is None or self._clients.is_suspect:
            raise TransientBrokerError(
                f"the transaction of {self._transactional_id!r} has failed already"
            )
        return self._clients.client

    def _batch_refused(self, topic: str, records: int, error: RejectedRecordError) -> None:
        # The broker has refused a part of the transaction: nothing more can be written in it.
        raise BatchRefusedError(f"{topic}: a batch of {records} records: {error}") from error

    async def check(self) -> None:
        if self._clients.client is not None:
            await self._clients.check_client(self._clients.client)

    @property
    def _manager(self) -> TransactionManager:
        # There is a client from the first claim on.
        assert self._clients.client is not None  # noqa: S101
        return self._clients.client._txn_manager

    def begin(self) -> None:
        self._manager.begin_transaction()

    async def add_group(self, group_id: str) -> TransactionId:
        client = await self._current_client()
        manager = self._manager
        adding = _add_group(client._sender, self._transactional_id, group_id)
        try:
            await within(CALL_DEADLINE_S, adding, f"adding group {group_id!r} to a transaction")
        except BaseException:
            self._clients.suspect(client)
            raise
        return TransactionId(self._transactional_id, manager.producer_id, manager.producer_epoch)

    async def commit(self) -> None:
        client = await self._current_client()
        try:
            await within(END_DEADLINE_S, client.commit_transaction(), "committing a transaction")
        except BrokerError as error:
            self._clients.suspect(client)
            raise OutcomeUnknownError(
                f"the end of a transaction of {self._transactional_id!r}: {error}"
            ) from error
        except BaseException:
            self._clients.suspect(client)
            raise

    async def abort(self) -> None:
        client = await self._current_client()
        try:
            await within(END_DEADLINE_S, client.abort_transaction(), "aborting a transaction")
        except BaseException:
            self._clients.suspect(client)
            raise

    async def stop(self) -> None:
        try:
            await self._abort_open()
        finally:
            # Even if the caller is cancelled, because nothing else closes the client.
            await super().stop()

    async def _abort_open(self) -> None:
        """Abort an open transaction. If this fails, the broker does when its time is over."""
        client = self._clients.client
        if client is None or self._clients.is_suspect or not self._manager.is_in_transaction():
            return
        with suppress(BrokerError):
            await within(CALL_DEADLINE_S, client.abort_transaction(), "aborting a transaction")
