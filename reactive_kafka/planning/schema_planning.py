"""Where the registered schemas of a channel come from. Pure."""

from __future__ import annotations

from dataclasses import replace

from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings
from reactive_kafka.formats import ChannelSchemas, SchemaSource
from reactive_kafka.formats.format_names import REGISTERED_FORMATS


def registered_of(
    settings: IncomingSettings | OutgoingSettings, topic: str
) -> tuple[SchemaSource, SchemaSource]:
    """Return where the schemas of a channel's values come from, and those of its keys."""
    schema = settings.schema
    values = SchemaSource(
        ChannelSchemas(settings.name), topic, "value", schema.file, schema.subject, schema.register
    )
    return values, replace(values, part="key", file=None)


def schemas_if_used(values: SchemaSource, *formats: str | None) -> ChannelSchemas | None:
    """Return the schemas of a channel, or None if none of its formats has schemas."""
    if any(name in REGISTERED_FORMATS for name in formats):
        return values.schemas
    return None
