"""A real Kafka under a :class:`TestApp`: one for each process, shared by all of its tests."""

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
from reactive_kafka.channel.client_roles import group_of_retries
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.errors import TransientBrokerError
from reactive_kafka.records import Committed, RecordFields, TopicPartition
from reactive_kafka.subscription import Partitions

T = TypeVar("T")

BOOTSTRAP_VARIABLE = "REACTIVE_KAFKA_TEST_BOOTSTRAP"
# The in-memory broker creates topics with as many.
PARTITIONS = 4
_RECORDS_PER_POLL = 1000
_started = ExitStack()
_addresses: list[str] = []


def address_of_started_kafka() -> str:
    """Return ``host:port`` of an Apache Kafka on this machine; the first call starts it.

    It stops when the process ends.

    Raises:
        KafkaUnavailableError: It cannot be started; the text says why.
    """
    from reactive_kafka.broker.local_kafka import local_kafka

    if not _addresses:
        _addresses.append(_started.enter_context(local_kafka()))
        atexit.register(_started.close)
    return _addresses[0]


class RealKafka:
    """The Kafka that ``REACTIVE_KAFKA_TEST_BOOTSTRAP`` names, or one started on this machine.

    Tests share its topics and groups. So the groups of an application start at the ends of their
    topics, and a test sees only the records that were written since then.
    """

    poll_interval_s = 0.05
    # None: the application connects by its settings, as in production.
    connector: Connector | None = None

    def __init__(self) -> None:
        # Where the partitions ended when the test began.
        self._start_offsets: dict[TopicPartition, int] = {}
        self._address = ""
        self._clients = AsyncExitStack()

    async def overrides(self) -> Mapping[str, Any]:
        address = os.environ.get(BOOTSTRAP_VARIABLE)
        if not address:
            address = await asyncio.to_thread(address_of_started_kafka)
        self._address = address
        return {"kafka": {"bootstrap_servers": address}}

    async def open(self, app: App) -> None:
        """Create the missing topics, and commit the ends of all topics for the groups."""
        self._settings = app.settings
        self._check_servers(app.settings)
        self._connector = KafkaConnector(self._address)
        self._inspector: Inspector = self._connector.inspector(properties={})
        self._producer: Producer = self._connector.producer(name="test", properties={})
        for client in (self._inspector, self._producer):
            self._clients.push_async_callback(client.stop)
            await client.start()
        topics = _topics(app.settings)
        for topic in topics - (await self._inspector.topics()).keys():
            await self._inspector.create_topic(topic, PARTITIONS)
        # Kafka sends no notice when a new topic can be used.
        while not topics <= (await self._inspector.topics()).keys():  # noqa: ASYNC110
            await asyncio.sleep(self.poll_interval_s)
        self._start_offsets = dict(await self.ends())
        for settings in app.settings.incoming.values():
            if settings.group_id is not None:
                await self._commit_start_offsets(settings, settings.group_id)

    async def _commit_start_offsets(self, settings: IncomingSettings, group_id: str) -> None:
        """Let the groups of a channel start at the ends of its topics and of its retry topics."""
        retries = settings.delayed_retry
        retry_topics = () if retries is None else retries.topics
        includes = settings.subscription.includes
        of_channel: dict[TopicPartition, Committed] = {}
        of_retries: dict[TopicPartition, Committed] = {}
        for partition, end in self._start_offsets.items():
            if includes(partition):
                of_channel[partition] = Committed(end)
            if partition.topic in retry_topics:
                of_retries[partition] = Committed(end)
        for group, offsets in ((group_id, of_channel), (group_of_retries(settings), of_retries)):
            # The broker refuses if the group has members: another application of the same test
            # reads already, and has committed its start.
            with suppress(TransientBrokerError):
                await self._inspector.commit(group, offsets)

    def _check_servers(self, settings: Settings) -> None:
        """Refuse channels of other clusters: a test must not write to a cluster in production.

        Raises:
            ValueError: A channel has ``bootstrap_servers`` of another cluster.
        """
        clients = [(channel.name, channel.client) for channel in settings.outgoing.values()]
        for channel in settings.incoming.values():
            clients.append((channel.name, channel.client))
            if channel.dead_letter_queue is not None:
                clients.append((channel.name, channel.dead_letter_queue.client))
            if channel.delayed_retry is not None:
                clients.append((channel.name, channel.delayed_retry.client))
        for name, client in clients:
            if client.get("bootstrap_servers", self._address) != self._address:
                raise ValueError(
                    f"channel {name!r} has bootstrap_servers of its own, which are not those of the"
                    " test: override them"
                )

    async def close(self) -> None:
        await self._clients.aclose()

    async def write(self, topic: str, record: RecordFields, partition: int | None) -> Written:
        sending = await self._producer.send(
            topic, record.value, key=record.key, headers=record.headers, partition=partition
        )
        return await sending

    async def ends(self) -> Mapping[TopicPartition, int]:
        # Ask only about topics of the application. A request for all topics waits for each one that
        # has no leader at the moment, and in a cluster that many tests share some topics are being
        # created or deleted.
        named = _topics(self._settings)
        subscriptions = [channel.subscription for channel in self._settings.incoming.values()]

        def is_of_application(partition: TopicPartition) -> bool:
            if partition.topic in named:
                return True
            return any(subscription.includes(partition) for subscription in subscriptions)

        topics = await self._inspector.topics()
        partitions = [partition for numbers in topics.values() for partition in numbers]
        return await self._inspector.end_offsets(list(filter(is_of_application, partitions)))

    async def positions(self, group_id: str) -> Mapping[TopicPartition, int]:
        return await _positions(self._inspector, group_id)

    def committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        return _run_in_thread(self._committed(group_id))

    async def _committed(self, group_id: str) -> Mapping[TopicPartition, int]:
        async with inspecting(self._connector, {}) as inspector:
            return await _positions(inspector, group_id)

    def records(self, topic: str) -> Sequence[StoredRecord]:
        return _run_in_thread(self._read(topic))

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
            # The log may have lost its first records, to its retention or to another test.
            begins = await consumer.beginning_offsets(partitions)
            consumer.start_at(
                {
                    partition: max(begins[partition], self._start_offsets.get(partition, 0))
                    for partition in partitions
                }
            )
            limits = dict.fromkeys(partitions, _RECORDS_PER_POLL)
            by_partition: dict[TopicPartition, list[StoredRecord]] = {
                partition: [] for partition in sorted(partitions)
            }
            while any(offset < ends[read] for read, offset in consumer.positions().items()):
                polled = await consumer.poll(limits, 1.0)
                for error in polled.errors.values():
                    raise error
                for chunk in polled.chunks:
                    by_partition[chunk.partition] += [
                        StoredRecord(
                            record.offset,
                            record.timestamp,
                            record.key,
                            record.value,
                            tuple(record.headers),
                        )
                        for record in chunk.records
                    ]
            return [record for records in by_partition.values() for record in records]
        finally:
            await consumer.stop()


async def _positions(inspector: Inspector, group_id: str) -> Mapping[TopicPartition, int]:
    committed = await inspector.committed(group_id)
    return {partition: position.offset for partition, position in committed.items()}


def _topics(settings: Settings) -> set[str]:
    """Return the topics that an application reads and writes, except those that match a pattern."""
    topics = {channel.topic for channel in settings.outgoing.values()}
    for channel in settings.incoming.values():
        topics.update(channel.subscription.topics)
        if channel.delayed_retry is not None:
            topics.update(channel.delayed_retry.topics)
        if channel.dead_letter_queue is not None:
            topics.add(channel.dead_letter_queue.topic)
    return topics


def _run_in_thread(asking: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop in another thread, and return its result.

    `TestApp.records` and `TestApp.committed` do not await, because the in-memory broker answers at
    once. With a real Kafka they are called while the test's own loop runs.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asking).result()
