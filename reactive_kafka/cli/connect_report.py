"""``check --connect``: asks for everything that an application connects to, without joining groups.

All parts are asked at the same time, and all that is missing is reported.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from reactive_kafka.broker.client import inspecting
from reactive_kafka.broker.kafka_connector import EMBEDDED, KafkaConnector
from reactive_kafka.config.incoming_kinds import AssignedPartition
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings, Settings
from reactive_kafka.errors import ReactiveKafkaError, describe
from reactive_kafka.records import TopicPartition

LIMIT_S = 10.0
MEMORY_REGISTRY = "memory://"


@dataclass(slots=True)
class AskedCluster:
    """One cluster, and what the application wants to find there."""

    servers: str
    properties: Mapping[str, Any]
    # Topic -> what it is for.
    topics: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    # Pattern -> what it is for.
    patterns: dict[str, str] = field(default_factory=dict)
    # Partition -> what it is for.
    partitions: dict[TopicPartition, str] = field(default_factory=dict)

    def missing(self, known: Mapping[str, Iterable[TopicPartition]]) -> Iterator[str]:
        """Yield the topics that are missing. *known*: topic -> partitions of the cluster."""
        for topic, uses in self.topics.items():
            if topic not in known:
                yield f"{', '.join(uses)}: there is no topic {topic!r} at {self.servers}"
        for pattern, use in self.patterns.items():
            if not any(re.fullmatch(pattern, topic) for topic in known):
                yield f"{use}: no topic at {self.servers} matches {pattern!r}"
        for partition, use in self.partitions.items():
            if partition.topic in known and partition not in known[partition.topic]:
                yield f"{use}: there is no partition {partition} at {self.servers}"


async def missing_parts(settings: Settings) -> list[str]:
    """Return what cannot be reached or does not exist, one line each, within the time limit."""
    asked = [(f"brokers {cluster.servers}", _cluster(cluster)) for cluster in _clusters(settings)]
    urls = settings.schema_registry.url
    if urls and not urls[0].startswith(MEMORY_REGISTRY):
        asked.append((f"schema registry {urls[0]}", _registry(settings)))
    for name, channel in settings.incoming.items():
        if channel.checkpoint is not None:
            asked.append((f"[incoming.{name}] checkpoint store", _store(channel)))
    found = await asyncio.gather(*(_within(what, asking) for what, asking in asked))
    return [line for lines in found for line in lines]


async def _within(what: str, asking: Awaitable[list[str]]) -> list[str]:
    try:
        async with asyncio.timeout(LIMIT_S):
            return await asking
    except TimeoutError:
        return [f"{what}: no answer within {LIMIT_S:g} s"]
    except ReactiveKafkaError as error:
        return [f"{what}: {error}"]
    except Exception as error:
        # Drivers of stores raise errors of their own. Each is one line of the report.
        return [f"{what}: {describe(error)}"]


async def _cluster(cluster: AskedCluster) -> list[str]:
    # A test may replace Kafka's connector.
    given = click.get_current_context().obj
    connector = (given or KafkaConnector)(cluster.servers)
    try:
        async with inspecting(connector, cluster.properties) as inspector:
            return list(cluster.missing(await inspector.topics()))
    finally:
        await connector.close()


async def _registry(settings: Settings) -> list[str]:
    from reactive_kafka.schemas.answers import Refused, RegistryAway
    from reactive_kafka.schemas.rest import RestRegistry

    try:
        await RestRegistry(settings.schema_registry).check_access()
    except (RegistryAway, Refused) as error:
        return [f"schema registry {(settings.schema_registry.url or ('',))[0]}: {error}"]
    return []


async def _store(channel: IncomingSettings) -> list[str]:
    from reactive_kafka.runtime.store_opening import store_of

    # For the type checker: the caller has looked.
    assert channel.checkpoint is not None  # noqa: S101
    store = store_of(channel.checkpoint)
    try:
        topic = next(iter(channel.topics), channel.name)
        await store.read(channel.group_id or channel.name, [TopicPartition(topic, 0)])
    finally:
        await store.close()
    return []


def _clusters(settings: Settings) -> list[AskedCluster]:
    """Return the clusters of all channels, each connection once."""
    found: dict[tuple[Any, ...], AskedCluster] = {}

    def cluster(client: Mapping[str, Any]) -> AskedCluster:
        servers = str(client.get("bootstrap_servers", settings.bootstrap_servers))
        properties = {
            name: value
            for name, value in client.items()
            if name in ("security_protocol", "request_timeout_ms")
            or name.startswith(("ssl_", "sasl_"))
        }
        key = (servers, *sorted((name, repr(value)) for name, value in properties.items()))
        return found.setdefault(key, AskedCluster(servers, properties))

    for channel in settings.incoming.values():
        _add_incoming(channel, cluster(channel.client), cluster)
    for outgoing in settings.outgoing.values():
        _add_outgoing(outgoing, cluster(outgoing.client))
    for asked in found.values():
        # The application creates them when it starts.
        for name in settings.topics:
            if settings.topics[name].create:
                asked.topics.pop(name, None)
    # The embedded broker begins with the application.
    return [cluster for cluster in found.values() if cluster.servers != EMBEDDED]


def _add_incoming(channel: IncomingSettings, reads: AskedCluster, cluster: Any) -> None:
    use = f"[incoming.{channel.name}]"
    for topic in channel.topics:
        reads.topics[topic].append(use)
    if channel.pattern is not None:
        reads.patterns[channel.pattern] = use
    for assigned in channel.assign:
        if isinstance(assigned, AssignedPartition):
            reads.topics[assigned.partition.topic].append(use)
            reads.partitions[assigned.partition] = use
        else:
            reads.topics[assigned.topic].append(use)
    letters = channel.dead_letter_queue
    if letters is not None:
        cluster(letters.client).topics[letters.topic].append(f"{use} dead letters")
    retries = channel.delayed_retry
    if retries is not None:
        for topic in retries.topics:
            cluster(retries.client).topics[topic].append(f"{use} delayed retries")


def _add_outgoing(channel: OutgoingSettings, writes: AskedCluster) -> None:
    writes.topics[channel.topic].append(f"[outgoing.{channel.name}]")
