"""Handlers that many tests of applications have, and brokers with records for them.

Each function declares the handler of the channel orders.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from reactive_kafka import App, Message
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import Recorder, make_app, make_broker, until


def keep_messages(app: App, kept: list[Message[bytes]], *, ack: Any = None) -> None:
    """The handler keeps each message, for the test to settle it."""

    @app.incoming("orders", ack=ack)
    async def handler(message: Message[bytes]) -> None:
        kept.append(message)


def note_offsets(app: App, seen: list[int]) -> None:
    """The handler notes the offset of each record."""

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append(message.offset)


def note_places(app: App, seen: list[tuple[int, int]]) -> None:
    """The handler notes the partition and the offset of each record."""

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        seen.append((message.partition, message.offset))


def note_values(app: App, seen: list[bytes]) -> None:
    """The handler notes each value."""

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(value)


def take_all(app: App) -> None:
    """The handler takes each value and does nothing with it."""

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...


def noting_app(seen: list[int], recorder: Recorder | None = None, **orders: Any) -> App:
    """An application that commits often, and notes the offsets that it gets."""
    app = make_app(recorder, **{"commit_interval": "100ms", **orders})
    note_offsets(app, seen)
    return app


class Kept:
    """An application whose handler keeps its messages unsettled."""

    def __init__(self, **orders: Any) -> None:
        self.messages: list[Message[bytes]] = []
        self.app = make_app(**orders)
        keep_messages(self.app, self.messages, ack="manual")

    @property
    def channel(self) -> Any:
        return self.app.channel("orders")

    async def have(self, count: int) -> None:
        await until(lambda: len(self.messages) == count)

    def up_to(self, at: int, metadata: str | None = None) -> asyncio.Future[bool]:
        """Ack all messages up to one of those that were kept."""
        return self.app.channel("orders").ack_up_to(self.messages[at], metadata)


def broker_with(*records: int, began: datetime | None = None) -> MemoryBroker:
    """A broker with so many records in each partition of orders, one a second if they *began*."""
    broker = make_broker(len(records))
    broker.create_topic("orders", len(records))
    for partition, count in enumerate(records):
        for number in range(count):
            at_ms = None
            if began is not None:
                at_ms = int((began + timedelta(seconds=number)).timestamp() * 1000)
            broker.produce("orders", b"", partition=partition, timestamp_ms=at_ms)
    return broker
