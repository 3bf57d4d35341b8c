"""The functions that a channel's settings name: what records are ordered by, and what reads the
metadata. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.values import did_you_mean
from reactive_kafka.delivery.lanes.lane import KeyOf
from reactive_kafka.errors import ConfigError, DecodeError, describe
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.names import FLOATS, INTEGERS, load_function, unusable
from reactive_kafka.records import RawRecord, TopicPartition

HEADER = "header:"


def key_of(settings: IncomingSettings) -> KeyOf:
    """What records of a channel are ordered by: its ``key``, or without one the record's own.

    Records without a key are in order among themselves, or with ``keyless = "unordered"`` each is
    on its own.

    Raises:
        ConfigError: ``module:function`` cannot be imported, or is no function.
    """
    told = _told(settings)
    if settings.keyless == "ordered":
        return told

    def key_or_nothing_else(record: RawRecord) -> Hashable:
        key = told(record)
        return object() if key is None else key

    return key_or_nothing_else


def _told(settings: IncomingSettings) -> KeyOf:
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


READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(INTEGERS, int),
    **dict.fromkeys(FLOATS, float),
    "string": str,
    "json": json.loads,
    "bytes": str.encode,
}


class MetadataReader:
    """Reads the strings of one channel: numbers in decimal, JSON, or by the user's function, which
    gets the string.

    Raises:
        ConfigError: The format does not exist, or ``module:function`` cannot be imported or is no
            function.
    """

    def __init__(self, settings: IncomingSettings) -> None:
        self._settings = settings
        name = settings.offset_metadata_deserializer
        try:
            self._read = _reader(name or "string")
        except FormatError as error:
            raise ConfigError(
                f"{settings.place('offset_metadata_deserializer', name)}: {error}"
            ) from error

    def value(self, partition: TopicPartition, text: str) -> Any:
        """The decoded string; an empty one is returned as it is.

        Raises:
            DecodeError: It cannot be read.
        """
        if not text:
            return text
        try:
            return self._read(text)
        except Exception as error:
            # The user's function may raise anything.
            raise DecodeError(
                f"channel {self._settings.name!r}: the metadata of {partition} cannot be read by "
                f"offset_metadata_deserializer = {self._settings.offset_metadata_deserializer!r}: {describe(error)}"
            ) from error


def _reader(name: str) -> Callable[[str], Any]:
    if ":" in name:
        return load_function(name)
    if name not in READERS:
        raise unusable(name)
    return READERS[name]
