"""The application under test: it reads, commits and writes dead letters, and is watched from
outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from reactive_kafka import App
from reactive_kafka import TopicPartition as OurPartition
from reactive_kafka.broker.client import inspecting
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.events import Event, Rebalanced
from tests.broker.hazards.faults import until
from tests.broker.security.guarded import PASSWORD, WRONG, Guarded

QUICKLY = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000, "metadata_max_age_ms": 1000}


class Service:
    """One application on topics of its own. Payloads that begin with ``bad`` become dead
    letters.
    """

    def __init__(
        self,
        guarded: Guarded,
        kafka: Mapping[str, Any],
        topics: list[str] | None = None,
        channel: Mapping[str, Any] | None = None,
        transactional: bool = False,
    ) -> None:
        self.topics = topics or guarded.create_topics("orders", "letters", "results")
        self.topic, self.letters, self.results = self.topics
        self.group = f"group-{self.topic[-8:]}"
        self.handled: list[bytes] = []
        self.events: list[Event] = []
        self._open = guarded.open
        settings = {
            "topic": self.topic,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "value_deserializer": "bytes",
            "commit_interval": "0.1s",
            "failure_strategy": "dead-letter-queue",
            "dead_letter_queue": {"topic": self.letters},
            **QUICKLY,
            **(channel or {}),
        }
        config = {
            "kafka": dict(kafka),
            "incoming": {"orders": settings},
            "http": {"enabled": False},
        }
        if transactional:
            config["outgoing"] = {
                "results": {"topic": self.results, "transactional_id": self.group}
            }
        self.app = App(config)
        self.app.observe(self)

        async def handle(order: bytes) -> bytes | None:
            self.handled.append(order)
            if order.startswith(b"bad"):
                raise ValueError(order.decode())
            return order if transactional else None

        self.app.incoming("orders")(
            self.app.outgoing("results")(handle) if transactional else handle
        )

    def on(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def assignments(self) -> int:
        """How often the group has given it its partition."""
        return len(self.of(Rebalanced))

    @property
    def reasons(self) -> str:
        """Why it is not ready; empty: it is."""
        said = (
            str(check.data["reason"])
            for check in self.app.health().ready.checks
            if check.status == "DOWN"
        )
        return "; ".join(said)

    async def until_named(self, *words: str, within_s: float = 20.0) -> None:
        """Wait until readiness says all of these words; it lives on meanwhile, and shows no
        secret.
        """
        said: list[str] = []

        def is_named() -> bool:
            said.append(self.reasons)
            return all(word in said[-1] for word in words)

        try:
            await until(is_named, f"readiness names {words}", within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {said[-1]!r}") from None
        assert self.app.health().live.is_up
        assert not any(secret in text for secret in (PASSWORD, WRONG) for text in said)

    async def until_ready(self, within_s: float = 30.0) -> None:
        """Wait until nothing keeps it from being ready."""
        await until(lambda: self.app.health().ready.is_up, f"it is ready: {self.reasons}", within_s)

    async def send(self, *orders: bytes) -> None:
        """Write orders, past every guard."""
        async with AIOKafkaProducer(bootstrap_servers=self._open) as producer:
            for order in orders:
                await producer.send_and_wait(self.topic, order)

    async def until_committed(self, offset: int, within_s: float = 30.0) -> None:
        """Wait until the group's position is there."""
        at = await self.committed()
        async with asyncio.timeout(within_s):
            while at != offset:
                await asyncio.sleep(0.05)
                at = await self.committed()

    async def committed(self) -> int | None:
        """The group's position."""
        partition = OurPartition(self.topic, 0)
        async with inspecting(KafkaConnector(self._open), {}) as inspector:
            found = (await inspector.committed(self.group, [partition])).get(partition)
        return None if found is None else found.offset

    async def until_put_out(self, within_s: float = 20.0) -> None:
        """Wait until the group has no member."""
        async with (
            inspecting(KafkaConnector(self._open), {}) as inspector,
            asyncio.timeout(within_s),
        ):
            while (await inspector.describe_group(self.group)).members:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def dead_letters(self) -> list[bytes | None]:
        """The payloads of all dead letters."""
        return await self._values(self.letters)

    async def until_dead_letters(self, *wanted: bytes, within_s: float = 30.0) -> None:
        """Wait until there are these dead letters."""
        found = await self.dead_letters()
        async with asyncio.timeout(within_s):
            while found != [*wanted]:
                await asyncio.sleep(0.05)
                found = await self.dead_letters()

    async def written(self) -> list[bytes | None]:
        """What its transactions have committed."""
        return await self._values(self.results)

    async def _values(self, topic: str) -> list[bytes | None]:
        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=self._open) as consumer:
            consumer.assign([partition])
            # Not the end of what is committed: the broker writes the end of a transaction after it
            # has answered to its commit.
            end = (await consumer.end_offsets([partition]))[partition]
        settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with AIOKafkaConsumer(bootstrap_servers=self._open, **settings) as consumer:
            consumer.assign([partition])
            found: list[bytes | None] = []
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(partition, timeout_ms=200)).values():
                    found += [record.value for record in records]
            return found


@asynccontextmanager
async def serving(
    guarded: Guarded, kafka: Mapping[str, Any], **more: Any
) -> AsyncIterator[Service]:
    """A service that runs."""
    service = Service(guarded, kafka, **more)
    async with service.app:
        yield service
