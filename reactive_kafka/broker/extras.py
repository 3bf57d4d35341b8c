"""Checks for optional packages that a connection needs, before anything connects.

Nothing is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from reactive_kafka.broker.kafka_connector import EMBEDDED
from reactive_kafka.errors import MissingExtraError

PACKED = ("snappy", "lz4", "zstd")
"""The values of `compression` that need a package; Python has gzip itself."""


def check_connection(where: str, client: Mapping[str, object]) -> None:
    """Raise MissingExtraError if the embedded broker is wanted but its package is missing.

    Args:
        where: The table with the properties, for the text.
        client: aiokafka's names -> values, ``bootstrap_servers`` among them.
    """
    if client.get("bootstrap_servers") == EMBEDDED and find_spec("confluent_kafka") is None:
        raise MissingExtraError(f'{where} bootstrap_servers = "{EMBEDDED}"', "embedded")


def check_writing(where: str, client: Mapping[str, object]) -> None:
    """Check a connection that writes, which may also need a package for its compression."""
    check_connection(where, client)
    codec = client.get("compression_type")
    if codec in PACKED and find_spec("cramjam") is None:
        raise MissingExtraError(f'{where} compression = "{codec}"', "compression")
