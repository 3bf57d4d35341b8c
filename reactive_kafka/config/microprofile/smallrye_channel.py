"""Turns one channel of SmallRye's into leaves of ours. Pure.

A channel has its own attributes, those of its connector, and shared ones. Defaults of SmallRye's
that differ from ours are written out, so that a channel runs as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from reactive_kafka.config.client_properties import (
    AUTO_COMMIT_INTERVAL,
    PROPERTIES,
    Property,
    Side,
    find,
    names_like,
    refusal,
)
from reactive_kafka.config.kinds import did_you_mean
from reactive_kafka.config.layers import Origin
from reactive_kafka.config.microprofile import converters as read
from reactive_kafka.config.microprofile.notes import Notes
from reactive_kafka.config.microprofile.property_values import Given, Values
from reactive_kafka.config.microprofile.smallrye_attributes import (
    ATTRIBUTES,
    NATIVE_TABLES,
    Attribute,
    attribute,
    names_of,
)

T = TypeVar("T")

SHARED = "kafka."
"""The prefix of Quarkus' ``default-kafka-broker``: client properties of all channels."""
CONNECTOR = "smallrye-kafka"
CONNECTORS = tuple(f"mp.messaging.connector.{name}." for name in (CONNECTOR, "kafka"))
OTHER_SIDE = {"incoming": "outgoing", "outgoing": "incoming"}
_CLIENT: dict[str, Side] = {"incoming": "consumer", "outgoing": "producer"}
_CLIENTS_LIKE = {
    "incoming": "incoming",
    "outgoing": "outgoing",
    "dead-letter-queue.": "outgoing",
    "delayed-retry-topic.consumer.": "incoming",
}
"""A side, or the prefix of a table -> the side that has such a client."""
EMPTY_MEANS_SOMETHING = ("ssl.endpoint.identification.algorithm",)
SHARED_IN_OURS = ("bootstrap.servers",)
"""Attributes that ``[kafka]`` has for all channels, as it has the client's properties."""


class SmallRyeChannel:
    """What the properties say of one channel. Its subclasses have the rules of each side."""

    side = ""

    def __init__(self, values: Values, name: str, notes: Notes, origin: Origin) -> None:
        self.values = values
        self.name = name
        self.notes = notes
        # The origin of its first property.
        self.origin = origin
        start = f"mp.messaging.{self.side}."
        self.prefixes = (f'{start}"{name}".', f"{start}{name}.")

    def find(self, name: str, *, shared: bool = True) -> Given | None:
        """Return the value of an attribute; None without one.

        That is the channel's own value, else its connector's, else, if *shared*, that of all
        channels.
        """
        found = attribute(self.side, name)
        spellings = (name, *found.also) if found is not None and found.name == name else (name,)
        lookup = self.values.find_even_empty if name in EMPTY_MEANS_SOMETHING else self.values.find
        prefixes = (*self.prefixes, *CONNECTORS)
        if shared:
            prefixes += (SHARED,)
        for prefix in prefixes:
            for spelling in spellings:
                given = lookup(prefix + spelling)
                if given is not None:
                    return given
        return None

    def set(self, key: str, value: Any, given: Given | None, problem: str | None = None) -> None:
        """Set one of our keys, or ``table.key``. Without *given* it is a default of SmallRye's."""
        table, _, last = key.partition(".")
        path = (self.side, self.name, *((table, last) if last else (table,)))
        if given is None:
            self.notes.default(path, value, self.origin)
        else:
            self.notes.set(path, value, given, problem)

    def parsed(self, name: str, convert: Callable[[str], T], default: T) -> T:
        """Return the value of an attribute; *default* without one, or with a problem."""
        given = self.find(name)
        if given is None:
            return default
        try:
            return convert(given.text)
        except ValueError as error:
            self.notes.wrong(given, str(error))
            return default

    def convert(
        self, name: str, key: str, convert: Callable[[str], Any], *, shared: bool = True
    ) -> bool:
        """Set *key* to the value of an attribute; return False if it has none."""
        given = self.find(name, shared=shared)
        if given is None:
            return False
        try:
            self.set(key, convert(given.text), given)
        except ValueError as error:
            self.set(key, given.text, given, str(error))
        return True

    def read(self) -> None:
        """Note everything that the properties say of the channel."""
        for each in ATTRIBUTES:
            if self.side not in each.sides:
                continue
            if each.is_refused:
                self._refuse(each)
            elif each.is_mapped and each.read is not None:
                is_shared = each.name not in SHARED_IN_OURS
                self.convert(each.name, each.ours, each.read, shared=is_shared)
        for name in dict.fromkeys(self._other_names()):
            self._read_client_property(name)
        servers = self.find("bootstrap.servers", shared=False)
        if servers is not None:
            self.notes.warn_of_protocols(servers, self.find("security.protocol"))
        self.read_client_id()
        self.read_registry()
        self.read_rules()

    def read_rules(self) -> None:
        """Note what several attributes say together."""
        raise NotImplementedError

    def _refuse(self, refused: Attribute) -> None:
        """Note a problem for an attribute that is not supported, unless it has its default."""
        given = self.find(refused.name)
        if given is None or refused.read is None:
            return
        is_default = False
        if refused.default:
            with suppress(ValueError):
                is_default = refused.read(given.text) == refused.read(refused.default)
        if not is_default:
            self.notes.wrong(given, f"not supported: {refused.instead}")

    def _other_names(self) -> Iterator[str]:
        """Yield the names under the channel and its connector that are not SmallRye's attributes.

        Variables cannot be listed by their prefix, because they may belong to another channel. So
        they are looked up by all names that they may have.
        """
        for prefix in (*self.prefixes, *CONNECTORS):
            for full_name in self.values.names(prefix):
                name = full_name.removeprefix(prefix)
                if attribute(self.side, name) is None:
                    yield name
            for table in ("", *NATIVE_TABLES):
                known = (f"{table}{prop.kafka}" for prop in PROPERTIES)
                yield from (name for name in known if self.values.is_variable(prefix + name))
            for name in names_of(OTHER_SIDE[self.side]):
                if attribute(self.side, name) is None and self.values.is_variable(prefix + name):
                    yield name

    def _read_client_property(self, name: str) -> None:
        """Read a property of the channel's client, or of the client of one of its tables."""
        if name == "client.id" or attribute(self.side, name) is not None:
            return
        given = self.find(name, shared=False)
        if given is None:
            return
        prefix = next((each for each in NATIVE_TABLES if name.startswith(each)), "")
        inside = name.removeprefix(prefix)
        known = find(inside)
        if self._is_of_other_side(name, prefix, known):
            # A connector has the attributes of both sides.
            if not given.name.startswith(CONNECTORS):
                self.notes.warn(given, self._why_ignored(prefix))
            return
        is_kafkas = known or refusal(inside) or inside == AUTO_COMMIT_INTERVAL.kafka
        if is_kafkas or (prefix and inside == "bootstrap.servers"):
            path = (self.side, self.name, *([NATIVE_TABLES[prefix]] if prefix else []), inside)
            convert = read.servers if inside == "bootstrap.servers" else read.scalar
            self.notes.set(path, convert(given.text), given)
            return
        if self.values.is_referenced(given.name):
            # A variable of the application's own.
            return
        near = did_you_mean(name, [*names_of(self.side), *names_like("session.timeout.ms")])
        if near is not None:
            why = f"unknown attribute; did you mean {near!r}?"
        else:
            why = "unknown attribute: neither SmallRye nor Kafka's client has one of that name"
        self.notes.wrong(given, why, is_open=False)

    def _is_of_other_side(self, name: str, prefix: str, known: Property | None) -> bool:
        """Return whether an attribute is for the other side, so that SmallRye ignores it here."""
        if not prefix:
            if attribute(OTHER_SIDE[self.side], name) is not None:
                return True
        elif self.side == "outgoing":
            # Only incoming channels have failures.
            return True
        side = _CLIENTS_LIKE[prefix or self.side]
        if prefix:
            inside = name.removeprefix(prefix)
            if attribute(side, inside) is None and attribute(OTHER_SIDE[side], inside) is not None:
                return True
        return known is not None and _CLIENT[side] not in known.sides

    def _why_ignored(self, prefix: str) -> str:
        if prefix and self.side == "incoming":
            client = _CLIENT[_CLIENTS_LIKE[prefix]]
            return f"has no effect: it is no property of a {client}, and SmallRye ignores it"
        other = OTHER_SIDE[self.side]
        return f"has no effect: it belongs to {other} channels, and SmallRye ignores it here"

    def read_client_id(self) -> None:
        """Set ``client.id`` as SmallRye does: the prefix, then the id or the channel's name."""
        prefix = self.find("client-id-prefix")
        own = self.find("client.id")
        if prefix is None and own is not None:
            if not own.name.startswith(SHARED):
                self.set("client_id", own.text, own)
            return
        kind = "consumer" if self.side == "incoming" else "producer"
        start = prefix.text if prefix is not None else f"kafka-{kind}-"
        name = own.text if own is not None else self.name
        self.set("client_id", start + name, prefix)

    def read_registry(self) -> None:
        """Read the schema registry, which all channels share."""
        url = self.find("schema.registry.url")
        user = self.find("basic.auth.user.info")
        if url is not None:
            self.notes.set(("schema_registry", "url"), url.text, url)
        if user is not None:
            name, has_password, password = user.text.partition(":")
            if not has_password:
                self.notes.wrong(user, "expected user:password", is_open=False)
                return
            self.notes.set(("schema_registry", "username"), name, user)
            self.notes.set(("schema_registry", "password"), password, user)
        source = self.find("basic.auth.credentials.source")
        if source is not None and source.text != "USER_INFO":
            self.notes.wrong(source, "expected USER_INFO; other sources exist only in Java")
