"""One channel of SmallRye's as leaves of ours: its attributes, those of its connector, and the
shared ones. Pure.

Where SmallRye takes something else than we do when nothing is given, that is written out: a channel
runs as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from reactive_kafka.config.microprofile.attributes import (
    ATTRIBUTES,
    NATIVE_TABLES,
    Attribute,
    attribute,
    names_of,
)
from reactive_kafka.config.microprofile.notes import Notes
from reactive_kafka.config.microprofile.property_values import Given, Values

T = TypeVar("T")

SHARED = "kafka."
"""What Quarkus' ``default-kafka-broker`` is made of: properties for every channel."""
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
"""A side, or the prefix of a table -> the side whose client it has."""
EMPTY_MEANS_SOMETHING = ("ssl.endpoint.identification.algorithm",)
SHARED_IN_OURS = ("bootstrap.servers",)
"""Attributes that ``[kafka]`` has for all channels, as it has the client's properties."""


class SmallRyeChannel:
    """What the properties say of one channel; the rules of both sides."""

    side = ""

    def __init__(self, values: Values, name: str, notes: Notes, origin: Origin) -> None:
        self.values = values
        self.name = name
        self.notes = notes
        # Of its first property.
        self.origin = origin
        start = f"mp.messaging.{self.side}."
        self.own = (f'{start}"{name}".', f"{start}{name}.")

    def find(self, name: str, *, shared: bool = True) -> Given | None:
        """The value of an attribute: the channel's, its connector's, or, with *shared*, that of all
        channels.
        """
        found = attribute(self.side, name)
        spelled = (name, *found.also) if found is not None and found.name == name else (name,)
        lookup = self.values.find_even_empty if name in EMPTY_MEANS_SOMETHING else self.values.find
        for prefix in (*self.own, *CONNECTORS, *([SHARED] if shared else [])):
            for one in spelled:
                if (given := lookup(prefix + one)) is not None:
                    return given
        return None

    def set(self, key: str, value: Any, given: Given | None, problem: str | None = None) -> None:
        """One of the channel's keys: ``table.key`` for one in a table; by default where nothing was
        *given*.
        """
        table, _, last = key.partition(".")
        path = (self.side, self.name, *((table, last) if last else (table,)))
        if given is None:
            self.notes.default(path, value, self.origin)
        else:
            self.notes.set(path, value, given, problem)

    def said(self, name: str, convert: Callable[[str], T], default: T) -> T:
        """The value of an attribute with a rule of its own; *default*, with a problem, if it cannot
        be read.
        """
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
        """Set *key* to what an attribute says; False if it says nothing."""
        given = self.find(name, shared=shared)
        if given is None:
            return False
        try:
            self.set(key, convert(given.text), given)
        except ValueError as error:
            self.set(key, given.text, given, str(error))
        return True

    def read(self) -> None:
        """Note everything."""
        for one in ATTRIBUTES:
            if self.side not in one.sides:
                continue
            if one.is_refused:
                self._refuse(one)
            elif one.is_mapped and one.read is not None:
                self.convert(one.name, one.ours, one.read, shared=one.name not in SHARED_IN_OURS)
        for name in dict.fromkeys(self._others()):
            self._native(name)
        if (servers := self.find("bootstrap.servers", shared=False)) is not None:
            self.notes.warn_of_protocols(servers, self.find("security.protocol"))
        self.read_client_id()
        self.read_registry()
        self.read_rules()

    def read_rules(self) -> None:
        """Note what several attributes say together."""
        raise NotImplementedError

    def _refuse(self, one: Attribute) -> None:
        given = self.find(one.name)
        if given is None or one.read is None:
            return
        try:
            is_default = bool(one.default) and one.read(given.text) == one.read(one.default)
        except ValueError:
            is_default = False
        if not is_default:
            self.notes.wrong(given, f"not supported: {one.instead}")

    def _others(self) -> Iterator[str]:
        """The names under the channel and its connector that are no attributes: the client's own
        properties.
        """
        for prefix in (*self.own, *CONNECTORS):
            for name in self.values.names(prefix):
                if attribute(self.side, name := name.removeprefix(prefix)) is None:
                    yield name
            for table in ("", *NATIVE_TABLES):
                known = (f"{table}{prop.kafka}" for prop in PROPERTIES)
                yield from (name for name in known if self.values.is_variable(prefix + name))
            for name in names_of(OTHER_SIDE[self.side]):
                if attribute(self.side, name) is None and self.values.is_variable(prefix + name):
                    yield name

    def _native(self, name: str) -> None:
        """A property of Kafka's client, the channel's or that of one of its tables; or nobody's."""
        if name == "client.id" or attribute(self.side, name) is not None:
            return
        given = self.find(name, shared=False)
        if given is None:
            return
        prefix = next((one for one in NATIVE_TABLES if name.startswith(one)), "")
        inside = name.removeprefix(prefix)
        known = find(inside)
        if self._is_of_other_side(name, prefix, known):
            # A connector's attributes are those of both sides.
            if not given.name.startswith(CONNECTORS):
                self.notes.warn(given, self._why_ignored(prefix))
            return
        is_kafkas = known or refusal(inside) or inside == AUTO_COMMIT_INTERVAL.kafka
        if is_kafkas or (prefix and inside == "bootstrap.servers"):
            path = (self.side, self.name, *([NATIVE_TABLES[prefix]] if prefix else []), inside)
            value = (
                read.servers(given.text)
                if inside == "bootstrap.servers"
                else read.scalar(given.text)
            )
            self.notes.set(path, value, given)
            return
        if self.values.is_referenced(given.name):
            # A variable of the application's own.
            return
        near = did_you_mean(name, [*names_of(self.side), *names_like("session.timeout.ms")])
        hint = (
            f"; did you mean {near!r}?"
            if near
            else ": neither SmallRye nor Kafka's client has one of that name"
        )
        self.notes.wrong(given, f"unknown attribute{hint}", is_open=False)

    def _is_of_other_side(self, name: str, prefix: str, known: Property | None) -> bool:
        """Whether SmallRye, or the client, ignores it here, because it is about the other kind of
        channel or client.
        """
        if not prefix:
            if attribute(OTHER_SIDE[self.side], name) is not None:
                return True
        elif self.side == "outgoing":
            # Failures are those of incoming channels.
            return True
        side = _CLIENTS_LIKE[prefix or self.side]
        inside = name.removeprefix(prefix)
        if (
            prefix
            and attribute(side, inside) is None
            and attribute(OTHER_SIDE[side], inside) is not None
        ):
            return True
        return known is not None and _CLIENT[side] not in known.sides

    def _why_ignored(self, prefix: str) -> str:
        if prefix and self.side == "incoming":
            return f"has no effect: it is no property of a {_CLIENT[_CLIENTS_LIKE[prefix]]}, and SmallRye ignores it"
        return f"has no effect: it belongs to {OTHER_SIDE[self.side]} channels, and SmallRye ignores it here"

    def read_client_id(self) -> None:
        """``client.id``, as SmallRye makes it of the prefix and the name."""
        prefix = self.find("client-id-prefix")
        own = self.find("client.id")
        if prefix is None and own is not None:
            if not own.name.startswith(SHARED):
                self.set("client_id", own.text, own)
            return
        kind = "consumer" if self.side == "incoming" else "producer"
        start = prefix.text if prefix is not None else f"kafka-{kind}-"
        self.set("client_id", start + (own.text if own is not None else self.name), prefix)

    def read_registry(self) -> None:
        """The schema registry, which all channels share."""
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
            self.notes.wrong(source, "expected USER_INFO; other sources are Java's")
