"""The sections of the configuration and the keys that each takes, from the fields of the settings. Pure data.

A name with a dot stands in a table of its own: ``retry.backoff`` is ``backoff`` in ``[incoming.X.retry]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reactive_kafka.config.client_properties import BOTH, CONSUMER, PRODUCER, Side
from reactive_kafka.config.fields import Key, keys_of
from reactive_kafka.config.schema import (
    FAILURE,
    HttpSettings,
    IncomingSettings,
    OutgoingSettings,
    Settings,
    SparkSettings,
)
from reactive_kafka.config.values import BOOLEAN, SERVERS, TOPIC, Kind

KAFKA_SPELLINGS = {
    "bootstrap.servers": "bootstrap_servers",
    "group.id": "group_id",
    "auto.offset.reset": "auto_offset_reset",
    "enable.auto.commit": "enable_auto_commit",
    "transactional.id": "transactional_id",
    "key.deserializer": "key_deserializer",
    "value.deserializer": "value_deserializer",
    "key.serializer": "key_serializer",
    "value.serializer": "value_serializer",
}
"""Kafka's name -> the key of ours that it means."""

LATER_SECTIONS = {
    "memory": "in-memory channels",
    "schema_registry": "schema registries",
    "mp": "MicroProfile properties",
}
"""Sections that this version refuses by name -> what they will configure."""
_LATER_OF_BOTH = {"cloud_events": "", "schema": ""}
_LATER_OUTGOING = {
    "transactional_id": "",
    "transactional": "",
    "propagate_headers": "return a Record with the headers",
    "partitioner": "return a Record with the partition",
    "linger": "use the raw property linger.ms",
    "compression": "use the raw property compression.type",
    "reply_topic": "",
} | _LATER_OF_BOTH


@dataclass(frozen=True, slots=True)
class Section:
    """The keys that one table takes.

    Args:
        title: As users write the table: ``incoming.X``.
        keys: Name -> key.
        sides: Whose raw client properties may stand here.
        later: Keys of the contract that this version refuses by name -> what to do meanwhile, or "".
        clients: Tables inside it that take raw client properties too -> whose.
        free: Tables inside it whose keys are the user's own words -> what their values may be.
    """

    title: str
    keys: dict[str, Key]
    sides: frozenset[Side] = frozenset()
    later: Mapping[str, str] = field(default_factory=dict)
    clients: Mapping[str, frozenset[Side]] = field(default_factory=dict)
    free: Mapping[str, Kind[str]] = field(default_factory=dict)

    @property
    def tables(self) -> frozenset[str]:
        """Names of the tables inside it."""
        return frozenset(name.partition(".")[0] for name in self.keys if "." in name) | self.free.keys()


def _named(*keys: Key) -> dict[str, Key]:
    return {key.name: key for key in keys}


BOOTSTRAP_SERVERS = replace(keys_of(Settings)["bootstrap_servers"], target="")
_INCOMING = _named(
    Key("topic", TOPIC, None, "The topic to read; default: the channel's name."),
    *keys_of(IncomingSettings).values(),
    Key(
        "dead_letter_queue.bootstrap_servers",
        SERVERS,
        None,
        "The brokers that dead letters go to; default: the channel's.",
    ),
)
_KAFKA = _named(
    BOOTSTRAP_SERVERS,
    Key("allow_insecure_sasl", BOOLEAN, False, "Allow SASL PLAIN without TLS, which sends the password in clear text."),
)
_OF_A_CHANNEL = ("topic", "topics", "pattern", "assign", "delayed_retry.topics")
"""One of these for all channels would be a mistake."""
_SHARED = {name: key for name, key in (keys_of(OutgoingSettings) | _INCOMING).items() if name not in _OF_A_CHANNEL}
_CLIENTS = {"dead_letter_queue": PRODUCER, "delayed_retry": CONSUMER}
_FREE = {"failure_routes": FAILURE}

INCOMING = Section(
    "incoming.X", _INCOMING | _named(BOOTSTRAP_SERVERS), CONSUMER, _LATER_OF_BOTH, clients=_CLIENTS, free=_FREE
)
OUTGOING = Section("outgoing.X", keys_of(OutgoingSettings) | _named(BOOTSTRAP_SERVERS), PRODUCER, _LATER_OUTGOING)
KAFKA = Section("kafka", _KAFKA | _SHARED, BOTH, _LATER_OUTGOING, clients=_CLIENTS, free=_FREE)
SPARK = Section("spark", keys_of(SparkSettings))
HTTP = Section("http", keys_of(HttpSettings))

CHANNEL_SECTIONS = {"incoming": INCOMING, "outgoing": OUTGOING}
PLAIN_SECTIONS = {"kafka": KAFKA, "spark": SPARK, "http": HTTP}
