"""The settings as nested tables for people to read, secrets masked. Pure."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import SIDES
from reactive_kafka.config.keys import Section
from reactive_kafka.config.schema import IncomingSettings, OutgoingSettings, Settings
from reactive_kafka.config.secrets import masked

_UNLESS_DEFAULT = ("retry", "spark")  # tables that say nothing as long as they hold the defaults


def dump(settings: Settings) -> dict[str, Any]:
    """What is in effect, in the shape of a configuration file: durations and sizes as users write them.

    Only what the key tables and Spark's properties hold is in it. What was a file, a variable or a default shows
    as the value it came to.
    """
    return {
        "kafka": {"bootstrap_servers": masked("", settings.bootstrap_servers)},
        "incoming": {name: _incoming(channel) for name, channel in settings.incoming.items()},
        "outgoing": {name: _channel(keys.OUTGOING, channel) for name, channel in settings.outgoing.items()},
        "spark": _plain(keys.SPARK, settings.spark) | {"conf": masked("", dict(settings.spark.conf))},
        "http": _plain(keys.HTTP, settings.http),
    }


def _incoming(channel: IncomingSettings) -> dict[str, Any]:
    table = _channel(keys.INCOMING, channel)
    if not channel.max_in_flight_is_set:
        del table["max_in_flight"]  # the channel chooses it by what handles it
    return table


def _channel(section: Section, channel: IncomingSettings | OutgoingSettings) -> dict[str, Any]:
    client = {name: value for name, value in channel.client.items() if name in SIDES or name == "bootstrap_servers"}
    return _plain(section, channel) | {name: _property(name, value) for name, value in sorted(client.items())}


def _plain(section: Section, settings: Any) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, key in section.keys.items():
        if (name == "topic" and isinstance(settings, IncomingSettings)) or key.target.startswith("client."):
            continue  # an incoming channel's topic is in its topics
        inside, _, last = name.rpartition(".")
        value = attrgetter(key.target)(settings)
        if value is None or (inside in _UNLESS_DEFAULT and value == key.kind.parse(key.default)):
            continue
        (table.setdefault(inside, {}) if inside else table)[last] = masked(name, key.kind.show(value))
    return table


def _property(name: str, value: Any) -> Any:
    if value is None:
        return "none"  # compression_type: aiokafka's None is Kafka's "none"
    if value is not None and not isinstance(value, str | int | tuple):
        return f"<{type(value).__name__}>"  # an SSL context, a token provider
    return masked(name, value)
