"""What records are ordered by under ``ordering = "key"``. Pure."""

from __future__ import annotations

from operator import attrgetter

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.values import did_you_mean
from reactive_kafka.delivery.lane import KeyOf
from reactive_kafka.errors import ConfigError
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.custom import load_function
from reactive_kafka.records import RawRecord

HEADER = "header:"


def key_of(settings: IncomingSettings) -> KeyOf:
    """The function for a channel's ``key``: without one the record's own key, and records without a key share a lane.

    Raises:
        ConfigError: ``module:function`` cannot be imported, or is no function.
    """
    key = settings.key
    if key is None:
        return attrgetter("key")
    if key.startswith(HEADER):
        name = key.removeprefix(HEADER)
        return lambda record: _last_header(record, name)
    try:
        return load_function(key)
    except FormatError as error:
        text = f"{settings.place('key', key)}: {error}; allowed: {HEADER}NAME or module:function"
        module, _, name = key.partition(":")
        if did_you_mean(module, [HEADER.rstrip(":")]):
            text += f"; did you mean {HEADER + name!r}?"
        raise ConfigError(text) from error


def _last_header(record: RawRecord, name: str) -> bytes | None:
    """The last header called *name*, as Kafka's own ``lastHeader``; None if there is none."""
    for header, value in reversed(record.headers):
        if header == name:
            return value
    return None
