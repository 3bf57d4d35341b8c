"""The functions that a channel's settings name: for the keys of records, and for metadata. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any

from reactive_kafka.config.kinds import did_you_mean
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.lanes.lane import KeyOf
from reactive_kafka.delivery.lanes.rates_by_value import ValueOf
from reactive_kafka.errors import ConfigError, DecodeError, describe
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.format_names import FLOATS, INTEGERS, unknown_format
from reactive_kafka.formats.user_objects import load_function
from reactive_kafka.records import RawRecord, TopicPartition

HEADER = "header:"


def key_of(settings: IncomingSettings) -> KeyOf:
    """Return what gives the key that a record is ordered by.

    It is the channel's ``key``, or by default the record's own. Records without a key are in order
    among themselves. With ``keyless = "unordered"`` each of them is on its own.

    Raises:
        ConfigError: ``module:function`` cannot be imported, or is no function.
    """
    configured = _configured_key(settings)
    if settings.keyless == "ordered":
        return configured

    def key_or_unique(record: RawRecord) -> Hashable:
        key = configured(record)
        # A new object equals no other key.
        return object() if key is None else key

    return key_or_unique


def _configured_key(settings: IncomingSettings) -> KeyOf:
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
    """Return the last header called *name*, as Kafka's ``lastHeader`` does; None: there is none."""
    for header, value in reversed(record.headers):
        if header == name:
            return value
    return None


def rate_value_of(by: str) -> ValueOf:
    """Return what gives the value that a record's rate goes by, for ``rate_limit.by``.

    Records without the header, or without a key, have the value None together.
    """
    if by == "key":
        return lambda partition, record: record.key
    if by == "partition":
        return lambda partition, record: partition
    name = by.removeprefix(HEADER)
    return lambda partition, record: _last_header(record, name)


READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(INTEGERS, int),
    **dict.fromkeys(FLOATS, float),
    "string": str,
    "json": json.loads,
    "bytes": str.encode,
}


class MetadataReader:
    """Reads the metadata strings of one channel.

    They are decimal numbers, JSON, or what the user's function makes of the string.

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
        """Return the decoded string; an empty one as it is.

        Raises:
            DecodeError: It cannot be read.
        """
        if not text:
            return text
        try:
            return self._read(text)
        except Exception as error:
            # The user's function may raise anything.
            name = self._settings.offset_metadata_deserializer
            raise DecodeError(
                f"channel {self._settings.name!r}: the metadata of {partition} cannot be read by "
                f"offset_metadata_deserializer = {name!r}: {describe(error)}"
            ) from error


def _reader(name: str) -> Callable[[str], Any]:
    if ":" in name:
        return load_function(name)
    if name not in READERS:
        raise unknown_format(name)
    return READERS[name]
