"""Applications under test: one channel, whose handler keeps what it was given, and every event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from reactive_kafka import App, Message
from reactive_kafka.broker.client import Consumer
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.events import Event
from reactive_kafka.observe.facts import ChannelFacts
from tests.broker.hazards.faults import until

E = TypeVar("E", bound=Event)


class KeepingConnector(KafkaConnector):
    """Keeps the consumers that it made, for whoever has to reach into one."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.made: list[Any] = []

    def consumer(self, **named: Any) -> Consumer:
        """A consumer, kept."""
        made = super().consumer(**named)
        self.made.append(made)
        return made


class Diary:
    """What an application did."""

    def __init__(self, app: App, connector: KeepingConnector) -> None:
        self.app = app
        self._connector = connector
        self.handled: list[Any] = []
        self.events: list[Event] = []

    def on(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def consumer(self) -> Any:
        """The consumer of the one channel."""
        return self._connector.made[-1]

    @property
    def facts(self) -> ChannelFacts:
        """What is known about the one channel."""
        (facts,) = self.app.facts().channels
        return facts

    def committed(self) -> dict[int, int | None]:
        """partition number -> its committed position."""
        return {facts.partition.partition: facts.committed for facts in self.facts.partitions}

    async def until_assigned(self, partitions: int) -> None:
        """Wait until reading has begun in that many partitions."""
        channel = self.app.channel("orders")
        await until(
            lambda: channel.is_ready and len(channel.assignment) == partitions,
            "it has its partitions",
        )


@asynccontextmanager
async def running(
    bootstrap_servers: str,
    topic: str,
    group: str,
    channel: Mapping[str, Any] | None = None,
    handler: Callable[..., Any] | None = None,
) -> AsyncIterator[Diary]:
    """An application with the channel ``orders``; by default its handler only keeps the
    payloads.
    """
    settings = {
        "topic": topic,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "value_deserializer": "bytes",
        "commit_interval": "0.1s",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 2000,
        **(channel or {}),
    }
    app = App(
        {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "incoming": {"orders": settings},
            "http": {"enabled": False},
        }
    )
    connector = app._connector = KeepingConnector(bootstrap_servers)
    diary = Diary(app, connector)
    app.observe(diary)

    async def keep(message: Message[Any]) -> None:
        diary.handled.append(message.payload)

    app.incoming("orders")(handler or keep)
    async with app:
        yield diary
