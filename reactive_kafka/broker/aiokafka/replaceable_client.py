"""A producer of aiokafka's that can be replaced while it is in use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import aiokafka
import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.client_arguments import client_arguments
from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.closing import CLOSE_DEADLINE_S, STOP_DEADLINE_S, cancel, finish
from reactive_kafka.broker.aiokafka.connecting import connect, why_away
from reactive_kafka.broker.aiokafka.moved_brokers import MovedBrokers, answers_soon
from reactive_kafka.broker.aiokafka.pacing import pace_producer_ids
from reactive_kafka.broker.aiokafka.producer_client import create_producer
from reactive_kafka.errors import TransientBrokerError

CHECK_DEADLINE_S = 2.5
LAST_EPOCH = 32_000
"""A producer with this epoch or a higher one gets a new id, because an epoch has 15 bits."""
ID_IS_VOID = (
    kafka_errors.ProducerFenced,
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.InvalidProducerIdMapping,
    kafka_errors.UnknownProducerId,
)
"""After these errors another epoch of the same producer id would be refused, too."""


class ReplaceableClient:
    """Holds one client of a producer at a time, and replaces one that has become suspect.

    Requests of the old client may still be on their way, and be stored after those of the new one.
    An idempotent client continues with the old one's producer id and the next epoch. As soon as a
    partition has a batch with the next epoch, the broker refuses batches with the old one. So the
    order in a partition is kept; in the worst case the same records are stored twice in a row.
    Without idempotence the old client is closed before the new one is created, and requests that
    are on the network may still arrive late.

    Source: KIP-360; Java's ``TransactionManager.bumpIdempotentProducerEpoch``.

    Args:
        prepare: Called with each new client when it is connected.

    Attributes:
        client: The client now. None: there is none yet, or the last one is being closed.
        is_suspect: The client is to be replaced.
    """

    def __init__(
        self,
        name: str,
        properties: Mapping[str, Any],
        prepare: Callable[[aiokafka.AIOKafkaProducer], None],
    ) -> None:
        self._name = name
        self._properties = properties
        self._prepare = prepare
        self.client: aiokafka.AIOKafkaProducer | None = None
        self.is_suspect = False
        self._is_stopped = False
        # The producer id and epoch of the last idempotent client.
        self._id_and_epoch: tuple[int, int] | None = None
        self._creating: asyncio.Task[aiokafka.AIOKafkaProducer] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._moved_brokers = MovedBrokers()

    async def current(self) -> aiokafka.AIOKafkaProducer:
        """Return the client, or a new one if it is suspect. Raises as :meth:`replace` does."""
        if self.client is not None and not self.is_suspect:
            return self.client
        return await self.replace()

    async def replace(self) -> aiokafka.AIOKafkaProducer:
        """Create a new client, the same one for all callers, even if all of them give up.

        Raises:
            TransientBrokerError: This producer was stopped. Also everything that connecting raises.
        """
        if self._is_stopped:
            raise self._stopped_error()
        if self._creating is None or self._creating.done():
            self._retire()
            self._creating = asyncio.create_task(self._renew(), name="make a producer")
            # Retrieves the error, in case all callers have given up.
            self._creating.add_done_callback(lambda task: task.cancelled() or task.exception())
        creating = self._creating
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if creating.cancelled() and (here is None or not here.cancelling()):
                # The stop has cancelled the creation; this call itself was not cancelled.
                raise self._stopped_error() from None
            raise

    def _stopped_error(self) -> TransientBrokerError:
        return TransientBrokerError(f"the producer of {self._name!r} has stopped")

    async def _renew(self) -> aiokafka.AIOKafkaProducer:
        if self._closing and not self._properties.get("enable_idempotence"):
            await asyncio.wait(self._closing)
        producer = await self._create()
        # Set here and not when the task is done: a caller in between would create another client,
        # and this one would be forgotten.
        self.client = producer
        self.is_suspect = False
        return producer

    def _retire(self) -> None:
        """Close the current client in the background. With a broker that hangs that takes long."""
        producer = self.client
        self.client = None
        if producer is not None:
            closing = asyncio.create_task(_close(producer), name="close a producer")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _create(self) -> aiokafka.AIOKafkaProducer:
        arguments = client_arguments(self._properties, self._name)
        producer = create_producer(arguments)
        pace_producer_ids(producer._sender)
        manager = producer._txn_manager
        # With a transactional id the broker raises the epoch.
        bumps_epoch = manager is not None and manager.transactional_id is None
        if bumps_epoch and self._id_and_epoch is not None:
            producer_id, epoch = self._id_and_epoch
            manager.set_pid_and_epoch(producer_id, epoch + 1)
        await connect(producer.client, producer.start, arguments, lambda: _close(producer))
        if bumps_epoch:
            id_and_epoch = manager.producer_id, manager.producer_epoch
            self._id_and_epoch = id_and_epoch if manager.producer_epoch < LAST_EPOCH else None
        self._prepare(producer)
        return producer

    async def check(self) -> None:
        """As :meth:`reactive_kafka.broker.client.Producer.check`."""
        if self.client is None or self.is_suspect:
            # Creating the next client tells more than an answer to the old one.
            await within(CHECK_DEADLINE_S, self.current(), "making a producer")
        else:
            await self.check_client(self.client)

    async def check_client(self, producer: aiokafka.AIOKafkaProducer) -> None:
        """Ask a broker for an answer by this client.

        Raises:
            TransientBrokerError: None answers.
        """
        if not await answers_soon(producer.client, CHECK_DEADLINE_S):
            self._moved_brokers.look(producer.client)
            raise TransientBrokerError(f"no broker answers{why_away(producer.client)}")

    def suspect(
        self, client: aiokafka.AIOKafkaProducer, error: BaseException | None = None
    ) -> None:
        """Have a client replaced, because of *error*; None: it has not answered in time."""
        if client is self.client:
            self.is_suspect = True
            if isinstance(error, ID_IS_VOID):
                self._id_and_epoch = None

    async def stop(self) -> None:
        """Close the client, and make no other."""
        self._is_stopped = True
        self._moved_brokers.close()
        if self._creating is not None and not self._creating.done():
            self._creating.cancel()
            await asyncio.wait([self._creating])
        self._retire()
        if self._closing:
            # A caller that is cancelled here leaves nothing half closed: the tasks continue.
            await asyncio.wait(self._closing)


async def _close(producer: aiokafka.AIOKafkaProducer) -> None:
    """Flush and close within a deadline. Records that are not confirmed by then fail.

    Cancellation: it is closed, but not flushed.
    """
    try:
        await finish(producer.stop(), STOP_DEADLINE_S)
    finally:
        await _close_client(producer)


async def _close_client(producer: aiokafka.AIOKafkaProducer) -> None:
    sender = producer._sender.sender_task
    is_sending = sender is not None and not sender.done()
    if is_sending:
        # It is cancelled, but waits for the requests that it has sent.
        sender.cancel()
    # This includes a batch that was added after the client's own flush.
    _fail_all(producer._message_accumulator)
    await finish(producer.client.close(), CLOSE_DEADLINE_S)
    if is_sending:
        await cancel([sender])


def _fail_all(accumulator: Any) -> None:
    """Fail all batches that wait or are on their way, without errors inside the client."""
    waiting_batches = [batch for batches in accumulator._batches.values() for batch in batches]
    # A batch that is about to be sent again is not among the pending ones, from which its failure
    # removes it.
    accumulator._pending_batches.update(batch for batch in waiting_batches if batch.retry_count)
    accumulator.fail_all(kafka_errors.KafkaError("the client was closed"))
    for batch in waiting_batches:
        if batch._drain_waiter.done() and not batch._drain_waiter.cancelled():
            # Retrieved, because no caller waits for it any more.
            batch._drain_waiter.exception()
