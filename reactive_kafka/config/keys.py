"""The sections of the configuration, their keys, and what a key means that a user wrote. Pure.

A name with a dot is a key of a table inside the section: ``retry.backoff`` is ``backoff`` in
``[incoming.X.retry]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
from reactive_kafka.config.fields import Key, keys_of
from reactive_kafka.config.incoming_kinds import RATE, RATE_BY, is_dotted
from reactive_kafka.config.kinds import (
    BOOLEAN,
    HEADER_VALUES,
    SERVERS,
    TOPIC,
    TOPIC_CONFIG,
    Kind,
    did_you_mean,
)
from reactive_kafka.config.microprofile.smallrye_attributes import attribute
from reactive_kafka.config.settings import (
    FAILURE,
    HttpSettings,
    IncomingSettings,
    MemorySettings,
    OutgoingSettings,
    Settings,
    SparkSettings,
)
from reactive_kafka.config.tables import (
    LimitSettings,
    SchemaRegistrySettings,
    TopicSettings,
    TracingSettings,
)
from reactive_kafka.near_names import near_names

_KAFKA_NAMES = (
    "bootstrap.servers group.id auto.offset.reset enable.auto.commit transactional.id "
    "key.deserializer value.deserializer key.serializer value.serializer"
)
KAFKA_SPELLINGS = {name: form(name) for name in _KAFKA_NAMES.split()} | {
    "compression": "compression_type"
}
"""Kafka's name -> our key with the same meaning."""


@dataclass(frozen=True, slots=True)
class Section:
    """The keys that one table takes."""

    # As users write the table: incoming.X.
    title: str
    keys: dict[str, Key]
    # The clients whose raw properties are allowed here.
    sides: frozenset[Side] = frozenset()
    # Table inside the section -> the clients whose raw properties it takes, besides its keys.
    clients: Mapping[str, frozenset[Side]] = field(default_factory=dict)
    # Table inside the section whose keys are names of the user's own -> the kind of their values.
    free: Mapping[str, Kind[str]] = field(default_factory=dict)
    # Table inside the section whose keys are names of Kafka's, any of them -> the kind of values.
    open: Mapping[str, Kind[str]] = field(default_factory=dict)
    # Table inside the section whose keys are names of headers, kept as written -> the kind of
    # values.
    headers: Mapping[str, Kind[Any]] = field(default_factory=dict)

    @property
    def tables(self) -> frozenset[str]:
        """The names of the tables inside the section."""
        with_keys = frozenset(name.partition(".")[0] for name in self.keys if "." in name)
        return with_keys | self.free.keys() | self.open.keys() | self.headers.keys()


BOOTSTRAP_SERVERS = replace(keys_of(Settings)["bootstrap_servers"], target="")
_LETTER_SERVERS = Key(
    "dead_letter_queue.bootstrap_servers",
    SERVERS,
    None,
    "The brokers that dead letters go to. Default: the channel's.",
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
    "Write all values as CloudEvents, or none. Default: those that are CloudEvents.",
)
_RATES = (
    Key("rate_limit.rate", RATE, None, "The most records of one value that start. Required."),
    Key(
        "rate_limit.by",
        RATE_BY,
        None,
        "What has the rate: each value of a header, each key, or each partition.",
    ),
)
_INCOMING = {
    "topic": Key("topic", TOPIC, None, "The topic to read. Default: the channel's name."),
    **keys_of(IncomingSettings),
    **{key.name: key for key in _RATES},
    _LETTER_SERVERS.name: _LETTER_SERVERS,
}
_SERVERS = {"bootstrap_servers": BOOTSTRAP_SERVERS}
_KAFKA = _SERVERS | {_INSECURE.name: _INSECURE}
# One value of these for all channels would be a mistake, so [kafka] does not take them.
_ONLY_IN_CHANNELS = (
    "topic",
    "topics",
    "pattern",
    "assign",
    "after",
    "enabled",
    "delayed_retry.topics",
    "schema.file",
)
_OUTGOING = {**keys_of(OutgoingSettings), _EVENTS.name: _EVENTS}
_EVENT_TABLE = tuple(name for name in _OUTGOING if name.startswith(f"{_EVENTS.name}."))
_SHARED = {
    name: key
    for name, key in (_OUTGOING | _INCOMING).items()
    if name not in (*_ONLY_IN_CHANNELS, *_EVENT_TABLE)
}
_CLIENTS = {"dead_letter_queue": PRODUCER, "delayed_retry": CONSUMER}
_FREE = {"failure_routes": FAILURE}
_HEADERS = {"filter_headers": HEADER_VALUES}
# The key of a failure route that lets in-place retries go first.
AFTER_RETRIES = "after_retries"
_ROUTE_KEYS = ("strategy", AFTER_RETRIES)
MOST_LISTED = 12
"""The most keys that an error lists. For a section with more it names the page that has them."""

INCOMING = Section(
    "incoming.X",
    _INCOMING | _SERVERS,
    CONSUMER,
    clients=_CLIENTS,
    free=_FREE,
    headers=_HEADERS,
)
OUTGOING = Section("outgoing.X", _OUTGOING | _SERVERS, PRODUCER)
MEMORY = Section("memory.X", keys_of(MemorySettings))
KAFKA = Section("kafka", _KAFKA | _SHARED, BOTH, clients=_CLIENTS, free=_FREE, headers=_HEADERS)
SPARK = Section("spark", keys_of(SparkSettings))
HTTP = Section("http", keys_of(HttpSettings))
SCHEMA_REGISTRY = Section("schema_registry", keys_of(SchemaRegistrySettings))
TRACING = Section("tracing", keys_of(TracingSettings))
LIMITS = Section("limits.X", keys_of(LimitSettings))
TOPICS = Section("topics.X", keys_of(TopicSettings), open={"config": TOPIC_CONFIG})

CHANNEL_SECTIONS = {"incoming": INCOMING, "outgoing": OUTGOING, "memory": MEMORY}
# Sections of which there are several, each with a name.
NAMED_SECTIONS = {**CHANNEL_SECTIONS, "limits": LIMITS, "topics": TOPICS}
PLAIN_SECTIONS = {
    section.title: section for section in (KAFKA, SPARK, HTTP, SCHEMA_REGISTRY, TRACING)
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a key means that a user wrote."""

    # Our key, or aiokafka's keyword. Several for a property that sets several at once.
    names: tuple[str, ...]
    kind: Kind[Any]
    # Turns the parsed value into name -> value.
    values: Callable[[Any], Mapping[str, Any]]
    # The written value is the path of a file that holds the real one.
    in_file: bool = False
    # The value is not a secret, even if its name looks like one.
    is_open: bool = False


class NoMeaning(ValueError):
    """The key is unknown, belongs elsewhere, or is not supported.

    The text says what to do instead. ``meant`` has the names that were probably meant; they must
    not be reported as missing, too.
    """

    def __init__(self, reason: str, meant: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.meant = meant


def meaning(section: Section, path: tuple[str, ...]) -> Meaning:
    """Return what the key at *path* means.

    Args:
        section: The section that the key is written in.
        path: The parts of the key inside the section, as written.

    Raises:
        NoMeaning: The key means nothing here.
    """
    written = ".".join(path)
    name = _own_name(written)
    table, _, rest = written.partition(".")
    free_table = _own_name(table)
    if free_table in section.free and rest:
        return _route_meaning(section, free_table, rest)
    if free_table in section.open and rest:
        return _open_meaning(section, free_table, rest)
    if free_table in section.headers and rest:
        header = f"{free_table}.{rest}"
        kind = section.headers[free_table]
        return Meaning((header,), kind, lambda parsed: {header: parsed}, is_open=True)
    found = _known(section, name) or _in_file(section, name)
    if found is not None:
        return found
    if section.sides:
        _, property_name, _ = _place(section, name)
        instead = refusal(property_name)
        if instead is not None:
            raise NoMeaning(f"aiokafka has no such property; {instead}")
    raise _misplaced(section, name) or _unknown(section, written)


def is_known(section: Section, name: str) -> bool:
    """Return whether *name* is a key, a client property or a table of the section itself."""
    return _known(section, _own_name(name)) is not None or name in section.tables


def _own_name(written: str) -> str:
    """Return our name for a key that may be written with hyphens, or as in Kafka."""
    name = written.replace("-", "_")
    return KAFKA_SPELLINGS.get(name, name)


def _place(section: Section, name: str) -> tuple[str, str, frozenset[Side]]:
    """Split *name* into its table and its name there.

    Returns:
        The table with a dot, or an empty string for the section itself; the name inside it; the
        clients whose raw properties are allowed there.
    """
    table, _, rest = name.partition(".")
    if rest and table in section.clients:
        return f"{table}.", _own_name(rest), section.clients[table]
    return "", name, section.sides


def _known(section: Section, name: str) -> Meaning | None:
    """Return the meaning of a key or of a raw property; None if it is neither."""
    table, name, sides = _place(section, name)
    key = section.keys.get(table + name)
    if key is not None:
        return Meaning((key.name,), key.kind, lambda parsed: {key.name: parsed})
    if not table and form(name) == AUTO_COMMIT_INTERVAL.name and "commit_interval" in section.keys:
        # Its own name is kept, too: a check needs to know that the interval was meant for
        # enable_auto_commit.
        both = ("commit_interval", AUTO_COMMIT_INTERVAL.name)
        return Meaning(
            both, AUTO_COMMIT_INTERVAL.kind, lambda parsed: dict.fromkeys(both, parsed / 1000)
        )
    prop = find(name)
    if prop is None or not prop.sides & sides:
        return None
    return Meaning(
        names=tuple(table + keyword for keyword in prop.names),
        kind=prop.kind,
        values=lambda parsed: {
            table + keyword: value for keyword, value in prop.values(parsed).items()
        },
    )


def _in_file(section: Section, name: str) -> Meaning | None:
    """Return the meaning of a key such as ``password_file``, whose value is in a file."""
    if not name.endswith(("_file", ".file")):
        return None
    found = _known(section, _own_name(name[: -len("_file")]))
    if found is None or not found.kind.free:
        return None
    return replace(found, in_file=True)


def _route_meaning(section: Section, table: str, written: str) -> Meaning:
    """Return the meaning of a failure route: the dotted name of an exception, or a table of it."""
    # A dotted name may be written as tables inside of each other, so the last part may be a key of
    # the route. No exception class is called "strategy" or "after_retries".
    exception, _, last = written.rpartition(".")
    key = last.replace("-", "_").lower() if exception else ""
    if key not in _ROUTE_KEYS:
        misspelt = _misspelt_route_key(table, exception, last)
        if misspelt is not None:
            raise misspelt
        exception = written
    if not is_dotted(exception):
        raise NoMeaning(
            'expected the name of an exception as key: "ValueError", "package.module.SomeError"'
        )
    strategy_name = f"{table}.{exception}"
    order_name = f"{AFTER_RETRIES}.{exception}"
    kind = section.free[table]
    if key == AFTER_RETRIES:
        return Meaning((order_name,), BOOLEAN, lambda parsed: {order_name: parsed}, is_open=True)
    if key == "strategy":
        return Meaning((strategy_name,), kind, lambda parsed: {strategy_name: parsed}, is_open=True)
    # A route without a table replaces a whole table of a lower layer.
    return Meaning(
        (strategy_name, order_name),
        kind,
        lambda parsed: {strategy_name: parsed, order_name: False},
        is_open=True,
    )


def _misspelt_route_key(table: str, exception: str, key: str) -> NoMeaning | None:
    """Return the error for a key in the table of a route; None: *key* may be an exception's name.

    Names of classes begin with a capital, and none of the exceptions that do not (such as
    ``socket.timeout``) is similar to a key, or is found in a class.
    """
    if not exception or not key[:1].islower():
        return None
    near = did_you_mean(key, _ROUTE_KEYS)
    allowed = f"allowed are {', '.join(_ROUTE_KEYS)}"
    if near is not None:
        name = f"{table if near == 'strategy' else AFTER_RETRIES}.{exception}"
        return NoMeaning(f"unknown key of a route; did you mean {near!r}? {allowed}", (name,))
    if exception.rpartition(".")[2][:1].isupper():
        return NoMeaning(f"unknown key of a route; {allowed}")
    return None


def _open_meaning(section: Section, table: str, written: str) -> Meaning:
    """Return the meaning of a key that is a name of Kafka's, such as ``retention.ms``.

    Kafka's names have dots only. A variable has underscores in their place.
    """
    name = f"{table}.{written.replace('_', '.').replace('-', '.')}"
    return Meaning((name,), section.open[table], lambda parsed: {name: parsed}, is_open=True)


def _misplaced(section: Section, name: str) -> NoMeaning | None:
    """Return the error for a key that belongs to another section, or is a table; else None."""
    table = name.split(".")[0]
    if name in section.tables:
        return NoMeaning(f"expected a table: [{section.title}.{name}]")
    if table in section.keys and table not in section.tables:
        return NoMeaning(f"expected {section.keys[table].kind.expects}, not a table", (table,))
    channels_first = (*NAMED_SECTIONS.values(), *PLAIN_SECTIONS.values())
    homes = [
        f"[{other.title}]"
        for other in channels_first
        if _known(other, name) or _in_file(other, name)
    ]
    return NoMeaning(f"does not belong here but in {' or '.join(homes)}") if homes else None


def _unknown(section: Section, written: str) -> NoMeaning:
    """Return the error for a key that no section has: the key probably meant, or all keys."""
    table, name, sides = _place(section, written.replace("-", "_"))
    prop = find(name)
    if table and prop is not None:
        of_property = "".join(prop.sides)
        return NoMeaning(
            f"a property of {of_property}s, and this is a table of {''.join(sides)} properties"
        )
    smallrye_error = _smallrye_attribute(section, written)
    if smallrye_error is not None:
        return smallrye_error
    first_part = f"{written.partition('.')[0].replace('-', '_')}."
    if not table and any(key.startswith(first_part) for key in section.keys):
        # A table without raw properties.
        table = first_part
        name = written[len(first_part) :]
        sides = frozenset()
    if not table:
        name = written
    own = [
        key.removeprefix(table)
        for key in (*section.keys, *section.free, *section.open, *section.headers)
        if key.startswith(table)
    ]
    near = did_you_mean(name, (*_properties_like(name, table, sides), *own))
    if near is not None:
        shown = near if sides or not table else table + near
        return NoMeaning(f"unknown key; did you mean {shown!r}?", _names_of(section, table + near))
    near = did_you_mean(written.partition(".")[0], (*section.free, *section.headers))
    if near is not None:
        return NoMeaning(f"unknown key; did you mean {near!r}?", _names_of(section, near))
    if len(own) > MOST_LISTED:
        close = near_names(name, own, most=3)
        nearest = f"; the nearest: {', '.join(map(repr, close))}" if close else ""
        return NoMeaning(
            f"unknown key{nearest}; docs/configuration.md has those of [{section.title}], and "
            "`reactive-kafka schema` prints them"
        )
    allowed = own if sides else [table + key for key in own]
    clients = f", and the client properties of a {''.join(sides)}" if sides else ""
    return NoMeaning(f"unknown key; allowed are {', '.join(allowed)}{clients}")


def _properties_like(name: str, table: str, sides: frozenset[Side]) -> list[str]:
    """Return the raw properties that a misspelt *name* may mean, for clients of *sides*."""
    if not sides:
        return []
    if not table:
        return names_like(name)
    allowed_here = []
    for candidate in names_like(name):
        prop = find(candidate)
        if prop is not None and prop.sides & sides:
            allowed_here.append(candidate)
    return allowed_here


def _smallrye_attribute(section: Section, written: str) -> NoMeaning | None:
    """Return the error for an attribute of SmallRye's (for ``.properties`` files); else None."""
    side = section.title.partition(".")[0]
    found = attribute(side, written) or attribute(side, written.replace("_", "-"))
    if found is None:
        return None
    if found.is_mapped:
        return NoMeaning(
            f"unknown key; did you mean {found.ours!r}?", _names_of(section, found.ours)
        )
    return NoMeaning(f"unknown key: SmallRye has it; here: {found.instead or found.ours}")


def _names_of(section: Section, name: str) -> tuple[str, ...]:
    try:
        return meaning(section, (name,)).names
    except NoMeaning:
        return ()


def unknown_section(name: str) -> str:
    """Return what is wrong with a table or a key at the top that is none of ours."""
    near = did_you_mean(name, (*PLAIN_SECTIONS, *NAMED_SECTIONS))
    if near is not None:
        return f"unknown section; did you mean [{near}]?"
    if _known(KAFKA, _own_name(name)):
        return "does not belong at the top but in [kafka]"
    sections = (*PLAIN_SECTIONS.values(), *NAMED_SECTIONS.values())
    return f"unknown section; allowed are {', '.join(f'[{section.title}]' for section in sections)}"
