"""Turns the channels of an ``application.properties`` into a layer of the configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reactive_kafka.config.client_properties import PROPERTIES, find, names_like, refusal
from reactive_kafka.config.kinds import did_you_mean, unknown_channel
from reactive_kafka.config.layers import Layer, Origin
from reactive_kafka.config.microprofile.converters import boolean, scalar, servers
from reactive_kafka.config.microprofile.notes import Notes
from reactive_kafka.config.microprofile.property_values import Given, PropertySource, Values, alpha
from reactive_kafka.config.microprofile.smallrye_attributes import NATIVE_TABLES, attribute
from reactive_kafka.config.microprofile.smallrye_channel import (
    CONNECTOR,
    CONNECTORS,
    EMPTY_MEANS_SOMETHING,
    SHARED,
    SHARED_IN_OURS,
    SmallRyeChannel,
)
from reactive_kafka.config.microprofile.smallrye_incoming import SmallRyeIncoming
from reactive_kafka.config.microprofile.smallrye_outgoing import SmallRyeOutgoing
from reactive_kafka.config.scan import KeyPath

MESSAGING = "mp.messaging."
SIDES = {"incoming": SmallRyeIncoming, "outgoing": SmallRyeOutgoing}
_CHANNEL = re.compile(r'(?:"([^"]+)"|([^."]+))\.(.+)', re.DOTALL)
_COPY = re.compile(r"(.+)\$[0-9]+")
_IN_KAFKA = (*SHARED_IN_OURS, "acks", "client.id")
_NOT_SHARED = ("kafka.ui.",)
_HEALTH = ("quarkus.messaging.health.enabled", "quarkus.reactive-messaging.health.enabled")
_FILES_ELSEWHERE = "name each further file with a --config of its own; this does not find them"
_PARENT_PROFILE = "write both profiles, the stronger one last: REACTIVE_KAFKA_PROFILE=parent,child"
_ELSEWHERE = {
    "smallrye.config.locations": _FILES_ELSEWHERE,
    "quarkus.config.locations": _FILES_ELSEWHERE,
    "smallrye.config.profile.parent": _PARENT_PROFILE,
    "quarkus.config.profile.parent": _PARENT_PROFILE,
}
"""Properties with which Quarkus would read more properties -> what to do here."""
_EMITTERS = "emitters wait at max_in_flight of their channel: max-inflight-messages here"
_WITHOUT_EFFECT = {
    "smallrye.messaging.worker.": (
        "worker pools are not read: concurrency says how many handlers run at once"
    ),
    "smallrye.messaging.emitter.": _EMITTERS,
    "mp.messaging.emitter.": _EMITTERS,
    "smallrye.messaging.observation.": (
        "all channels have metrics in any case, and tracing-enabled is read"
    ),
    "smallrye.messaging.": "a switch of SmallRye's without a counterpart here: it has no effect",
}
"""Prefixes of properties about messaging that belong to no channel -> what to use instead."""


@dataclass(frozen=True, slots=True)
class QuarkusConfig:
    """What the properties mean."""

    layer: Layer
    # Path of a leaf -> the property that it comes from. Defaults of SmallRye's are missing.
    given: Mapping[KeyPath, Given]
    # A text that is part of each value that is new at each start.
    new_id: str


def meant(
    sources: Sequence[PropertySource],
    environ: Mapping[str, str],
    profiles: Sequence[str],
    new_id: str,
) -> QuarkusConfig:
    """Read all channels.

    Args:
        sources: The files.
        environ: The environment.
        profiles: The active profiles, the strongest last.
        new_id: A text that no other start has, for groups without a name.
    """
    values = Values(sources, environ, profiles, new_id)
    notes = Notes()
    _ApplicationReader(values, notes).read(sources[0].name)
    paths = {leaf.path[:length] for leaf in notes.leaves for length in (1, 2)}
    first_lines = {path: min(_lines(notes, path), default=None) for path in paths}
    layer = Layer(
        tuple(notes.leaves),
        line_of=first_lines.get,
        is_expanded=True,
        problems=tuple(notes.problems),
        warnings=tuple(notes.warnings),
    )
    return QuarkusConfig(layer, notes.given, new_id)


def _lines(notes: Notes, path: KeyPath) -> Iterator[int]:
    yield from (
        leaf.origin.line
        for leaf in notes.leaves
        if leaf.path[: len(path)] == path and leaf.origin.line
    )


def _is_known(side: str, name: str) -> bool:
    """Return whether SmallRye or Kafka's client has an attribute of that name."""
    if attribute(side, name) is not None:
        return True
    for prefix in NATIVE_TABLES:
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    return find(name) is not None or refusal(name) is not None


class _ApplicationReader:
    """Finds the channels, and the properties about messaging that belong to none of them."""

    def __init__(self, values: Values, notes: Notes) -> None:
        self._values = values
        self._notes = notes

    def read(self, file: str) -> None:
        """Note what all properties mean; *file* is named in errors about variables."""
        self._read_shared()
        channels: dict[str, dict[str, Given]] = {side: self._channels(side) for side in SIDES}
        connectors = set()
        for side in SIDES:
            for name in channels[side]:
                connector = self._connector(side, name)
                if connector is not None:
                    connectors.add(connector.text)
        if connectors:
            channels = {
                side: {
                    name: first
                    for name, first in named.items()
                    if self._is_channel(side, name, first)
                }
                for side, named in channels.items()
            }
        for side, channel_class in SIDES.items():
            for name, first in channels[side].items():
                origin = Origin(first.origin.source, first.origin.line)
                channel = channel_class(self._values, name, self._notes, origin)
                if self._is_read(channel, first, channels[side], connectors - {CONNECTOR}):
                    channel.read()
        self._read_health(channels)
        self._note_rest()
        for variable in self._values.unread(alpha(MESSAGING)):
            known = {name for names in channels.values() for name in names}
            why = f"it names no attribute of a channel in {file}{unknown_channel('', known)}"
            self._notes.problems.append((Origin(f"environment variable {variable}"), variable, why))

    def _channels(self, side: str) -> dict[str, Given]:
        """Return channel -> its first property, for one side."""
        prefix = f"{MESSAGING}{side}."
        found: dict[str, Given] = {}
        for name in self._values.names(prefix):
            given = self._values.find(name)
            if given is None:
                # An empty value takes the property away.
                continue
            match = _CHANNEL.fullmatch(name.removeprefix(prefix))
            if match is not None:
                found.setdefault(match[1] or match[2], given)
            elif not self._values.is_referenced(name):
                # Otherwise it is a variable of the application's own.
                self._notes.wrong(
                    given,
                    f'expected {prefix}<channel>.<attribute>, a name with dots in quotes: "a.b"',
                )
        return found

    def _connector(self, side: str, name: str) -> Given | None:
        """Return the property that names the connector of a channel; None without one."""
        for spelling in (f'"{name}"', name):
            for key in ("connector", "type"):
                given = self._values.find(f"{MESSAGING}{side}.{spelling}.{key}")
                if given is not None:
                    return given
        return None

    def _is_channel(self, side: str, name: str, first: Given) -> bool:
        """Return whether a name is that of a channel, in a file in which channels have connectors.

        Otherwise its properties are only variables of the application, for expressions.
        """
        if self._connector(side, name) is not None:
            return True
        attributes = {
            prop: prop.removeprefix(start)
            for start in (f'{MESSAGING}{side}."{name}".', f"{MESSAGING}{side}.{name}.")
            for prop in self._values.names(start)
            if self._values.find(prop) is not None
        }
        known = {prop for prop, own_name in attributes.items() if _is_known(side, own_name)}
        unreferenced = {prop for prop in attributes if not self._values.is_referenced(prop)}
        if known & unreferenced:
            return True
        if known or unreferenced:
            why = f"{name!r} has no connector, so its properties are taken for variables"
            self._notes.warn(first, why, is_own=True)
        return False

    def _is_read(
        self,
        channel: SmallRyeChannel,
        first: Given,
        same_side: Mapping[str, Given],
        other_connectors: set[str],
    ) -> bool:
        """Return whether to read a channel; note why not."""
        connector = self._connector(channel.side, channel.name)
        if not channel.parsed("enabled", boolean, True):
            given = channel.find("enabled")
            # Without the property the channel is enabled.
            assert given is not None  # noqa: S101
            self._notes.warn(given, "the channel is left out, so a handler of it has no channel")
            return False
        if connector is not None and connector.text != CONNECTOR:
            self._notes.wrong(
                connector, f"not supported: expected {CONNECTOR}; only Kafka's channels are read"
            )
            return False
        if connector is None and other_connectors:
            self._notes.wrong(
                first,
                f"connector is missing: set connector={CONNECTOR}; with several connectors "
                f"({', '.join(sorted(other_connectors))}) it is not found by itself",
            )
            return False
        copy = _COPY.fullmatch(channel.name)
        if copy is not None and copy[1] in same_side:
            self._notes.wrong(
                first, f"not supported: leave it out; the consumers of {copy[1]!r} are all alike"
            )
            return False
        return True

    def _read_shared(self) -> None:
        """Read ``kafka.*``, the client properties of all channels.

        Attributes of SmallRye's among them are read channel by channel.
        """
        in_files = [
            name.removeprefix(SHARED)
            for name in self._values.names(SHARED)
            if not name.startswith(_NOT_SHARED)
        ]
        known = (*(prop.kafka for prop in PROPERTIES), *SHARED_IN_OURS)
        in_variables = [name for name in known if self._values.is_variable(SHARED + name)]
        for name in dict.fromkeys((*in_files, *in_variables)):
            if name in EMPTY_MEANS_SOMETHING:
                given = self._values.find_even_empty(SHARED + name)
            else:
                given = self._values.find(SHARED + name)
            is_attribute = any(attribute(side, name) for side in SIDES)
            if given is not None and (name in _IN_KAFKA or not is_attribute):
                self._read_shared_property(name, given)

    def _read_shared_property(self, name: str, given: Given) -> None:
        if name in SHARED_IN_OURS:
            self._notes.set(("kafka", name), servers(given.text), given)
            self._notes.warn_of_protocols(given, self._values.find(f"{SHARED}security.protocol"))
            return
        if find(name) or refusal(name):
            self._notes.set(("kafka", name), scalar(given.text), given)
            return
        if self._values.is_referenced(SHARED + name):
            # A variable of the application's own.
            return
        near = did_you_mean(name, [*SHARED_IN_OURS, *names_like("session.timeout.ms")])
        if near is not None:
            why = f"no property of Kafka's clients; did you mean {near!r}?"
            self._notes.wrong(given, why, is_open=False)
        else:
            why = "no property of Kafka's clients: it has no effect, as with SmallRye"
            self._notes.warn(given, why, is_own=True)

    def _read_health(self, channels: Mapping[str, Mapping[str, Given]]) -> None:
        """Apply Quarkus' switch for the health of all channels."""
        given = self._values.find(_HEALTH[0]) or self._values.find(_HEALTH[1])
        if given is None:
            return
        try:
            if boolean(given.text):
                return
        except ValueError as error:
            self._notes.wrong(given, str(error))
            return
        with_leaves = {leaf.path[:2] for leaf in self._notes.leaves}
        for side, names in channels.items():
            for name in names:
                if (side, name) in with_leaves:
                    # The switch wins over the health-enabled of a channel.
                    path = (side, name, "health_enabled")
                    self._notes.leaves = [leaf for leaf in self._notes.leaves if leaf.path != path]
                    self._notes.set(path, False, given)

    def _note_rest(self) -> None:
        """Note properties about messaging that belong to no channel."""
        for name, instead in _ELSEWHERE.items():
            given = self._values.find(name)
            if given is not None:
                self._notes.wrong(given, f"not supported: {instead}")
        of_channels = (*(f"{MESSAGING}{side}." for side in SIDES), *CONNECTORS)
        for name in self._values.names(""):
            instead = next(
                (why for start, why in _WITHOUT_EFFECT.items() if name.startswith(start)), ""
            )
            if not (instead or name.startswith(MESSAGING)):
                continue
            # Properties of channels are looked up, too: a variable that overrides one of them is
            # not unknown then.
            given = self._values.find(name)
            if given is None or name.startswith(of_channels):
                continue
            if self._values.is_referenced(name):
                # A variable of the application's own.
                continue
            if instead:
                self._notes.warn(given, instead)
            else:
                self._note_unknown_kind(name, given)

    def _note_unknown_kind(self, name: str, given: Given) -> None:
        """Note a property under ``mp.messaging.`` that is no side's and no connector's of ours."""
        if name.startswith(f"{MESSAGING}connector."):
            why = f"has no effect: only {CONNECTOR} is a connector here"
            self._notes.warn(given, why, is_own=True)
            return
        kind = name.removeprefix(MESSAGING).partition(".")[0]
        near = did_you_mean(kind, (*SIDES, "connector"))
        if near is not None:
            why = f"expected mp.messaging.incoming, outgoing or connector; did you mean {near!r}?"
            self._notes.wrong(given, why, is_open=False)
        else:
            why = "has no effect: expected mp.messaging.incoming, outgoing or connector"
            self._notes.warn(given, why, is_own=True)
