"""``check --connect``: asks for everything that an application connects to, without joining groups.

All parts are asked at the same time, and all that is missing is reported. Topics that the start
creates are only tried: nothing is created.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from reactive_kafka.broker.client import NO_CONFIG, Inspector, inspecting
from reactive_kafka.broker.kafka_connector import EMBEDDED, KafkaConnector
from reactive_kafka.checkpoint.outbox import OutboxStore
from reactive_kafka.config.incoming_kinds import AssignedPartition
from reactive_kafka.config.settings import (
    IncomingSettings,
    OutgoingSettings,
    Settings,
)
from reactive_kafka.config.tables import TopicSettings
from reactive_kafka.errors import BrokerError, ReactiveKafkaError, describe
from reactive_kafka.planning.channel_plans import AppPlan
from reactive_kafka.records import TopicPartition

LIMIT_S = 10.0
MEMORY_REGISTRY = "memory://"


@dataclass(slots=True)
class ConnectReport:
    """What ``check --connect`` has found, one line each."""

    # What cannot be reached, or is missing and stays so.
    problems: list[str] = field(default_factory=list)
    # What is missing, and is created by the start.
    created: list[str] = field(default_factory=list)

    def add(self, other: ConnectReport) -> None:
        """Add what another report says."""
        self.problems += other.problems
        self.created += other.created


@dataclass(slots=True)
class CreatedTopic:
    """A topic that the start creates if it is missing."""

    # What it is for.
    uses: list[str] = field(default_factory=list)
    # True for the topics of the channel that gives it its number of partitions. None: these are in
    # another cluster, or there are none.
    source: Callable[[str], bool] | None = None
    declared: TopicSettings | None = None


@dataclass(slots=True)
class AskedCluster:
    """One cluster, and what the application wants to find there."""

    servers: str
    properties: Mapping[str, Any]
    # Topic -> what it is for.
    topics: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    # Topic -> how the start creates it, if it is missing.
    created: dict[str, CreatedTopic] = field(default_factory=lambda: defaultdict(CreatedTopic))
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

    async def tried(
        self, inspector: Inspector, known: Mapping[str, Collection[TopicPartition]]
    ) -> ConnectReport:
        """Ask whether the start can create what is missing."""
        report = ConnectReport()
        for name, topic in self.created.items():
            if name in known:
                continue
            what = f"{', '.join(topic.uses)}: there is no topic {name!r} at {self.servers}"
            partitions = self._partitions_of(topic, known)
            if not partitions:
                report.problems.append(
                    f"{what}, and it is created only when the channel's own topic exists"
                )
                continue
            declared = topic.declared
            try:
                await inspector.create_topic(
                    name,
                    partitions,
                    None if declared is None else declared.replication_factor,
                    NO_CONFIG if declared is None else declared.config,
                    only_checks=True,
                )
            except BrokerError as error:
                report.problems.append(
                    f"{what}, or the right to see it is missing, and the start cannot create it: "
                    f"{error}"
                )
            else:
                report.created.append(f"{what}: the start creates it")
        return report

    def _partitions_of(
        self, topic: CreatedTopic, known: Mapping[str, Collection[TopicPartition]]
    ) -> int:
        """Return how many partitions the start gives a topic; 0: it is not created."""
        if topic.declared is not None and topic.declared.partitions:
            return topic.declared.partitions
        if topic.source is None:
            return 1
        # The channel's topic may be one that the start creates, too.
        created = [
            1 if other.declared is None else other.declared.partitions or 1
            for name, other in self.created.items()
            if other is not topic and topic.source(name)
        ]
        found = [len(partitions) for name, partitions in known.items() if topic.source(name)]
        return max([*found, *created], default=0)


async def report_of(settings: Settings, plan: AppPlan) -> ConnectReport:
    """Return what cannot be reached or does not exist, within the time limit."""
    asked = [(f"brokers {cluster.servers}", _cluster(cluster)) for cluster in _clusters(settings)]
    urls = settings.schema_registry.url
    if urls and not urls[0].startswith(MEMORY_REGISTRY):
        asked.append((f"schema registry {urls[0]}", _registry(settings)))
    for name, channel in settings.incoming.items():
        if channel.checkpoint is not None:
            planned = plan.incoming.get(name)
            sends = () if planned is None else planned.outgoing
            boxes = [box for box in sends if settings.outgoing[box].outbox]
            asked.append((f"[incoming.{name}] checkpoint store", _store(channel, boxes)))
    report = ConnectReport()
    for found in await asyncio.gather(*(_within(what, asking) for what, asking in asked)):
        report.add(found)
    return report


async def _within(what: str, asking: Awaitable[ConnectReport]) -> ConnectReport:
    try:
        async with asyncio.timeout(LIMIT_S):
            return await asking
    except TimeoutError:
        return ConnectReport([f"{what}: no answer within {LIMIT_S:g} s"])
    except ReactiveKafkaError as error:
        return ConnectReport([f"{what}: {error}"])
    except Exception as error:
        # Drivers of stores raise errors of their own. Each is one line of the report.
        return ConnectReport([f"{what}: {describe(error)}"])


async def _cluster(cluster: AskedCluster) -> ConnectReport:
    # A test may replace Kafka's connector.
    given = click.get_current_context().obj
    connector = (given or KafkaConnector)(cluster.servers)
    try:
        async with inspecting(connector, cluster.properties) as inspector:
            known = await inspector.topics()
            report = ConnectReport(list(cluster.missing(known)))
            report.add(await cluster.tried(inspector, known))
            return report
    finally:
        await connector.close()


async def _registry(settings: Settings) -> ConnectReport:
    from reactive_kafka.schemas.answers import Refused, RegistryAway
    from reactive_kafka.schemas.rest import RestRegistry

    try:
        await RestRegistry(settings.schema_registry).check_access()
    except (RegistryAway, Refused) as error:
        url = (settings.schema_registry.url or ("",))[0]
        return ConnectReport([f"schema registry {url}: {error}"])
    return ConnectReport()


async def _store(channel: IncomingSettings, boxes: Iterable[str]) -> ConnectReport:
    """Ask for the store of a channel, and for the table of the outboxes that it feeds."""
    from reactive_kafka.runtime.store_opening import store_of

    # For the type checker: the caller has looked.
    assert channel.checkpoint is not None  # noqa: S101
    store = store_of(channel.checkpoint)
    try:
        topic = next(iter(channel.topics), channel.name)
        await store.read(channel.group_id or channel.name, [TopicPartition(topic, 0)])
        uses = ", ".join(f"[outgoing.{box}] outbox" for box in boxes)
        problems = await store.event_problems() if uses and isinstance(store, OutboxStore) else ()
        return ConnectReport([f"{uses}: {problem}" for problem in problems])
    finally:
        await store.close()


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
        for name, declared in settings.topics.items():
            if declared.create:
                _is_declared(asked, name, declared)
        for name, created in asked.created.items():
            # A channel may read the letters of another one.
            created.uses += asked.topics.pop(name, [])
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
        _add_letters(channel, reads, cluster(letters.client), letters.topic, "dead letters")
    retries = channel.delayed_retry
    if retries is not None:
        for topic in retries.topics:
            _add_letters(channel, reads, cluster(retries.client), topic, "delayed retries")


def _add_letters(
    channel: IncomingSettings, reads: AskedCluster, writes: AskedCluster, topic: str, use: str
) -> None:
    created = writes.created[topic]
    created.uses.append(f"[incoming.{channel.name}] {use}")
    if writes is reads:
        created.source = channel.subscription.reads


def _is_declared(asked: AskedCluster, name: str, declared: TopicSettings) -> None:
    """Note that the start creates a topic, if anything needs it there."""
    uses = asked.topics.pop(name, [])
    if uses or name in asked.created:
        created = asked.created[name]
        created.uses += uses
        created.declared = declared


def _add_outgoing(channel: OutgoingSettings, writes: AskedCluster) -> None:
    writes.topics[channel.topic].append(f"[outgoing.{channel.name}]")
