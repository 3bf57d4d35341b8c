"""A real Kafka under an application's tests: one a process, which all of its tests share."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any, TypeVar

from reactive_kafka.app import App
from reactive_kafka.broker.client import (
    Connector,
    Consumer,
    Inspector,
    Producer,
    Written,
    inspecting,
    start_without_group,
)
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.broker.memory.partition_log import StoredRecord
from reactive_kafka.channel.spec import group_of_retries
from reactive_kafka.config.schema import Settings
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import Committed, RecordFields, TopicPartition
from reactive_kafka.subscription import Partitions

T = TypeVar("T")

BOOTSTRAP_VARIABLE = "REACTIVE_KAFKA_TEST_BOOTSTRAP"
# Of topics that are made for a test, as in memory.
PARTITIONS = 4
# Records of a partition at once.
_PIECE = 1000
_own = ExitStack()
_addresses: list[str] = []


def address_of_own() -> str:
    """``host:port`` of an Apache Kafka on this machine, started at the first call; it ends with the
    process.

    Raises:
        KafkaUnavailableError: It cannot be had; the text says why.
    """
    from reactive_kafka.broker.local_kafka import local_kafka

    if not _addresses:
        _addresses.append(_own.enter_context(local_kafka()))
        atexit.register(_own.close)
    return _addresses[0]


class RealKafka:
    """The Kafka that ``REACTIVE_KAFKA_TEST_BOOTSTRAP`` names, or one that is started on this
    machine.

    Tests share its topics and groups. So an application's groups begin at the ends of their topics,
    and what a test sees of these topics is what was written since then.
    """

    look_s = 0.05
    # The application connects as it does in production.
    connector: Connector | None = None

    def __init__(self) -> None:
        self._began: dict[TopicPartition, int] = {}
        self._address = ""
        self._clients = AsyncExitStack()

    async def overrides(self) -> Mapping[str, Any]:
        given = os.environ.get(BOOTSTRAP_VARIABLE)
        self._address = given if given else await asyncio.to_thread(address_of_own)
        return {"kafka": {"bootstrap_servers": self._address}}

    async def open(self, app: App) -> None:
        """Make the topics that are missing, and have the groups begin where their topics end."""
        self._settings = app.settings
        self._check(app.settings)
        self._connector = KafkaConnector(self._address)
        self._inspector: Inspector = self._connector.inspector(properties={})
        self._producer: Producer = self._connector.producer(name="test", properties={})
        for client in (self._inspector, self._producer):
            self._clients.push_async_callback(client.stop)
            await client.start()
        there = await self._inspector.topics()
        for topic in _topics(app.settings) - there.keys():
            await self._inspector.create_topic(topic, PARTITIONS)
        # Nobody tells.
        while not _topics(app.settings) <= (await self._inspector.topics()).keys():  # noqa: ASYNC110
            await asyncio.sleep(self.look_s)
        self._began = dict(await self.ends())
        for settings in app.settings.incoming.values():
            if settings.group_id is None:
                continue
            retries = () if settings.delayed_retry is None else settings.delayed_retry.topics
            for group, reads in (
                (settings.group_id, settings.subscription.includes),
                (group_of_retries(settings), lambda one, retries=retries: one.topic in retries),
            ):
                at = {one: Committed(end) for one, end in self._began.items() if reads(one)}
                # Another application of the test is a member of it.
                with suppress(TransientBrokerError):
                    await self._inspector.commit(group, at)

    def _check(self, settings: Settings) -> None:
        """Refuse to write to other clusters than the one that is for tests."""
        tables = [(one.name, one.client) for one in settings.outgoing.values()]
        tables += [(one.name, one.client) for one in settings.incoming.values()]
        for one in settings.incoming.values():
            if one.dead_letter_queue is not None:
                tables.append((one.name, one.dead_letter_queue.client))
            if one.delayed_retry is not None:
                tables.append((one.name, one.delayed_retry.client))
        for name, client in tables:
            if client.get("bootstrap_servers", self._address) != self._address:
                raise ValueError(
                    f"channel {name!r} names servers of its own, which are not those of the test: override them"
                )

    async def close(self) -> None:
        await self._clients.aclose()

    async def write(self, topic: str, record: RecordFields, partition: int | None) -> Written:
        sending = await self._producer.send(
            topic, record.value, key=record.key, headers=record.headers, partition=partition
        )
        return await sending

    async def ends(self) -> Mapping[TopicPartition, int]:
        # Only of what the application reads or writes: a question about all topics of a cluster
        # waits for each of them that has no leader just now, and a cluster that many tests share
        # has some that are being made or deleted.
        named = _topics(self._settings)
        read = [one.subscription for one in self._settings.incoming.values()]
        there = [one for those in (await self._inspector.topics()).values() for one in those]
        ours = [
            one for one in there if one.topic in named or any(those.includes(one) for those in read)
        ]
        return await self._inspector.end_offsets(ours)

    async def positions(self, group_id: str) -> Mapping[TopicPartition, int]:
        return {one: at.offset for one, at in (await self._inspector.committed(group_id)).items()}

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        return _at_once(self._committed(group_id))

    async def _committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        async with inspecting(self._connector, {}) as inspector:
            return {one: at.offset for one, at in (await inspector.committed(group_id)).items()}

    def records(self, topic: str) -> Sequence[StoredRecord]:
        return _at_once(self._read(topic))

    async def _read(self, topic: str) -> Sequence[StoredRecord]:
        async with inspecting(self._connector, {}) as inspector:
            partitions = (await inspector.topics()).get(topic, [])
        if not partitions:
            return []
        consumer: Consumer = self._connector.consumer(
            name="test",
            subscription=Partitions(tuple(partitions)),
            group_id=None,
            properties={"isolation_level": "read_committed"},
        )
        try:
            await start_without_group(consumer)
            ends = await consumer.end_offsets(partitions)
            consumer.start_at({one: self._began.get(one, 0) for one in partitions})
            found: dict[TopicPartition, list[StoredRecord]] = {
                one: [] for one in sorted(partitions)
            }
            while any(at < ends[one] for one, at in consumer.positions().items()):
                for chunk in (await consumer.poll(dict.fromkeys(partitions, _PIECE), 1.0)).chunks:
                    found[chunk.partition] += [
                        StoredRecord(
                            one.offset, one.timestamp, one.key, one.value, tuple(one.headers)
                        )
                        for one in chunk.records
                    ]
            return [record for records in found.values() for record in records]
        finally:
            await consumer.stop()


def _topics(settings: Settings) -> set[str]:
    """What an application reads and writes, as far as its settings name it."""
    found = {one.topic for one in settings.outgoing.values()}
    for one in settings.incoming.values():
        found.update(one.subscription.topics)
        if one.delayed_retry is not None:
            found.update(one.delayed_retry.topics)
        if one.dead_letter_queue is not None:
            found.add(one.dead_letter_queue.topic)
    return found


def _at_once(asked: Coroutine[Any, Any, T]) -> T:
    """The answer to a question that a test does not await, as it does not in memory: from a loop in
    a thread.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asked).result()
