"""The settings as nested tables for people to read, secrets masked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import SIDES
from reactive_kafka.config.keys import Section
from reactive_kafka.config.secrets import masked
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings, Settings
from reactive_kafka.config.startup_warnings.unused import NEED_COMMITS

# Tables whose defaults are left out.
_UNLESS_DEFAULT = ("retry", "restart", "spark", "schema", "cloud_events")


def dump(settings: Settings) -> dict[str, Any]:
    """The settings in effect, in the shape of a configuration file: durations and sizes as users
    write them.
    """
    spark = _plain(keys.SPARK, settings.spark) | {"conf": masked("", dict(settings.spark.conf))}
    if settings.spark.remote is not None:
        # The server has its own.
        del spark["master"]
    registry = (
        _plain(keys.SCHEMA_REGISTRY, settings.schema_registry)
        if settings.schema_registry.url
        else {}
    )
    tracing = _plain(keys.TRACING, settings.tracing)
    memory = {name: _plain(keys.MEMORY, channel) for name, channel in settings.memory.items()}
    return {
        "kafka": {"bootstrap_servers": masked("", settings.bootstrap_servers)},
        "incoming": {name: _incoming(channel) for name, channel in settings.incoming.items()},
        "outgoing": {name: _outgoing(channel) for name, channel in settings.outgoing.items()},
        **({"memory": memory} if memory else {}),
        **({"schema_registry": registry} if registry else {}),
        **({"tracing": tracing} if tracing else {}),
        "spark": spark,
        "http": _plain(keys.HTTP, settings.http),
    }


def _incoming(channel: IncomingSettings) -> dict[str, Any]:
    table = _channel(keys.INCOMING, channel)
    if not channel.max_in_flight_is_set:
        # The channel derives it from its handler.
        del table["max_in_flight"]
    if channel.commit_strategy == "ignore" and channel.on_poison in NEED_COMMITS:
        # Inherited and without effect; in the channel's own table it would be told.
        del table["on_poison"]
    if channel.failure_routes:
        first = channel.after_retries
        table["failure_routes"] = {
            name: {"strategy": strategy, keys.AFTER_RETRIES: True} if name in first else strategy
            for name, strategy in channel.failure_routes.items()
        }
    for name, inside in (
        ("dead_letter_queue", channel.dead_letter_queue),
        ("delayed_retry", channel.delayed_retry),
    ):
        if inside is not None:
            above = channel.client.items()
            table[name] |= _properties(
                dict(item for item in inside.client.items() if item not in above)
            )
    return table


def _outgoing(channel: OutgoingSettings) -> dict[str, Any]:
    table = _channel(keys.OUTGOING, channel)
    events = channel.cloud_events
    if events is None or (events.every and "cloud_events" not in table):
        table["cloud_events"] = events is not None
    return table


def spark_table(channel: IncomingSettings) -> dict[str, Any]:
    """The ``spark`` table of a channel whose batches run there, with its defaults."""
    own = {
        name.removeprefix("spark."): key
        for name, key in keys.INCOMING.keys.items()
        if name.startswith("spark.")
    }
    table = {
        name: masked(key.name, key.kind.show(attrgetter(key.target)(channel)))
        for name, key in own.items()
    }
    return table | {"pool": masked("", channel.spark.pool or channel.name)}


def _channel(section: Section, channel: IncomingSettings | OutgoingSettings) -> dict[str, Any]:
    client = {
        name: value
        for name, value in channel.client.items()
        if name in SIDES or name == "bootstrap_servers"
    }
    return _plain(section, channel) | _properties(client)


def _plain(section: Section, settings: Any) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, key in section.keys.items():
        if not key.target:
            # Its value is in another field: a topic among the topics, brokers among the client's
            # properties.
            continue
        inside, _, last = name.rpartition(".")
        if inside and getattr(settings, inside) is None:
            # Dead letters and retries, where nothing needs them.
            continue
        value = attrgetter(key.target)(settings)
        if (
            value is None
            or value == ()
            or (inside in _UNLESS_DEFAULT and value == key.parsed_default)
        ):
            continue
        (table.setdefault(inside, {}) if inside else table)[last] = masked(
            name, key.kind.show(value)
        )
    return table


def _properties(client: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _property(name, value) for name, value in sorted(client.items())}


def _property(name: str, value: Any) -> Any:
    if value is None:
        # compression_type: aiokafka's None is Kafka's "none"
        return "none"
    # An SSL context or a token provider shows as its type.
    return (
        masked(name, value) if isinstance(value, str | int | tuple) else f"<{type(value).__name__}>"
    )
