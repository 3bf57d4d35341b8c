"""Where the registered schemas of a channel come from. Pure."""

from __future__ import annotations

from dataclasses import replace

from reactive_kafka.config.schema import IncomingSettings, OutgoingSettings
from reactive_kafka.formats import Registered, Schemas
from reactive_kafka.formats.names import REGISTERED_FORMATS


def registered_of(
    settings: IncomingSettings | OutgoingSettings, topic: str
) -> tuple[Registered, Registered]:
    """Return where the schemas of a channel's values come from, and those of its keys."""
    schema = settings.schema
    values = Registered(
        Schemas(settings.name), topic, "value", schema.file, schema.subject, schema.register
    )
    return values, replace(values, part="key", file=None)


def schemas_if_used(values: Registered, *formats: str | None) -> Schemas | None:
    """Return the schemas of a channel, or None if none of its formats has schemas."""
    if any(name in REGISTERED_FORMATS for name in formats):
        return values.schemas
    return None
