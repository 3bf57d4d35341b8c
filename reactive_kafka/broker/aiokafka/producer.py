"""aiokafka's producer behind the seam."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import aiokafka
import aiokafka.errors as kafka_errors
from aiokafka.producer.sender import SendProduceReqHandler

from reactive_kafka.broker.aiokafka.batches import has_odd_names, java_hash, packed
from reactive_kafka.broker.aiokafka.producer_client import ReplaceableClient
from reactive_kafka.broker.aiokafka.setup import translate, within
from reactive_kafka.broker.aiokafka.writable import until_writable
from reactive_kafka.broker.client import Written, WrittenBatch
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.records import HeaderPairs, RecordBytes, RecordFields, TopicPartition
from reactive_kafka.wire import record_problem, topic_problem

SEND_DEADLINE_S = 30.0
ASK_DEADLINE_S = 2.0
PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    # The client has one request on its way to a node, and one batch of each partition in it: with
    # its own 16 KiB that is what bounds a channel. Brokers take 1 MiB unless they are told
    # otherwise.
    "max_batch_size": 262_144,
    # Its own default.
    "max_request_size": 1_048_576,
}


TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)

T = TypeVar("T")


# Aiokafka is untyped.
class _Producing(SendProduceReqHandler):  # type: ignore[misc]
    """Tells why batches are sent again, as *sent_again* (topic, error): the client says that in its
    log only.

    It tells answers of brokers only. Why none comes is told by who asks whether they are there.
    """

    def __init__(
        self, sender: Any, batches: Any, sent_again: Callable[[str, BaseException], None]
    ) -> None:
        super().__init__(sender, batches)
        self._sent_again = sent_again
        self._is_answered = False

    def handle_response(self, response: Any) -> None:
        self._is_answered = True
        super().handle_response(response)

    def _can_retry(self, error: Any, batch: Any) -> bool:
        can_retry = bool(super()._can_retry(error, batch))
        if can_retry and self._is_answered:
            self._sent_again(batch.tp.topic, error)
        return can_retry


async def _send_batches(
    sender: Any, sent_again: Callable[[str, BaseException], None], node_id: int, batches: Any
) -> None:
    """As the client's own ``Sender._send_produce_req``."""
    await _Producing(sender, batches, sent_again).do(node_id)
    sender._in_flight.remove(node_id)
    for partition in batches:
        sender._muted_partitions.remove(partition)


class _Queued(NamedTuple):
    """What a client has taken over: a record, or a batch of *records* with *size* bytes, not
    compressed.
    """

    client: aiokafka.AIOKafkaProducer
    sent: Future[Any]
    records: int = 1
    size: int = 0


class AiokafkaProducer(ReplaceableClient):
    """After a send that missed its deadline (H7: the client can hang for ever) the next one gets a
    new client.

    So it does after one that was refused (H18: an idempotent client is refused from then on).
    """

    def __init__(self, name: str, properties: Mapping[str, Any]) -> None:
        given = {**PRODUCER_DEFAULTS, **properties}
        self._deadline_s = float(given.pop("send_timeout_s", SEND_DEADLINE_S))
        if given["acks"] in (0, 1, "0", "1"):
            given["enable_idempotence"] = False
        # A batch that is larger than any record may be is refused for its size, though each record
        # in it is fine.
        given["max_batch_size"] = min(given["max_batch_size"], given["max_request_size"])
        super().__init__(name, given)
        # Topic -> of a batch, where its broker has refused a larger one.
        self._most_bytes: dict[str, int] = {}
        # Topics that were there, and that we may write to, when we asked.
        self._found: set[str] = set()
        # Topic -> why its batches were sent again, since the last confirmation.
        self._answers: dict[str, str] = {}

    async def _make(self) -> aiokafka.AIOKafkaProducer:
        client = await super()._make()
        client._sender._send_produce_req = partial(_send_batches, client._sender, self._sent_again)
        return client

    def _sent_again(self, topic: str, error: BaseException) -> None:
        self._answers[topic] = str(translate(error))

    def key_hash(self, key: bytes) -> int:
        return java_hash(key)

    async def partitions(self, topic: str) -> int:
        if problem := topic_problem(topic):
            raise RejectedRecordError(f"{topic}: {problem}")
        known = self.known_partitions(topic) if topic in self._found else 0
        return known or await self._queue(topic, self._ask_for_partitions(topic))

    async def _ask_for_partitions(self, topic: str) -> int:
        client = await self._client()
        # The client itself asks for a topic that does not exist until its own request timeout, 40 s
        # by default.
        await until_writable(client.client, topic)
        partitions = await client.partitions_for(topic)
        self._found.add(topic)
        return len(partitions)

    def known_partitions(self, topic: str) -> int:
        known = (
            None
            if self._producer is None
            else self._producer.client.cluster.partitions_for_topic(topic)
        )
        return len(known or ())

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
        try:
            if problem := record_problem(topic, value, key, headers, partition, timestamp_ms):
                raise RejectedRecordError(f"{topic}: {problem}")
            deadline = loop.time() + self._deadline_s
            fields = {"timestamp_ms": timestamp_ms, "headers": list(headers)}
            queued = await self._queue(
                topic, self._hand_over(topic, value, key, partition, **fields)
            )
        except BrokerError as error:
            answer: Future[Written] = loop.create_future()
            answer.set_exception(error)
            return answer
        return self._follow(topic, queued, deadline)

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        first = records[0]
        if problem := record_problem(
            to.topic, first.value, first.key, first.headers, to.partition, first.timestamp_ms
        ):
            raise RejectedRecordError(f"{to.topic}: {problem}")
        deadline = asyncio.get_running_loop().time() + self._deadline_s
        while True:
            queued = await self._queue(to.topic, self._hand_over_batch(to, records))
            answer = self._follow(to.topic, queued, deadline)
            # Looked at, also if cancelled.
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                written = await answer
            except RejectedRecordError as error:
                if queued.records == 1 or not isinstance(error.__cause__, TOO_LARGE):
                    raise
                # The topic takes less than a broker does by default.
                less = queued.size // 2
                self._most_bytes[to.topic] = min(less, self._most_bytes.get(to.topic, less))
                self._batch_refused(to.topic, queued.records, error)
            else:
                return WrittenBatch(written.offset, queued.records)

    def _batch_refused(self, topic: str, records: int, error: RejectedRecordError) -> None:
        """A batch was refused for its size; what it had is sent again in smaller ones, unless this
        raises.
        """

    async def _hand_over_batch(
        self, to: TopicPartition, records: Sequence[RecordFields]
    ) -> _Queued:
        client = await self._client()
        batch = packed(
            client, records, self._most_bytes.get(to.topic, self._properties["max_batch_size"])
        )
        count = batch.record_count()
        size = batch.size()
        return _Queued(
            client, await client.send_batch(batch, to.topic, partition=to.partition), count, size
        )

    def _follow(self, topic: str, queued: _Queued, deadline: float) -> Future[Written]:
        """The answer to what was queued, at the deadline at the latest."""
        loop = asyncio.get_running_loop()
        answer: Future[Written] = loop.create_future()
        timer = loop.call_at(deadline, self._is_late, topic, queued, answer)
        queued.sent.add_done_callback(lambda _: self._confirm(topic, queued, answer, timer))
        return answer

    async def _queue(self, topic: str, hand_over: Coroutine[Any, Any, T]) -> T:
        """Hand something over; a topic that the brokers answer not to know is what nobody but the
        operator mends.
        """
        try:
            return await within(self._deadline_s, hand_over, f"sending to {topic}")
        except TransientBrokerError as error:
            if await self._is_missing(topic):
                what = f"topic {topic!r} does not exist, and the broker does not create it"
                raise FatalBrokerError(what) from error
            raise
        except (ValueError, TypeError, AssertionError) as error:
            # What the client finds wrong with the record itself.
            raise RejectedRecordError(f"{topic}: {error}") from error

    async def _is_missing(self, topic: str) -> bool:
        if self._producer is None:
            return False
        client = self._producer.client
        try:
            async with asyncio.timeout(ASK_DEADLINE_S):
                return (
                    await client.force_metadata_update()
                    and client.cluster.partitions_for_topic(topic) is None
                )
        except TimeoutError:
            return False

    async def _hand_over(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        **fields: Any,
    ) -> _Queued:
        producer = await self._client()
        if has_odd_names(fields["headers"]):
            await producer.client._wait_on_metadata(topic)
            to = TopicPartition(topic, producer._partition(topic, partition, None, None, key, None))
            return await self._hand_over_batch(to, [RecordBytes(value, key, **fields)])
        if value is not None or key is not None:
            return _Queued(
                producer, await producer.send(topic, value, key=key, partition=partition, **fields)
            )
        # The client's own send refuses a record that has neither key nor value; brokers store it.
        await producer.client._wait_on_metadata(topic)
        where = aiokafka.TopicPartition(
            topic, producer._partition(topic, partition, None, None, None, None)
        )
        timeout_s = producer._request_timeout_ms / 1000
        add_message = producer._message_accumulator.add_message
        return _Queued(producer, await add_message(where, None, None, timeout_s, **fields))

    def _is_late(self, topic: str, queued: _Queued, answer: Future[Written]) -> None:
        self._suspect(queued.client)
        if not answer.done():
            last = self._answers.get(topic)
            because = "" if last is None else f"; the last answer was {last}"
            answer.set_exception(
                TransientBrokerError(
                    f"{topic}: not confirmed within {self._deadline_s:g} s{because}"
                )
            )

    def _confirm(
        self, topic: str, queued: _Queued, answer: Future[Written], timer: asyncio.TimerHandle
    ) -> None:
        timer.cancel()
        sent = queued.sent
        error = (
            kafka_errors.KafkaError("the client was closed")
            if sent.cancelled()
            else sent.exception()
        )
        if error is not None and self._properties["enable_idempotence"]:
            self._suspect(queued.client, error)
        if answer.done():
            # late: the answer was given at the deadline, or nobody waits for it.
            return
        if error is not None:
            # Wrapped in another error it is no answer to the records, but to what a transaction has
            # to ask before.
            is_answer = isinstance(error, kafka_errors.BrokerResponseError)
            ours = translate(error, is_write=is_answer)
            ours.__cause__ = error
            answer.set_exception(ours)
            return
        self._answers.pop(topic, None)
        # None with acks = 0: the broker does not answer.
        at = sent.result()
        partition, offset = (-1, -1) if at is None else (at.partition, at.offset)
        answer.set_result(Written(TopicPartition(topic, partition), offset))
