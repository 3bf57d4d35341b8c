"""What the tests of channels with a registry share: their application, and Confluent's
serialisers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka.serialization import MessageField, SerializationContext

from reactive_kafka import App
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.formats import ChannelSchemas
from reactive_kafka.observe.health import health
from reactive_kafka.schemas.schema_registry import Registry
from reactive_kafka.tasks import Tasks
from reactive_kafka.testing import TestApp
from tests.app.helpers import Recorder
from tests.config.values import schema_registry_settings
from tests.formats.texts import channel_schemas
from tests.schemas.server import RegistryServer

VALUE = SerializationContext("orders", MessageField.VALUE)


def make_app(
    format: str, incoming: dict[str, Any] | None = None, outgoing: dict[str, Any] | None = None
) -> App:
    """The incoming channel orders, and the outgoing one of the same topic, in one format."""
    orders = {"group_id": "billing", "auto_offset_reset": "earliest", "value_deserializer": format}
    return App(
        {
            "schema_registry": {"url": "memory://"},
            "incoming": {"orders": {**orders, **(incoming or {})}},
            "outgoing": {
                "out": {"topic": "orders-out", "value_serializer": format, **(outgoing or {})}
            },
        }
    )


@asynccontextmanager
async def running(app: App, registry: RegistryServer, **settings: Any) -> AsyncIterator[TestApp]:
    """The application on a broker in memory with one partition, and on this registry."""
    from reactive_kafka.testing import MemoryBroker

    broker = MemoryBroker(partitions=1)
    table = {"url": registry.url, **settings}
    try:
        async with TestApp(app, broker=broker, overrides={"schema_registry": table}) as test:
            yield test
    finally:
        await broker.close()


@asynccontextmanager
async def schemas_of(registry: RegistryServer) -> AsyncIterator[ChannelSchemas]:
    """What the channel clicks knows of a registry, without an application around it."""
    tasks = Tasks()
    schemas = channel_schemas()
    settings = schema_registry_settings(url=(registry.url,), timeout_s=2.0)
    schemas.connect(Registry(settings, SYSTEM_CLOCK, tasks, Recorder()))
    try:
        yield schemas
    finally:
        await tasks.end(5)


async def serialized(serializer: Any, value: Any, context: SerializationContext = VALUE) -> bytes:
    """What Confluent's serialiser makes of a value; it blocks, and so do the deserialisers."""
    data: bytes = await asyncio.to_thread(serializer, value, context)
    return data


def reasons(app: App, name: str) -> str:
    """Why a channel is not ready; empty if it is."""
    (check,) = (one for one in health(app.facts()).ready.checks if one.channel == name)
    return "" if check.status == "UP" else str(check.data["reason"])
