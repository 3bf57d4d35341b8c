"""Where the records are: a broker, topics in it, a schema registry."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks import orders, topic
from benchmarks.gauges.plan import Gauge
from benchmarks.plan import Contender, Source

if TYPE_CHECKING:
    from tests.schemas.server import RegistryServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the runs are told.

    Args:
        bootstrap: ``host:port`` of the broker.
        registry: Where the schemas are, if there are any.
        records: How many a topic has that is read to its end.
        topics: Of the contenders.
        gauged: Of the gauges, by their names.
    """

    bootstrap: str
    registry: str
    records: int
    topics: dict[Source, str] = field(default_factory=dict)
    gauged: dict[str, list[str]] = field(default_factory=dict)

    def records_of(self, contender: Contender) -> int:
        """How many it is to handle."""
        return min(contender.records or self.records, self.records)


def fill(place: Place, contenders: Sequence[Contender], registry: RegistryServer | None) -> None:
    """Make a topic of each source that *contenders* read, with as many records as one of them
    needs.
    """
    needed: dict[Source, int] = {}
    for one in contenders:
        needed[one.source] = max(place.records_of(one), needed.get(one.source, 0))
    for source, records in sorted(needed.items()):
        name = place.topics[source] = f"bench-{source}-{uuid.uuid4().hex[:8]}"
        value: Callable[[int], bytes] = (
            topic.numbered if source.values == "plain" else orders.as_json
        )
        if source.values == "Avro" and registry is not None:
            value = orders.as_avro(registry.add(f"{name}-value", orders.SCHEMA))
        began = time.monotonic()
        filling = topic.fill(
            place.bootstrap, name, records, value, partitions=source.partitions, keys=source.keys
        )
        asyncio.run(filling)
        print(
            f"{records:,} records written to {name} in {time.monotonic() - began:.1f} s", flush=True
        )


def make_topics(place: Place, gauges: Sequence[Gauge]) -> None:
    """Make the topics of each gauge."""
    for number, gauge in enumerate(gauges):
        names = place.gauged[gauge.name] = [
            f"gauge-{number}-{one}-{uuid.uuid4().hex[:8]}" for one in range(gauge.topics)
        ]
        for name in names if gauge.filled else ():
            asyncio.run(
                topic.fill(place.bootstrap, name, gauge.filled, partitions=gauge.partitions)
            )
        if names and not gauge.filled:
            asyncio.run(topic.create(place.bootstrap, *names, partitions=gauge.partitions))


@contextlib.contextmanager
def registry_for(contenders: Sequence[Contender]) -> Iterator[RegistryServer | None]:
    """The schema registry of our tests, if anybody needs one."""
    if not any(one.values == "Avro" for one in contenders):
        yield None
        return
    from tests.schemas.server import registry_server

    with registry_server() as registry:
        yield registry


@contextlib.contextmanager
def kafka(bootstrap: str | None) -> Iterator[tuple[str, str]]:
    """A broker's address and what to call it."""
    if bootstrap:
        yield bootstrap, f"the broker at {bootstrap}"
        return
    from reactive_kafka.broker.jars import KAFKA_VERSION
    from reactive_kafka.broker.local_kafka import local_kafka

    with local_kafka() as address:
        yield address, f"Apache Kafka {KAFKA_VERSION}, one node on this machine"
