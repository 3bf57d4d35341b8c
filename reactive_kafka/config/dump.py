"""Turns settings into nested tables for people to read, with secrets masked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import SIDES
from reactive_kafka.config.keys import Section
from reactive_kafka.config.secrets import masked
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings, Settings
from reactive_kafka.config.startup_warnings.unused import NEED_COMMITS

# Tables of which only values other than the defaults are shown.
_WITHOUT_DEFAULTS = ("retry", "restart", "spark", "schema", "cloud_events")


def dump(settings: Settings) -> dict[str, Any]:
    """Return the settings in effect as a configuration file would have them.

    Durations and sizes are written as users write them.
    """
    tables: dict[str, Any] = {
        "kafka": {"bootstrap_servers": masked("", settings.bootstrap_servers)},
        "incoming": {name: _incoming(channel) for name, channel in settings.incoming.items()},
        "outgoing": {name: _outgoing(channel) for name, channel in settings.outgoing.items()},
    }
    if settings.memory:
        tables["memory"] = {
            name: _plain(keys.MEMORY, channel) for name, channel in settings.memory.items()
        }
    if settings.limits:
        tables["limits"] = {
            name: _plain(keys.LIMITS, limit) for name, limit in settings.limits.items()
        }
    if settings.topics:
        tables["topics"] = {
            name: _plain(keys.TOPICS, topic) | {"config": dict(topic.config)}
            for name, topic in settings.topics.items()
        }
    if settings.schema_registry.url:
        tables["schema_registry"] = _plain(keys.SCHEMA_REGISTRY, settings.schema_registry)
    tracing = _plain(keys.TRACING, settings.tracing)
    if tracing:
        tables["tracing"] = tracing
    spark = _plain(keys.SPARK, settings.spark) | {"conf": masked("", dict(settings.spark.conf))}
    if settings.spark.remote is not None:
        # The Spark Connect server has a master of its own.
        del spark["master"]
    tables["spark"] = spark
    tables["http"] = _plain(keys.HTTP, settings.http)
    return tables


def _incoming(channel: IncomingSettings) -> dict[str, Any]:
    table = _channel(keys.INCOMING, channel)
    if not channel.max_in_flight_is_set:
        # The channel derives it from its handler.
        del table["max_in_flight"]
    if channel.commit_strategy == "ignore" and channel.on_poison in NEED_COMMITS:
        # It is inherited and has no effect. In the channel's own table it would be a warning.
        del table["on_poison"]
    if channel.filter_headers:
        table["filter_headers"] = {
            name: keys.INCOMING.headers["filter_headers"].show(values)
            for name, values in channel.filter_headers.items()
        }
    rate = channel.rate_limit
    if rate is not None and rate.by is not None:
        table["rate_limit"] = {"rate": str(replace(rate, by=None)), "by": rate.by}
    if channel.failure_routes:
        table["failure_routes"] = {
            name: _route(strategy, after_retries=name in channel.after_retries)
            for name, strategy in channel.failure_routes.items()
        }
    for name, inner in (
        ("dead_letter_queue", channel.dead_letter_queue),
        ("delayed_retry", channel.delayed_retry),
    ):
        if inner is not None:
            inherited = channel.client.items()
            own = dict(item for item in inner.client.items() if item not in inherited)
            table[name] |= _properties(own)
    return table


def _route(strategy: str, *, after_retries: bool) -> str | dict[str, Any]:
    if after_retries:
        return {"strategy": strategy, keys.AFTER_RETRIES: True}
    return strategy


def _outgoing(channel: OutgoingSettings) -> dict[str, Any]:
    table = _channel(keys.OUTGOING, channel)
    events = channel.cloud_events
    if events is None or (events.every and "cloud_events" not in table):
        table["cloud_events"] = events is not None
    return table


def spark_table(channel: IncomingSettings) -> dict[str, Any]:
    """Return the ``spark`` table of a channel whose batches run on Spark, with its defaults."""
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
            # Another field has the value: a topic is among the topics, brokers are among the
            # client's properties.
            continue
        inner_table, _, last = name.rpartition(".")
        if inner_table and getattr(settings, inner_table) is None:
            # Nothing needs dead letters or retries.
            continue
        value = attrgetter(key.target)(settings)
        if value is None or value == ():
            continue
        if inner_table in _WITHOUT_DEFAULTS and value == key.parsed_default:
            continue
        target = table.setdefault(inner_table, {}) if inner_table else table
        target[last] = masked(name, key.kind.show(value))
    return table


def _properties(client: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _property(name, value) for name, value in sorted(client.items())}


def _property(name: str, value: Any) -> Any:
    if value is None:
        # For compression_type, aiokafka's None is Kafka's "none".
        return "none"
    if isinstance(value, str | int | tuple):
        return masked(name, value)
    # An SSL context or a token provider.
    return f"<{type(value).__name__}>"
