"""Decodes the string committed with a position: ``offset_metadata_deserializer``. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ConfigError, DecodeError, describe
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.custom import load_function
from reactive_kafka.formats.names import FLOATS, INTEGERS, unusable
from reactive_kafka.records import TopicPartition

READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(INTEGERS, int), **dict.fromkeys(FLOATS, float),
    "string": str, "json": json.loads, "bytes": str.encode,
}  # fmt: skip


class MetadataReader:
    """Reads the strings of one channel: numbers in decimal, JSON, or by the user's function, which gets the string.

    Raises:
        ConfigError: The format does not exist, or ``module:function`` cannot be imported or is no function.
    """

    def __init__(self, settings: IncomingSettings) -> None:
        self._settings = settings
        name = settings.offset_metadata_deserializer
        try:
            self._read = _reader(name or "string")
        except FormatError as error:
            raise ConfigError(f"{settings.place('offset_metadata_deserializer', name)}: {error}") from error

    def value(self, partition: TopicPartition, text: str) -> Any:
        """The decoded string; an empty one is returned as it is.

        Raises:
            DecodeError: It cannot be read.
        """
        if not text:
            return text
        try:
            return self._read(text)
        except Exception as error:  # the user's function may raise anything
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
