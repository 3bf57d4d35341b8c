"""All channels of an ``application.properties`` as a layer of the configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reactive_kafka.config.client_properties import PROPERTIES, find, names_like, refusal
from reactive_kafka.config.kinds import did_you_mean, unknown_channel
from reactive_kafka.config.layers import Layer, Origin
from reactive_kafka.config.microprofile.attributes import NATIVE_TABLES, attribute
from reactive_kafka.config.microprofile.converters import boolean, scalar, servers
from reactive_kafka.config.microprofile.notes import Notes
from reactive_kafka.config.microprofile.property_values import Given, PropertySource, Values, alpha
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
_ELSEWHERE = {
    "smallrye.config.locations": "further files are not found by it; name each with a --config of its own",
    "quarkus.config.locations": "further files are not found by it; name each with a --config of its own",
    "smallrye.config.profile.parent": "write both profiles, the stronger one last: REACTIVE_KAFKA_PROFILE=parent,child",
    "quarkus.config.profile.parent": "write both profiles, the stronger one last: REACTIVE_KAFKA_PROFILE=parent,child",
}
"""Properties that would bring others in -> what to do here."""
_IN_VAIN = {
    "smallrye.messaging.worker.": "worker pools are not read: concurrency says how many handlers run at once",
    "smallrye.messaging.emitter.": "emitters wait at max_in_flight of their channel: max-inflight-messages here",
    "mp.messaging.emitter.": "emitters wait at max_in_flight of their channel: max-inflight-messages here",
    "smallrye.messaging.observation.": "metrics of all channels are there in any case, and tracing-enabled is read",
    "smallrye.messaging.": "SmallRye's own switch, which has no counterpart here: it has no effect",
}
"""Beginnings of properties about messaging that no channel has -> what there is instead."""


@dataclass(frozen=True, slots=True)
class QuarkusConfig:
    """What the properties mean: a layer, and for each path of it the property that says so (None: a
    default).
    """

    layer: Layer
    given: Mapping[KeyPath, Given]
    # Part of each value that is another one at each start.
    new_id: str


def meant(
    sources: Sequence[PropertySource],
    environ: Mapping[str, str],
    profiles: Sequence[str],
    new_id: str,
) -> QuarkusConfig:
    """Read all channels. *new_id* is a text that no other start has, for groups without a name."""
    values = Values(sources, environ, profiles, new_id)
    notes = Notes()
    _Application(values, notes).read(sources[0].name)
    paths = {leaf.path[:length] for leaf in notes.leaves for length in (1, 2)}
    first = {path: min(_lines(notes, path), default=None) for path in paths}
    layer = Layer(
        tuple(notes.leaves),
        line_of=first.get,
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
    """Whether SmallRye or Kafka's client has an attribute of that name."""
    inside = next((name.removeprefix(one) for one in NATIVE_TABLES if name.startswith(one)), name)
    return (
        attribute(side, name) is not None or find(inside) is not None or refusal(inside) is not None
    )


class _Application:
    """Finds the channels, and what is about none of them."""

    def __init__(self, values: Values, notes: Notes) -> None:
        self._values = values
        self._notes = notes

    def read(self, file: str) -> None:
        """Note everything."""
        self._shared()
        channels: dict[str, dict[str, Given]] = {side: self._channels(side) for side in SIDES}
        connectors = {
            given.text
            for side in SIDES
            for name in channels[side]
            if (given := self._connector(side, name)) is not None
        }
        others = connectors - {CONNECTOR}
        if connectors:
            channels = {
                side: {
                    name: first
                    for name, first in named.items()
                    if self._is_channel(side, name, first)
                }
                for side, named in channels.items()
            }
        for side, kind in SIDES.items():
            for name, first in channels[side].items():
                channel = kind(
                    self._values, name, self._notes, Origin(first.origin.source, first.origin.line)
                )
                if self._is_ours(channel, first, channels[side], others):
                    channel.read()
        self._health(channels)
        self._rest()
        for variable in self._values.unread(alpha(MESSAGING)):
            known = {name for names in channels.values() for name in names}
            why = f"it names no attribute of a channel in {file}{unknown_channel('', known)}"
            self._notes.problems.append((Origin(f"environment variable {variable}"), variable, why))

    def _channels(self, side: str) -> dict[str, Given]:
        """Name -> the first property of each channel of a side."""
        prefix = f"{MESSAGING}{side}."
        found: dict[str, Given] = {}
        for name in self._values.names(prefix):
            given = self._values.find(name)
            if given is None:
                # Set to nothing.
                continue
            match = _CHANNEL.fullmatch(name.removeprefix(prefix))
            if match is None and self._values.is_referenced(name):
                # A variable of the application's own.
                continue
            if match is None:
                self._notes.wrong(
                    given,
                    f'expected {prefix}<channel>.<attribute>, a name with dots in quotes: "a.b"',
                )
            else:
                found.setdefault(match[1] or match[2], given)
        return found

    def _connector(self, side: str, name: str) -> Given | None:
        prefix = f"{MESSAGING}{side}."
        keys = (
            f"{prefix}{one}.{key}" for one in (f'"{name}"', name) for key in ("connector", "type")
        )
        return next((given for key in keys if (given := self._values.find(key)) is not None), None)

    def _is_channel(self, side: str, name: str, first: Given) -> bool:
        """False for a name that only holds variables of the application, where other channels have
        connectors.
        """
        if self._connector(side, name) is not None:
            return True
        starts = (f'{MESSAGING}{side}."{name}".', f"{MESSAGING}{side}.{name}.")
        said = {
            prop: prop.removeprefix(start)
            for start in starts
            for prop in self._values.names(start)
            if self._values.find(prop) is not None
        }
        known = {prop for prop, own in said.items() if _is_known(side, own)}
        unreferenced = {prop for prop in said if not self._values.is_referenced(prop)}
        if known & unreferenced:
            return True
        if known or unreferenced:
            why = f"{name!r} has no connector, and its properties are taken for variables"
            self._notes.warn(first, why, is_own=True)
        return False

    def _is_ours(
        self, channel: SmallRyeChannel, first: Given, known: Mapping[str, Given], others: set[str]
    ) -> bool:
        """Whether a channel is read; a problem if it is nobody's, or another connector's."""
        name = channel.name
        connector = self._connector(channel.side, channel.name)
        if not channel.said("enabled", boolean, True):
            given = channel.find("enabled")
            # Else it would be true.
            assert given is not None  # noqa: S101
            self._notes.warn(given, "the channel is left out, and a handler of it has no channel")
        elif connector is not None and connector.text != CONNECTOR:
            self._notes.wrong(
                connector, f"not supported: expected {CONNECTOR}; only Kafka's channels are read"
            )
        elif connector is None and others:
            why = f"connector is missing: with several connectors ({', '.join(sorted(others))}) none is found by itself"
            self._notes.wrong(first, f"{why}; set connector={CONNECTOR}")
        elif (copy := _COPY.fullmatch(name)) and copy[1] in known:
            self._notes.wrong(
                first, f"not supported: the consumers of {copy[1]!r} are all alike; leave it out"
            )
        else:
            return True
        return False

    def _shared(self) -> None:
        """``kafka.*``: the client's properties of all channels. Attributes among them are read
        channel by channel.
        """
        named = [
            name.removeprefix(SHARED)
            for name in self._values.names(SHARED)
            if not name.startswith(_NOT_SHARED)
        ]
        spelled = (*(prop.kafka for prop in PROPERTIES), *SHARED_IN_OURS)
        variables = [name for name in spelled if self._values.is_variable(SHARED + name)]
        for name in dict.fromkeys((*named, *variables)):
            look = (
                self._values.find_even_empty if name in EMPTY_MEANS_SOMETHING else self._values.find
            )
            given = look(SHARED + name)
            if given is None or (
                name not in _IN_KAFKA and any(attribute(side, name) for side in SIDES)
            ):
                continue
            if name in SHARED_IN_OURS:
                self._notes.set(("kafka", name), servers(given.text), given)
                self._notes.warn_of_protocols(
                    given, self._values.find(f"{SHARED}security.protocol")
                )
            elif find(name) or refusal(name):
                self._notes.set(("kafka", name), scalar(given.text), given)
            elif self._values.is_referenced(SHARED + name):
                # A variable of the application's own.
                continue
            elif near := did_you_mean(name, [*SHARED_IN_OURS, *names_like("session.timeout.ms")]):
                why = f"no property of Kafka's clients; did you mean {near!r}?"
                self._notes.wrong(given, why, is_open=False)
            else:
                why = "no property of Kafka's clients: it has no effect, as with SmallRye"
                self._notes.warn(given, why, is_own=True)

    def _health(self, channels: Mapping[str, Mapping[str, Given]]) -> None:
        """Quarkus' own switch for the health of all channels."""
        given = next(
            (one for name in _HEALTH if (one := self._values.find(name)) is not None), None
        )
        if given is None:
            return
        try:
            if boolean(given.text):
                return
        except ValueError as error:
            self._notes.wrong(given, str(error))
            return
        there = {leaf.path[:2] for leaf in self._notes.leaves}
        for side, names in channels.items():
            for path in ((side, name) for name in names if (side, name) in there):
                self._notes.leaves = [
                    leaf for leaf in self._notes.leaves if leaf.path != (*path, "health_enabled")
                ]
                self._notes.set((*path, "health_enabled"), False, given)

    def _rest(self) -> None:
        """What is about messaging, and about no channel that is read."""
        for name, instead in _ELSEWHERE.items():
            if (given := self._values.find(name)) is not None:
                self._notes.wrong(given, f"not supported: {instead}")
        for name in self._values.names(""):
            vain = next((why for start, why in _IN_VAIN.items() if name.startswith(start)), None)
            given = self._values.find(name) if vain or name.startswith(MESSAGING) else None
            if given is None or name.startswith(
                (*(f"{MESSAGING}{side}." for side in SIDES), *CONNECTORS)
            ):
                continue
            if self._values.is_referenced(name):
                # A variable of the application's own.
                continue
            if vain:
                self._notes.warn(given, vain)
            elif name.startswith(f"{MESSAGING}connector."):
                self._notes.warn(
                    given, f"has no effect: only {CONNECTOR} is a connector here", is_own=True
                )
            elif near := did_you_mean(
                name.removeprefix(MESSAGING).partition(".")[0], (*SIDES, "connector")
            ):
                why = (
                    f"expected mp.messaging.incoming, outgoing or connector; did you mean {near!r}?"
                )
                self._notes.wrong(given, why, is_open=False)
            else:
                why = "has no effect: expected mp.messaging.incoming, outgoing or connector"
                self._notes.warn(given, why, is_own=True)
