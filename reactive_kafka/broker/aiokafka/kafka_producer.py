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

from reactive_kafka.broker.aiokafka.batch_packing import has_non_utf8_names, pack_batch
from reactive_kafka.broker.aiokafka.client_calls import within
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.replaceable_client import ReplaceableClient
from reactive_kafka.broker.aiokafka.writable import until_writable
from reactive_kafka.broker.client import Written, WrittenBatch
from reactive_kafka.broker.key_hashes import java_hash
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
    # The client has one request on its way to a node, and in it one batch of each partition. So the
    # size of a batch limits the throughput of a channel. aiokafka's default is 16 KiB; brokers
    # accept 1 MiB by default.
    "max_batch_size": 262_144,
    # The same as aiokafka's default.
    "max_request_size": 1_048_576,
}


TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)

T = TypeVar("T")


# aiokafka is untyped.
class _RetryReporting(SendProduceReqHandler):  # type: ignore[misc]
    """Calls *sent_again* (topic, error) when batches are sent again, which the client only logs.

    Only for answers of brokers. If none comes, :meth:`AiokafkaProducer.check` finds out why.
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
    """Send batches like the client's own ``Sender._send_produce_req``, reporting retries."""
    await _RetryReporting(sender, batches, sent_again).do(node_id)
    sender._in_flight.remove(node_id)
    for partition in batches:
        sender._muted_partitions.remove(partition)


class _Queued(NamedTuple):
    """What a client has accepted: a record, or a batch. ``size``: its uncompressed bytes."""

    client: aiokafka.AIOKafkaProducer
    sent: Future[Any]
    records: int = 1
    size: int = 0


class AiokafkaProducer:
    """Writes records through a client that is replaced after failures.

    The client is replaced after a send that missed its deadline, because it may hang for ever (H7).
    It is also replaced after a refused send, because an idempotent client is refused from then on
    (H18).
    """

    def __init__(self, name: str, properties: Mapping[str, Any]) -> None:
        given = {**PRODUCER_DEFAULTS, **properties}
        self._deadline_s = float(given.pop("send_timeout_s", SEND_DEADLINE_S))
        if given["acks"] in (0, 1, "0", "1"):
            given["enable_idempotence"] = False
        # A batch that is larger than the largest record would be refused for its size, though each
        # of its records is fine.
        given["max_batch_size"] = min(given["max_batch_size"], given["max_request_size"])
        self._properties = given
        self._clients = ReplaceableClient(name, given, self._prepare)
        # Topic -> the largest size of a batch, once its broker has refused a larger one.
        self._batch_limits: dict[str, int] = {}
        # Topics that existed, and that we might write to, when they were asked for.
        self._writable_topics: set[str] = set()
        # Topic -> the error for which its batches were last sent again; removed at a confirmation.
        self._last_answers: dict[str, str] = {}

    def _prepare(self, client: aiokafka.AIOKafkaProducer) -> None:
        """Have a new client report what it sends again."""
        client._sender._send_produce_req = partial(_send_batches, client._sender, self._sent_again)

    async def start(self) -> None:
        await self._current_client()

    async def check(self) -> None:
        await self._clients.check()

    async def stop(self) -> None:
        await self._clients.stop()

    async def _current_client(self) -> aiokafka.AIOKafkaProducer:
        """Return the client to write with. A subclass may raise instead."""
        return await self._clients.current()

    def _sent_again(self, topic: str, error: BaseException) -> None:
        self._last_answers[topic] = str(translate(error))

    def key_hash(self, key: bytes) -> int:
        return java_hash(key)

    async def partitions(self, topic: str) -> int:
        if problem := topic_problem(topic):
            raise RejectedRecordError(f"{topic}: {problem}")
        known = self.known_partitions(topic) if topic in self._writable_topics else 0
        return known or await self._call(topic, self._ask_for_partitions(topic))

    async def _ask_for_partitions(self, topic: str) -> int:
        client = await self._current_client()
        # The client itself asks for a missing topic until its own request timeout of 40 s.
        await until_writable(client.client, topic)
        partitions = await client.partitions_for(topic)
        self._writable_topics.add(topic)
        return len(partitions)

    def known_partitions(self, topic: str) -> int:
        if self._clients.client is None:
            return 0
        return len(self._clients.client.client.cluster.partitions_for_topic(topic) or ())

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
            queued = await self._call(
                topic, self._hand_over(topic, value, key, partition, **fields)
            )
        except BrokerError as error:
            answer: Future[Written] = loop.create_future()
            answer.set_exception(error)
            return answer
        return self._answer_until(topic, queued, deadline)

    async def write(self, to: TopicPartition, records: Sequence[RecordFields]) -> WrittenBatch:
        first = records[0]
        if problem := record_problem(
            to.topic, first.value, first.key, first.headers, to.partition, first.timestamp_ms
        ):
            raise RejectedRecordError(f"{to.topic}: {problem}")
        deadline = asyncio.get_running_loop().time() + self._deadline_s
        while True:
            queued = await self._call(to.topic, self._hand_over_batch(to, records))
            answer = self._answer_until(to.topic, queued, deadline)
            # Retrieves the error, also if this call is cancelled.
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                written = await answer
            except FatalBrokerError:
                # The next look at the topic has to ask the broker again for the right to write.
                self._writable_topics.discard(to.topic)
                raise
            except RejectedRecordError as error:
                if queued.records == 1 or not isinstance(error.__cause__, TOO_LARGE):
                    raise
                # The topic accepts less than a broker does by default.
                less = queued.size // 2
                self._batch_limits[to.topic] = min(less, self._batch_limits.get(to.topic, less))
                self._batch_refused(to.topic, queued.records, error)
            else:
                return WrittenBatch(written.offset, queued.records)

    def _batch_refused(self, topic: str, records: int, error: RejectedRecordError) -> None:
        """Called when a batch was refused for its size. Its records are sent again in smaller ones.

        A subclass may raise instead.
        """

    async def _hand_over_batch(
        self, to: TopicPartition, records: Sequence[RecordFields]
    ) -> _Queued:
        """Pack a batch and give it to the client."""
        client = await self._current_client()
        batch = pack_batch(
            client, records, self._batch_limits.get(to.topic, self._properties["max_batch_size"])
        )
        count = batch.record_count()
        size = batch.size()
        return _Queued(
            client, await client.send_batch(batch, to.topic, partition=to.partition), count, size
        )

    def _answer_until(self, topic: str, queued: _Queued, deadline: float) -> Future[Written]:
        """Return a future for the answer to what was queued. It fails at the deadline."""
        loop = asyncio.get_running_loop()
        answer: Future[Written] = loop.create_future()
        timer = loop.call_at(deadline, self._miss_deadline, topic, queued, answer)
        queued.sent.add_done_callback(lambda _: self._confirm(topic, queued, answer, timer))
        return answer

    async def _call(self, topic: str, hand_over: Coroutine[Any, Any, T]) -> T:
        """Await a call of the client, with its errors translated.

        FatalBrokerError: the brokers do not know the topic, which only the operator can change.
        """
        try:
            return await within(self._deadline_s, hand_over, f"sending to {topic}")
        except TransientBrokerError as error:
            if await self._is_missing(topic):
                what = f"topic {topic!r} does not exist, and the broker does not create it"
                raise FatalBrokerError(what) from error
            raise
        except (ValueError, TypeError, AssertionError) as error:
            # The client refuses the record itself.
            raise RejectedRecordError(f"{topic}: {error}") from error

    async def _is_missing(self, topic: str) -> bool:
        """True if the brokers answer that the topic does not exist."""
        if self._clients.client is None:
            return False
        client = self._clients.client.client
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
        """Give a record to the client."""
        producer = await self._current_client()
        if has_non_utf8_names(fields["headers"]):
            await producer.partitions_for(topic)
            to = TopicPartition(topic, producer._partition(topic, partition, None, None, key, None))
            return await self._hand_over_batch(to, [RecordBytes(value, key, **fields)])
        if value is not None or key is not None:
            return _Queued(
                producer, await producer.send(topic, value, key=key, partition=partition, **fields)
            )
        # The client's own send refuses a record without key and value, but brokers store it.
        await producer.partitions_for(topic)
        where = aiokafka.TopicPartition(
            topic, producer._partition(topic, partition, None, None, None, None)
        )
        timeout_s = producer.client.settings.request_timeout_s
        add_message = producer._message_accumulator.add_message
        return _Queued(producer, await add_message(where, None, None, timeout_s, **fields))

    def _miss_deadline(self, topic: str, queued: _Queued, answer: Future[Written]) -> None:
        """Fail the answer, and have the client replaced."""
        self._clients.suspect(queued.client)
        if not answer.done():
            last = self._last_answers.get(topic)
            because = "" if last is None else f"; the last answer was {last}"
            answer.set_exception(
                TransientBrokerError(
                    f"{topic}: not confirmed within {self._deadline_s:g} s{because}"
                )
            )

    def _confirm(
        self, topic: str, queued: _Queued, answer: Future[Written], timer: asyncio.TimerHandle
    ) -> None:
        """Pass the client's answer on."""
        timer.cancel()
        sent = queued.sent
        if sent.cancelled():
            error: BaseException | None = kafka_errors.KafkaError("the client was closed")
        else:
            error = sent.exception()
        if error is not None and self._properties["enable_idempotence"]:
            self._clients.suspect(queued.client, error)
        if answer.done():
            # The answer was given at the deadline, or the caller has given up.
            return
        if error is not None:
            # A wrapped error is an answer to another request, which a transaction had to make
            # first, and not to the records.
            is_answer = isinstance(error, kafka_errors.BrokerResponseError)
            ours = translate(error, is_write=is_answer)
            ours.__cause__ = error
            answer.set_exception(ours)
            return
        self._last_answers.pop(topic, None)
        stored = sent.result()
        if stored is None:
            # With acks = 0 the broker does not answer.
            answer.set_result(Written(TopicPartition(topic, -1), -1))
        else:
            answer.set_result(Written(TopicPartition(topic, stored.partition), stored.offset))
