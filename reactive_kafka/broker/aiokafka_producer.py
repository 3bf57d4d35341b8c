"""aiokafka's producer behind the seam."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Mapping
from typing import Any

import aiokafka
import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka_client import (
    START_DEADLINE_S,
    STOP_DEADLINE_S,
    StartupReasons,
    client_properties,
    translate,
    within,
)
from reactive_kafka.broker.client import Written
from reactive_kafka.broker.finish import finish
from reactive_kafka.errors import BrokerError, RejectedRecordError, TransientBrokerError
from reactive_kafka.records import HeaderPairs, TopicPartition

SEND_DEADLINE_S = 30.0
PRODUCER_DEFAULTS: Mapping[str, Any] = {"acks": "all", "enable_idempotence": True}


class AiokafkaProducer:
    """See :class:`reactive_kafka.broker.client.Producer`.

    A send that misses its deadline makes the client suspect (H7: it can hang for ever): the next send gets a new one.
    """

    def __init__(self, *, name: str, properties: Mapping[str, Any]) -> None:
        self._name = name
        self._properties = {**PRODUCER_DEFAULTS, **properties}
        self._deadline_s = float(self._properties.pop("send_timeout_s", SEND_DEADLINE_S))
        if self._properties["acks"] in (0, 1, "0", "1"):
            self._properties["enable_idempotence"] = False
        self._producer: aiokafka.AIOKafkaProducer | None = None
        self._is_suspect = False
        self._making = asyncio.Lock()

    async def start(self) -> None:
        await self._client()

    async def _client(self) -> aiokafka.AIOKafkaProducer:
        if self._producer is not None and not self._is_suspect:
            return self._producer
        async with self._making:
            if self._producer is None or self._is_suspect:
                await self.stop()
                self._producer = await self._make()
                self._is_suspect = False
            return self._producer

    async def _make(self) -> aiokafka.AIOKafkaProducer:
        arguments = client_properties(self._properties)
        arguments.setdefault("client_id", f"reactive-kafka-{self._name}")
        with StartupReasons() as log:
            producer = aiokafka.AIOKafkaProducer(**arguments)
            try:
                await within(START_DEADLINE_S, producer.start(), "connecting")
            except BrokerError as error:
                await finish(producer.stop(), STOP_DEADLINE_S)
                raise log.explain(error) from error.__cause__
            except BaseException:
                await finish(producer.stop(), STOP_DEADLINE_S)
                raise
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
        answer: Future[Written] = asyncio.get_running_loop().create_future()
        try:
            producer = await self._client()
            if value is None and key is None:
                raise RejectedRecordError("a record without a value needs a key")
            sent = await within(
                self._deadline_s,
                producer.send(
                    topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=_headers(headers)
                ),
                f"sending to {topic}",
            )
        except BrokerError as error:
            answer.set_exception(error)
            return answer
        except (ValueError, TypeError, AssertionError) as error:  # what the client finds wrong with the record itself
            rejected = RejectedRecordError(f"{topic}: {error}")
            rejected.__cause__ = error
            answer.set_exception(rejected)
            return answer
        timer = asyncio.get_running_loop().call_later(self._deadline_s, self._is_late, topic, answer)
        sent.add_done_callback(lambda done: _confirm(done, answer, timer))
        return answer

    def _is_late(self, topic: str, answer: Future[Written]) -> None:
        if not answer.done():
            self._is_suspect = True
            answer.set_exception(TransientBrokerError(f"{topic}: not confirmed within {self._deadline_s:g} s"))

    async def stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await finish(producer.stop(), STOP_DEADLINE_S)


def _headers(headers: HeaderPairs) -> list[tuple[str, bytes]]:
    for name, value in headers:
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise TypeError(f"header {name!r}: a name is a str and its value bytes, not {type(value).__name__}")
    return [(name, value) for name, value in headers if value is not None]


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
