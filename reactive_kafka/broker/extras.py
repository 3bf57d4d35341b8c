"""Optional packages that a channel's connection needs, looked for before anything connects. Nothing
is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from reactive_kafka.broker.kafka_connector import EMBEDDED
from reactive_kafka.errors import MissingExtraError

PACKED = ("snappy", "lz4", "zstd")
"""What `compression` may name that Python itself does not have."""


def check_connection(where: str, client: Mapping[str, object]) -> None:
    """Raise MissingExtraError where these client properties ask for the embedded broker, and it
    cannot be started.

    Args:
        where: The table that they stand in, for people.
        client: aiokafka's names -> values, ``bootstrap_servers`` among them.
    """
    if client.get("bootstrap_servers") == EMBEDDED and find_spec("confluent_kafka") is None:
        raise MissingExtraError(f'{where} bootstrap_servers = "{EMBEDDED}"', "embedded")


def check_writing(where: str, client: Mapping[str, object]) -> None:
    """The same for what writes, which also needs the library for its compression."""
    check_connection(where, client)
    codec = client.get("compression_type")
    if codec in PACKED and find_spec("cramjam") is None:
        raise MissingExtraError(f'{where} compression = "{codec}"', "compression")
