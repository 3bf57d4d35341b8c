"""aiokafka's producer behind the seam."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Coroutine, Mapping
from typing import Any

import aiokafka
import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.closing import CLOSE_DEADLINE_S, STOP_DEADLINE_S, cancel, finish
from reactive_kafka.broker.aiokafka.setup import client_properties, connect, translate, within
from reactive_kafka.broker.client import Written
from reactive_kafka.errors import BrokerError, FatalBrokerError, RejectedRecordError, TransientBrokerError
from reactive_kafka.records import HeaderPairs, TopicPartition
from reactive_kafka.wire import record_problem

SEND_DEADLINE_S = 30.0
ASK_DEADLINE_S = 2.0
PRODUCER_DEFAULTS: Mapping[str, Any] = {"acks": "all", "enable_idempotence": True}


class AiokafkaProducer:
    """After a send that missed its deadline (H7: the client can hang for ever) the next one gets a new client."""

    def __init__(self, name: str, properties: Mapping[str, Any]) -> None:
        self._name = name
        self._properties = {**PRODUCER_DEFAULTS, **properties}
        self._deadline_s = float(self._properties.pop("send_timeout_s", SEND_DEADLINE_S))
        if self._properties["acks"] in (0, 1, "0", "1"):
            self._properties["enable_idempotence"] = False
        self._producer: aiokafka.AIOKafkaProducer | None = None
        self._is_suspect = False
        self._making: asyncio.Task[aiokafka.AIOKafkaProducer] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._client()

    async def _client(self) -> aiokafka.AIOKafkaProducer:
        """The client, or a new one, which all who ask wait for; it is made even when each of them gives up."""
        if self._producer is not None and not self._is_suspect:
            return self._producer
        if self._making is None or self._making.done():
            self._retire()
            self._making = asyncio.create_task(self._make(), name="make a producer")
            self._making.add_done_callback(self._is_made)
        return await asyncio.shield(self._making)

    def _is_made(self, making: asyncio.Task[aiokafka.AIOKafkaProducer]) -> None:
        if not making.cancelled() and making.exception() is None:
            self._producer, self._is_suspect = making.result(), False

    def _retire(self) -> None:
        """Close the client there is, in the background: with a broker that hangs, that takes its time."""
        producer, self._producer = self._producer, None
        if producer is not None:
            closing = asyncio.create_task(_close(producer), name="close a producer")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _make(self) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(**client_properties(self._properties, self._name))
        await connect(producer, lambda: _close(producer))
        return producer

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Future[Written]:
        loop = asyncio.get_running_loop()
        answer: Future[Written] = loop.create_future()
        if problem := record_problem(topic, value, key, headers, partition, timestamp_ms):
            answer.set_exception(RejectedRecordError(f"{topic}: {problem}"))
            return answer
        deadline = loop.time() + self._deadline_s
        hand_over = self._hand_over(topic, value, key, partition, timestamp_ms=timestamp_ms, headers=list(headers))
        try:
            sent = await self._queue(topic, hand_over)
        except BrokerError as error:
            answer.set_exception(error)
            return answer
        timer = loop.call_at(deadline, self._is_late, topic, answer)
        sent.add_done_callback(lambda done: _confirm(done, answer, timer))
        return answer

    async def _queue(self, topic: str, hand_over: Coroutine[Any, Any, Future[Any]]) -> Future[Any]:
        """Hand a record over; a topic that the brokers answer not to know is what nobody but the operator mends."""
        try:
            return await within(self._deadline_s, hand_over, f"sending to {topic}")
        except TransientBrokerError as error:
            if await self._is_missing(topic):
                what = f"topic {topic!r} does not exist, and the broker does not create it"
                raise FatalBrokerError(what) from error
            raise
        except (ValueError, TypeError, AssertionError) as error:  # what the client finds wrong with the record itself
            raise RejectedRecordError(f"{topic}: {error}") from error

    async def _is_missing(self, topic: str) -> bool:
        if self._producer is None:
            return False
        client = self._producer.client
        try:
            async with asyncio.timeout(ASK_DEADLINE_S):
                return await client.force_metadata_update() and client.cluster.partitions_for_topic(topic) is None
        except TimeoutError:
            return False

    async def _hand_over(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int | None, **fields: Any
    ) -> Future[Any]:
        producer = await self._client()
        if value is not None or key is not None:
            return await producer.send(topic, value, key=key, partition=partition, **fields)  # type: ignore[no-any-return]
        # The client's own send refuses a record that has neither key nor value; brokers store it.
        await producer.client._wait_on_metadata(topic)
        where = aiokafka.TopicPartition(topic, producer._partition(topic, partition, None, None, None, None))
        timeout_s = producer._request_timeout_ms / 1000
        add_message = producer._message_accumulator.add_message
        return await add_message(where, None, None, timeout_s, **fields)  # type: ignore[no-any-return]

    def _is_late(self, topic: str, answer: Future[Written]) -> None:
        if not answer.done():
            self._is_suspect = True
            answer.set_exception(TransientBrokerError(f"{topic}: not confirmed within {self._deadline_s:g} s"))

    async def stop(self) -> None:
        if self._making is not None and not self._making.done():
            self._making.cancel()
            await asyncio.wait([self._making])
        self._retire()
        if self._closing:
            await asyncio.wait(self._closing)  # whoever is cancelled here leaves nothing half closed


async def _close(producer: aiokafka.AIOKafkaProducer) -> None:
    """Flush and close within a deadline; what is not confirmed by then fails, and nothing of the client is left."""
    await finish(producer.stop(), STOP_DEADLINE_S)
    sender = producer._sender.sender_task
    is_sending = sender is not None and not sender.done()
    if is_sending:
        sender.cancel()  # it sends nothing more, and waits for what it has sent
        _fail_all(producer._message_accumulator)
    await finish(producer.client.close(), CLOSE_DEADLINE_S)
    if is_sending:
        await cancel([sender])


def _fail_all(accumulator: Any) -> None:
    """Fail what waits and what is on its way, without the errors that this makes behind the client's back."""
    waiting = [batch for batches in accumulator._batches.values() for batch in batches]
    # One that is to be sent again has been taken out already of where its end will take it out of.
    accumulator._pending_batches.update(batch for batch in waiting if batch.retry_count)
    accumulator.fail_all(kafka_errors.KafkaError("the client was closed"))
    for batch in waiting:
        if batch._drain_waiter.done() and not batch._drain_waiter.cancelled():
            batch._drain_waiter.exception()  # nobody waits for it any more


def _confirm(done: Future[Any], answer: Future[Written], timer: asyncio.TimerHandle) -> None:
    timer.cancel()
    if answer.done():
        if not done.cancelled():
            done.exception()  # late: the answer was given at the deadline
        return
    error = kafka_errors.KafkaError("the client was closed") if done.cancelled() else done.exception()
    if error is not None:
        answer.set_exception(translate(error))
        return
    at = done.result()
    answer.set_result(Written(TopicPartition(at.topic, at.partition), at.offset))
