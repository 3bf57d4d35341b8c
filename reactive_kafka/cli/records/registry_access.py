"""The schemas that a command needs, from the registry of the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from reactive_kafka.cli.errors import WrongUsage
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings, Settings
from reactive_kafka.formats import ChannelSchemas, SchemaMissing, SchemaSource
from reactive_kafka.formats.format_names import REGISTERED_FORMATS
from reactive_kafka.observe.events import Observers
from reactive_kafka.outgoing.schema_wait import once_known
from reactive_kafka.tasks import Tasks

T = TypeVar("T")
# How long the registry may take to answer, retries included.
PATIENCE_S = 30.0
OWNER = "command-line"


@asynccontextmanager
async def schema_source(
    settings: Settings | None, topic: str, format_name: str | None
) -> AsyncIterator[SchemaSource]:
    """Yield where the schemas of a topic's values come from.

    A channel of the configuration that has the topic says it in its ``schema`` table. Without a
    schema file, values are written with the newest schema of the subject.

    Raises:
        WrongUsage: The format needs a registry, and there is none.
    """
    schemas = ChannelSchemas(OWNER)
    if format_name not in REGISTERED_FORMATS:
        yield SchemaSource(schemas, topic)
        return
    if settings is None or not settings.schema_registry.url:
        raise WrongUsage(
            f"the format {format_name!r} needs a schema registry: write [schema_registry] url in "
            "the configuration, and name it with --config"
        )
    # Imported here because few commands need a registry, and its client takes a moment to load.
    from reactive_kafka.schemas.schema_registry import Registry

    tasks = Tasks()
    schemas.connect(Registry(settings.schema_registry, SYSTEM_CLOCK, tasks, Observers([])))
    try:
        yield _source(settings, schemas, topic)
    finally:
        await tasks.end(1.0)


def _source(settings: Settings, schemas: ChannelSchemas, topic: str) -> SchemaSource:
    channel = channel_with(settings, topic)
    if channel is None:
        return SchemaSource(schemas, topic, register=False)
    schema = channel.schema
    return SchemaSource(
        schemas,
        topic,
        file=schema.file,
        subject=schema.subject,
        # Plain data says no schema that could be registered.
        register=schema.register and schema.file is not None,
    )


def channel_with(settings: Settings, topic: str) -> IncomingSettings | OutgoingSettings | None:
    """Return a channel that writes the topic, or else one that reads it; None without one."""
    for outgoing in settings.outgoing.values():
        if outgoing.topic == topic:
            return outgoing
    for incoming in settings.incoming.values():
        if incoming.subscription.reads(topic):
            return incoming
    return None


async def with_schemas(make: Callable[[], T]) -> T:
    """Call *make*, again if it needs a schema that the registry has to be asked for.

    Raises:
        SchemaAwayError: The registry does not answer in time.
    """
    try:
        return make()
    except SchemaMissing as missing:
        return await once_known(make, missing, PATIENCE_S)
