"""The sections of the configuration, the keys that each takes, and what a written key means, or why
nothing. Pure.

A name with a dot stands in a table of its own: ``retry.backoff`` is ``backoff`` in
``[incoming.X.retry]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from reactive_kafka.config.client_properties import (
    AUTO_COMMIT_INTERVAL,
    BOTH,
    CONSUMER,
    PRODUCER,
    Side,
    find,
    form,
    names_like,
    refusal,
)
from reactive_kafka.config.incoming_values import is_dotted
from reactive_kafka.config.microprofile.attributes import attribute
from reactive_kafka.config.schema import (
    FAILURE,
    HttpSettings,
    IncomingSettings,
    MemorySettings,
    OutgoingSettings,
    Settings,
    SparkSettings,
)
from reactive_kafka.config.tables import Key, SchemaRegistrySettings, TracingSettings, keys_of
from reactive_kafka.config.values import BOOLEAN, SERVERS, TOPIC, Kind, did_you_mean

_KAFKAS = (
    "bootstrap.servers group.id auto.offset.reset enable.auto.commit transactional.id "
    "key.deserializer value.deserializer key.serializer value.serializer"
)
KAFKA_SPELLINGS = {name: form(name) for name in _KAFKAS.split()} | {
    "compression": "compression_type"
}
"""Kafka's name -> the key of ours that it means."""


@dataclass(frozen=True, slots=True)
class Section:
    """The keys that one table takes. ``clients`` and ``free`` have tables inside it."""

    # As users write the table: incoming.X.
    title: str
    keys: dict[str, Key]
    # Whose raw client properties may stand here.
    sides: frozenset[Side] = frozenset()
    # Whose raw properties they take, too.
    clients: Mapping[str, frozenset[Side]] = field(default_factory=dict)
    # Their keys are the user's own words -> their values.
    free: Mapping[str, Kind[str]] = field(default_factory=dict)

    @property
    def tables(self) -> frozenset[str]:
        """Names of the tables inside it."""
        return (
            frozenset(name.partition(".")[0] for name in self.keys if "." in name)
            | self.free.keys()
        )


BOOTSTRAP_SERVERS = replace(keys_of(Settings)["bootstrap_servers"], target="")
_LETTER_SERVERS = Key(
    "dead_letter_queue.bootstrap_servers",
    SERVERS,
    None,
    "The brokers that dead letters go to; default: the channel's.",
)
_INSECURE = Key(
    "allow_insecure_sasl",
    BOOLEAN,
    False,
    "Allow SASL PLAIN without TLS, which sends the password in clear text.",
)
_EVENTS = Key(
    "cloud_events",
    BOOLEAN,
    None,
    "`true`, or a table: every value is written as a CloudEvent; `false`: none is. Default: those that are one.",
)
_INCOMING = {
    "topic": Key("topic", TOPIC, None, "The topic to read; default: the channel's name."),
    **keys_of(IncomingSettings),
    _LETTER_SERVERS.name: _LETTER_SERVERS,
}
_SERVERS = {"bootstrap_servers": BOOTSTRAP_SERVERS}
_KAFKA = _SERVERS | {_INSECURE.name: _INSECURE}
_OF_A_CHANNEL = (
    "topic",
    "topics",
    "pattern",
    "assign",
    "enabled",
    "delayed_retry.topics",
    "schema.file",
)
"""One of these for all channels would be a mistake."""
_OUTGOING = {**keys_of(OutgoingSettings), _EVENTS.name: _EVENTS}
_EVENT_TABLE = tuple(name for name in _OUTGOING if name.startswith(f"{_EVENTS.name}."))
_SHARED = {
    name: key
    for name, key in (_OUTGOING | _INCOMING).items()
    if name not in (*_OF_A_CHANNEL, *_EVENT_TABLE)
}
_CLIENTS = {"dead_letter_queue": PRODUCER, "delayed_retry": CONSUMER}
_FREE = {"failure_routes": FAILURE}
# Of a route.
AFTER_RETRIES = "after_retries"
MOST_LISTED = 12
"""Keys that an error names; of a table with more it says where they are."""

INCOMING = Section("incoming.X", _INCOMING | _SERVERS, CONSUMER, clients=_CLIENTS, free=_FREE)
OUTGOING = Section("outgoing.X", _OUTGOING | _SERVERS, PRODUCER)
MEMORY = Section("memory.X", keys_of(MemorySettings))
KAFKA = Section("kafka", _KAFKA | _SHARED, BOTH, clients=_CLIENTS, free=_FREE)
SPARK = Section("spark", keys_of(SparkSettings))
HTTP = Section("http", keys_of(HttpSettings))
SCHEMA_REGISTRY = Section("schema_registry", keys_of(SchemaRegistrySettings))
TRACING = Section("tracing", keys_of(TracingSettings))

CHANNEL_SECTIONS = {"incoming": INCOMING, "outgoing": OUTGOING, "memory": MEMORY}
PLAIN_SECTIONS = {
    section.title: section for section in (KAFKA, SPARK, HTTP, SCHEMA_REGISTRY, TRACING)
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a written key stands for."""

    # Ours, or aiokafka's; several for a property that says several things at once.
    names: tuple[str, ...]
    kind: Kind[Any]
    # Parsed value -> name -> value.
    values: Callable[[Any], Mapping[str, Any]]
    # The value is the path of a file that holds the real one.
    in_file: bool = False
    # The value is not a secret, even if its name looks like one.
    is_open: bool = False


class NoMeaning(ValueError):
    """The key is unknown, belongs elsewhere, or is not supported; the text says what to do
    instead.
    """

    def __init__(self, reason: str, meant: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        # The names that were probably meant, so that they are not reported as missing too.
        self.meant = meant


def meaning(section: Section, path: tuple[str, ...]) -> Meaning:
    """What the key at *path* (its parts inside the section, as written) stands for;
    :class:`NoMeaning` if nothing.
    """
    written = ".".join(path)
    name = _own_name(written)
    table, _, rest = written.partition(".")
    if (free := _own_name(table)) in section.free and rest:
        return _free(section, free, rest)
    if found := _known(section, name) or _in_file(section, name):
        return found
    if section.sides and (instead := refusal(_place(section, name)[1])):
        raise NoMeaning(f"aiokafka has no such property; {instead}")
    raise _misplaced(section, name) or _unknown(section, written)


def is_known(section: Section, name: str) -> bool:
    """Whether it is a key or a client property that stands in the section itself."""
    return _known(section, _own_name(name)) is not None or name in section.tables


def _own_name(written: str) -> str:
    name = written.replace("-", "_")
    return KAFKA_SPELLINGS.get(name, name)


def _place(section: Section, name: str) -> tuple[str, str, frozenset[Side]]:
    """The table (with a dot; empty for the section itself) that *name* stands in, its name there,
    whose properties.
    """
    table, _, rest = name.partition(".")
    if rest and table in section.clients:
        return f"{table}.", _own_name(rest), section.clients[table]
    return "", name, section.sides


def _known(section: Section, name: str) -> Meaning | None:
    table, name, sides = _place(section, name)
    if key := section.keys.get(table + name):
        return Meaning((key.name,), key.kind, lambda parsed: {key.name: parsed})
    if not table and form(name) == AUTO_COMMIT_INTERVAL.name and "commit_interval" in section.keys:
        # Its own name stays, too: what it says counts with enable_auto_commit only.
        both = ("commit_interval", AUTO_COMMIT_INTERVAL.name)
        return Meaning(
            both, AUTO_COMMIT_INTERVAL.kind, lambda parsed: dict.fromkeys(both, parsed / 1000)
        )
    prop = find(name)
    if prop is None or not prop.sides & sides:
        return None
    names = tuple(table + part for part in prop.names)
    return Meaning(
        names,
        prop.kind,
        lambda parsed: {table + part: one for part, one in prop.values(parsed).items()},
    )


def _in_file(section: Section, name: str) -> Meaning | None:
    found = (
        _known(section, _own_name(name[: -len("_file")]))
        if name.endswith(("_file", ".file"))
        else None
    )
    return replace(found, in_file=True) if found is not None and found.kind.free else None


def _free(section: Section, table: str, written: str) -> Meaning:
    """A key of the user's own: the name of an exception, spelled as in Python, or what a table of
    that name says.
    """
    # No class is called "strategy": a dotted name of one may be written as tables inside of each
    # other.
    exception, _, last = written.rpartition(".")
    what = last.replace("-", "_").lower() if exception else ""
    if what not in ("strategy", AFTER_RETRIES):
        exception = written
    if not is_dotted(exception):
        raise NoMeaning(
            'expected the name of an exception as key: "ValueError", "package.module.SomeError"'
        )
    name = f"{table}.{exception}"
    first = f"{AFTER_RETRIES}.{exception}"
    if what == AFTER_RETRIES:
        return Meaning((first,), BOOLEAN, lambda parsed: {first: parsed}, is_open=True)
    if what == "strategy":
        return Meaning((name,), section.free[table], lambda parsed: {name: parsed}, is_open=True)
    return Meaning(
        (name, first),
        section.free[table],
        lambda parsed: {name: parsed, first: False},
        is_open=True,
    )


def _misplaced(section: Section, name: str) -> NoMeaning | None:
    """The error for a key that another section has."""
    table = name.split(".")[0]
    if name in section.tables:
        return NoMeaning(f"expected a table: [{section.title}.{name}]")
    if table in section.keys and table not in section.tables:
        return NoMeaning(f"expected {section.keys[table].kind.expects}, not a table", (table,))
    channels_first = (*CHANNEL_SECTIONS.values(), *PLAIN_SECTIONS.values())
    homes = [
        f"[{other.title}]"
        for other in channels_first
        if _known(other, name) or _in_file(other, name)
    ]
    return NoMeaning(f"does not belong here but in {' or '.join(homes)}") if homes else None


def _unknown(section: Section, written: str) -> NoMeaning:
    """The error for a key that nobody knows: the one probably meant, else those that are allowed or
    near to it.
    """
    table, name, sides = _place(section, written.replace("-", "_"))
    if table and (prop := find(name)):
        return NoMeaning(
            f"a property of {''.join(prop.sides)}s, and this is a table of {''.join(sides)} properties"
        )
    if theirs := _of_smallrye(section, written):
        return theirs
    inside = f"{written.partition('.')[0].replace('-', '_')}."
    if not table and any(key.startswith(inside) for key in section.keys):
        table = inside
        name = written[len(inside) :]
        sides = frozenset()
    name = name if table else written
    own = [
        key.removeprefix(table) for key in (*section.keys, *section.free) if key.startswith(table)
    ]
    properties = names_like(name) if sides else []
    if table:
        properties = [one for one in properties if (prop := find(one)) and prop.sides & sides]
    if near := did_you_mean(name, (*properties, *own)):
        shown = near if sides or not table else table + near
        return NoMeaning(f"unknown key; did you mean {shown!r}?", _names_of(section, table + near))
    if near := did_you_mean(written.partition(".")[0], section.free):
        return NoMeaning(f"unknown key; did you mean {near!r}?", _names_of(section, near))
    if len(own) > MOST_LISTED:
        some = (
            "; the nearest: " + ", ".join(map(repr, close))
            if (close := get_close_matches(name, own))
            else ""
        )
        where = f"docs/configuration.md has those of [{section.title}], and `reactive-kafka schema` prints them"
        return NoMeaning(f"unknown key{some}; {where}")
    clients = f", and the client properties of a {''.join(sides)}" if sides else ""
    return NoMeaning(
        f"unknown key; allowed are {', '.join(own if sides else [table + key for key in own])}{clients}"
    )


def _of_smallrye(section: Section, written: str) -> NoMeaning | None:
    """The error for an attribute of SmallRye's, which only a ``.properties`` file may have; None:
    it is none.
    """
    side = section.title.partition(".")[0]
    found = attribute(side, written) or attribute(side, written.replace("_", "-"))
    if found is None:
        return None
    if found.is_mapped:
        return NoMeaning(
            f"unknown key; did you mean {found.ours!r}?", _names_of(section, found.ours)
        )
    return NoMeaning(f"unknown key: it is SmallRye's; here: {found.instead or found.ours}")


def _names_of(section: Section, name: str) -> tuple[str, ...]:
    try:
        return meaning(section, (name,)).names
    except NoMeaning:
        return ()


def unknown_section(name: str) -> str:
    """What is wrong with a table (or a loose key) at the top that is none of ours."""
    if near := did_you_mean(name, (*PLAIN_SECTIONS, *CHANNEL_SECTIONS)):
        return f"unknown section; did you mean [{near}]?"
    if _known(KAFKA, _own_name(name)):
        return "does not belong at the top but in [kafka]"
    sections = (*PLAIN_SECTIONS.values(), *CHANNEL_SECTIONS.values())
    return f"unknown section; allowed are {', '.join(f'[{section.title}]' for section in sections)}"
