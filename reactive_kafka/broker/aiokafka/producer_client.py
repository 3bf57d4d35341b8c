"""aiokafka's producer as a client that can be replaced, and how it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiokafka
import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.closing import CLOSE_DEADLINE_S, STOP_DEADLINE_S, cancel, finish
from reactive_kafka.broker.aiokafka.connecting import connect, why_away
from reactive_kafka.broker.aiokafka.moved import MovedBrokers, answers_soon
from reactive_kafka.broker.aiokafka.pacing import pace_producer_ids
from reactive_kafka.broker.aiokafka.patience import Reconnecting
from reactive_kafka.broker.aiokafka.setup import client_properties, made, within
from reactive_kafka.errors import TransientBrokerError

CHECK_DEADLINE_S = 2.5
LAST_EPOCH = 32_000
"""A producer with this epoch or a higher one gets a new id: an epoch has 15 bits."""
ID_IS_VOID = (
    kafka_errors.ProducerFenced,
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.InvalidProducerIdMapping,
    kafka_errors.UnknownProducerId,
)
"""What a broker answers where another epoch of the same producer id would be refused, too."""


class ReplaceableClient:
    """The base of what sends: it has one client at a time, and a new one once that is suspect.

    What the old client has sent may still be on its way, and be stored behind what the new one
    writes. An idempotent client goes by the old one's producer id, with the next epoch: from the
    first batch of that in a partition on, the broker refuses what comes there with the old epoch.
    So the order in a partition is kept, and what was written twice stands there twice in a row at
    worst. Without idempotence there is no such thing: then the old client is closed before the new
    one is made, and what is on the network may still come late.

    Source: KIP-360; Java's ``TransactionManager.bumpIdempotentProducerEpoch``.
    """

    def __init__(self, name: str, properties: Mapping[str, Any]) -> None:
        self._name = name
        self._properties = dict(properties)
        self._producer: aiokafka.AIOKafkaProducer | None = None
        self._is_suspect = False
        self._is_stopped = False
        # Of the last idempotent client.
        self._id_and_epoch: tuple[int, int] | None = None
        self._making: asyncio.Task[aiokafka.AIOKafkaProducer] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._moves = MovedBrokers()

    async def start(self) -> None:
        await self._client()

    async def _client(self) -> aiokafka.AIOKafkaProducer:
        """The client, or a new one. Raises as :meth:`_replaced`."""
        if self._producer is not None and not self._is_suspect:
            return self._producer
        return await self._replaced()

    async def _replaced(self) -> aiokafka.AIOKafkaProducer:
        """A new client, which all who ask wait for; it is made even when each of them gives up.

        TransientBrokerError: this was stopped; and all that connecting raises.
        """
        if self._is_stopped:
            raise self._stopped()
        if self._making is None or self._making.done():
            self._retire()
            self._making = asyncio.create_task(self._renew(), name="make a producer")
            # All may have given up.
            self._making.add_done_callback(lambda made: made.cancelled() or made.exception())
        making = self._making
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if making.cancelled() and (here is None or not here.cancelling()):
                # It is not we who were cancelled, but what we wait for, by the stop.
                raise self._stopped() from None
            raise

    def _stopped(self) -> TransientBrokerError:
        return TransientBrokerError(f"the producer of {self._name!r} has stopped")

    async def _renew(self) -> aiokafka.AIOKafkaProducer:
        if self._closing and not self._properties.get("enable_idempotence"):
            await asyncio.wait(self._closing)
        producer = await self._make()
        # Here, and not once the task is done: who asks in between would make another, and this one
        # would be forgotten.
        self._producer = producer
        self._is_suspect = False
        return producer

    def _retire(self) -> None:
        """Close the client there is, in the background: with a broker that hangs, that takes its
        time.
        """
        producer = self._producer
        self._producer = None
        if producer is not None:
            closing = asyncio.create_task(_close(producer), name="close a producer")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _make(self) -> aiokafka.AIOKafkaProducer:
        arguments = client_properties(self._properties, self._name)
        producer = made(aiokafka.AIOKafkaProducer, arguments)
        Reconnecting(producer.client)
        pace_producer_ids(producer._sender)
        manager = producer._txn_manager
        # Else the broker does it.
        bumps_epoch = manager is not None and manager.transactional_id is None
        if bumps_epoch and self._id_and_epoch is not None:
            producer_id, epoch = self._id_and_epoch
            manager.set_pid_and_epoch(producer_id, epoch + 1)
        await connect(producer, arguments, lambda: _close(producer))
        if bumps_epoch:
            used = manager.producer_id, manager.producer_epoch
            self._id_and_epoch = used if manager.producer_epoch < LAST_EPOCH else None
        return producer

    async def check(self) -> None:
        """As :meth:`reactive_kafka.broker.client.Producer.check`."""
        producer = self._producer
        if producer is None or self._is_suspect:
            # Another one is about to be made, which tells more than what the old one is answered.
            await within(CHECK_DEADLINE_S, self._client(), "making a producer")
        elif not await answers_soon(producer.client, CHECK_DEADLINE_S):
            self._moves.look(producer.client)
            raise TransientBrokerError(f"no broker answers{why_away(producer.client)}")

    def _suspect(
        self, client: aiokafka.AIOKafkaProducer, error: BaseException | None = None
    ) -> None:
        """It is not used any more, because of *error*; None: it has not answered in time."""
        if client is self._producer:
            self._is_suspect = True
            if isinstance(error, ID_IS_VOID):
                self._id_and_epoch = None

    async def stop(self) -> None:
        self._is_stopped = True
        self._moves.close()
        if self._making is not None and not self._making.done():
            self._making.cancel()
            await asyncio.wait([self._making])
        self._retire()
        if self._closing:
            # Whoever is cancelled here leaves nothing half closed.
            await asyncio.wait(self._closing)


async def _close(producer: aiokafka.AIOKafkaProducer) -> None:
    """Flush and close within a deadline; what is not confirmed by then fails, and nothing of the
    client is left.
    """
    await finish(producer.stop(), STOP_DEADLINE_S)
    sender = producer._sender.sender_task
    is_sending = sender is not None and not sender.done()
    if is_sending:
        # It sends nothing more, and waits for what it has sent.
        sender.cancel()
    # Also a batch that has come in behind the client's own flush.
    _fail_all(producer._message_accumulator)
    await finish(producer.client.close(), CLOSE_DEADLINE_S)
    if is_sending:
        await cancel([sender])


def _fail_all(accumulator: Any) -> None:
    """Fail what waits and what is on its way, without the errors that this makes behind the
    client's back.
    """
    waiting = [batch for batches in accumulator._batches.values() for batch in batches]
    # One that is to be sent again has been taken out already of where its end will take it out of.
    accumulator._pending_batches.update(batch for batch in waiting if batch.retry_count)
    accumulator.fail_all(kafka_errors.KafkaError("the client was closed"))
    for batch in waiting:
        if batch._drain_waiter.done() and not batch._drain_waiter.cancelled():
            # Nobody waits for it any more.
            batch._drain_waiter.exception()
