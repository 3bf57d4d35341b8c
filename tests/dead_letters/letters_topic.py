"""A topic of dead letters on an in-memory broker, and the cluster that a replay reads it from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.broker.client import Connector, Inspector, inspecting
from reactive_kafka.dead_letters.replay import carry_out_replay, plan_replay
from reactive_kafka.testing import MemoryBroker
from tests.cli.inside import make_broker
from tests.config.loading import loaded
from tests.failure.samples import failed, letter_of

PROGRESS = "reactive-kafka-replay:letters"
"""The group that remembers how far the letters were replayed."""

CHANNELS = {
    "kafka": {"bootstrap_servers": "memory:1", "group_id": "g"},
    "incoming": {
        "orders": {
            "failure_strategy": "delayed-retry-topic",
            "dead_letter_queue": {"topic": "letters"},
        },
        "others": {"pattern": "spare|gone"},
    },
}
"""Of the topics here payments alone is read by no channel."""


@dataclass(frozen=True)
class LettersInMemory:
    """A cluster in memory, as a replay uses it."""

    broker: MemoryBroker
    channels: Sequence[IncomingSettings]
    properties: Mapping[str, Any] = field(default_factory=dict)

    @asynccontextmanager
    async def clients(
        self, **more_properties: object
    ) -> AsyncIterator[tuple[Connector, Inspector]]:
        connector = self.broker.connector()
        try:
            async with inspecting(connector, {**self.properties, **more_properties}) as inspector:
                yield connector, inspector
        finally:
            await connector.close()


def cluster_of(broker: MemoryBroker) -> LettersInMemory:
    """The cluster with the channels of :data:`CHANNELS`."""
    return LettersInMemory(broker, tuple(loaded(CHANNELS).incoming.values()))


async def replay_all(
    broker: MemoryBroker, channels: Sequence[IncomingSettings], topic: str
) -> None:
    """Write every dead letter of *topic* back to where its record came from."""
    cluster = LettersInMemory(broker, channels)
    await carry_out_replay(cluster, await plan_replay(cluster, topic, None, None), {})


def broker_with_letters() -> MemoryBroker:
    """letters holds 7 and 8 of orders in partition 0, and 9 in partition 1."""
    broker = make_broker(2, "orders", "letters", "payments")
    for offset, number in ((7, 0), (8, 0), (9, 1)):
        write_letter(broker, offset, letters_partition=number)
    return broker


def write_letter(
    broker: MemoryBroker,
    offset: int,
    *,
    topic: str = "orders",
    letters_partition: int = 0,
    timestamp_ms: int | None = failed().timestamp_ms,
) -> None:
    """Write a dead letter of ours: the record with this offset of partition 1, which is its value.

    The record was made five seconds before the letter.
    """
    record = failed(
        partition=TopicPartition(topic, 1), offset=offset, value=b"%d" % offset, key=b"k%d" % offset
    )
    record = replace(record, timestamp_ms=timestamp_ms)
    written = letter_of(record)
    assert written.timestamp_ms is None
    broker.produce(
        "letters",
        written.value,
        key=written.key,
        headers=written.headers,
        partition=letters_partition,
        timestamp_ms=record.now_ms,
    )


def values(broker: MemoryBroker, topic: str = "orders") -> list[str]:
    """What a topic holds, partition by partition."""
    return [
        (record.value or b"").decode()
        for partition in range(broker.topics()[topic])
        for record in broker.log(TopicPartition(topic, partition))
    ]
