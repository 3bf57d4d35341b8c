"""What an application was decorated with, checked at once, and matched with its settings. No
I/O.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from itertools import chain
from types import FrameType
from typing import TYPE_CHECKING, Any

from reactive_kafka.config.kinds import unknown_channel
from reactive_kafka.config.settings import Settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.dependencies.graph import Graph, needing
from reactive_kafka.handlers.exactly_once import (
    exactly_once,
    of_memory,
    reads_transactions,
    transactional_ids,
)
from reactive_kafka.handlers.exception_names import odd_names
from reactive_kafka.handlers.functions import annotated_return
from reactive_kafka.handlers.incoming import incoming_spec, memory_spec
from reactive_kafka.handlers.lost_outputs import may_lose_outputs
from reactive_kafka.handlers.matches import Incoming, Match, misfits, unused
from reactive_kafka.handlers.memory import MemoryUse, memory_problems
from reactive_kafka.handlers.middleware import Layers
from reactive_kafka.handlers.put_off import cannot_put_off
from reactive_kafka.handlers.signature import (
    HandlerDraft,
    Shape,
    draft_handler,
    local_names_at,
    name_and_place,
    name_of_handler,
    source_needs,
    why_no_source,
)
from reactive_kafka.handlers.spec import (
    LOADED,
    MADE,
    AppSpec,
    SourceSpec,
    check_named,
    check_ordering,
    outgoing_spec,
    tried,
)
from reactive_kafka.handlers.written import unwritable

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkDecoration

Function = Callable[..., Any]


@dataclass(slots=True)
class Registration:
    """One decorated function; ``draft`` is there from its first ``@app.incoming`` on."""

    function: Function
    draft: HandlerDraft | None = None
    incoming: list[Incoming] = field(default_factory=list)
    outgoing: list[str] = field(default_factory=list)
    # Of whatever its first @app.outgoing was declared on.
    layers: Layers | None = None

    def look(self, caller: FrameType) -> None:
        """Read the signature of a handler that is decorated in the scope *caller*."""
        if self.draft is None:
            self.draft = draft_handler(
                self.function, local_names=local_names_at(caller, self.function)
            )


@dataclass(slots=True)
class Found:
    """How the decorated functions fit the names of the channels, and what is wrong with them."""

    # Channel -> its functions.
    matches: dict[str, list[Match]] = field(default_factory=dict)
    sources: list[SourceSpec] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, match: Match, settings: Settings) -> None:
        """Note a function of a channel."""
        channel = match.decorated.channel
        if channel in settings.memory and match.spark is not None:
            why = "it has objects of this process, and Spark takes records of Kafka's"
            self.problems.append(f"{match.who}: [memory.{channel}] is a memory channel: {why}")
        elif channel not in settings.incoming and channel not in settings.memory:
            self.problems.append(unknown(match.who, "incoming", channel, settings))
        elif match.spark is not None and channel in self.matches:
            who = self.matches[channel][0].who
            self.problems.append(
                f"channel {channel!r} has two handlers: {who} and {match.who}, which is to be alone"
            )
        else:
            self.matches.setdefault(channel, []).append(match)


class Registry:
    """The decorated functions of one application."""

    def __init__(self, emitters: Collection[str] = ()) -> None:
        # The channels that have been asked for one, by the time this is looked at.
        self._emitters = emitters
        self.registrations: dict[Hashable, Registration] = {}
        self.spark: dict[str, SparkDecoration] = {}

    def of(self, function: Function) -> Registration:
        """The entry of a function, created by its first decorator."""
        return self.registrations.setdefault(_identity(function), Registration(function))

    def known(self, function: Function) -> Registration:
        """The entry of a function; an empty one where nothing has decorated it."""
        return self.registrations.get(_identity(function)) or Registration(function)

    def take(self, other: Registry) -> None:
        """Have the functions of another one, too. ConfigError: a channel has two Spark functions;
        nothing was taken.
        """
        if twice := other.spark.keys() & self.spark.keys():
            raise ConfigError(*(_two_on_spark(channel) for channel in sorted(twice)))
        self.spark |= other.spark
        for identity, theirs in other.registrations.items():
            entry = self.registrations.setdefault(identity, Registration(theirs.function))
            entry.draft = entry.draft or theirs.draft
            entry.incoming += theirs.incoming
            entry.outgoing += theirs.outgoing
            entry.layers = entry.layers or theirs.layers

    def add_spark(self, channel: str, decorated: SparkDecoration) -> None:
        """Note a channel's Spark function. ConfigError: it has one."""
        if channel in self.spark:
            raise ConfigError(_two_on_spark(channel))
        self.spark[channel] = decorated

    def misfits(self, settings: Settings) -> list[str]:
        """The problems of the functions and of what is named as ``module:function``; the settings
        may be incomplete.
        """
        problems = self._found(settings).problems
        for channel in settings.incoming.values():
            check_named(channel, problems, by=LOADED)
        return list(dict.fromkeys(problems))

    def spec(self, settings: Settings) -> AppSpec:
        """Fit the functions to the settings; a ConfigError has every problem."""
        found = self._found(settings)
        matches = found.matches
        problems = found.problems
        names = dict.fromkeys(
            [*(name for name in matches if name not in settings.memory), *settings.incoming]
        )
        incoming = {
            name: incoming_spec(matches.get(name, ()), settings.incoming[name], problems)
            for name in names
        }
        for channel in settings.incoming.values():
            check_named(channel, problems, by=MADE)
        outgoing = {name: outgoing_spec(one, problems) for name, one in settings.outgoing.items()}
        transactional_ids(tuple(settings.outgoing.values()), problems)
        for name, spec in incoming.items():
            who = " and ".join(match.who for match in matches.get(name, ()))
            incoming[name] = exactly_once(
                reads_transactions(spec, outgoing), who, outgoing, problems
            )
        handled = [(name, one) for name, one in settings.memory.items() if name in matches]
        made = {name: memory_spec(matches[name], one, problems) for name, one in handled}
        for match in chain.from_iterable(matches[name] for name, _ in handled):
            of_memory(outgoing, match.outgoing, match.who, problems)
        problems += unwritable(
            [*chain.from_iterable(matches.values())], found.sources, settings.outgoing
        )
        if problems:
            raise ConfigError(*dict.fromkeys(problems))
        fed = {name for entry in self.registrations.values() for name in entry.outgoing}
        unfed = tuple(name for name in outgoing if name not in fed)
        told = chain.from_iterable(
            unused(one, matches.get(name, ())) for name, one in settings.incoming.items()
        )
        lost = chain.from_iterable(map(may_lose_outputs, incoming.values()))
        late = chain.from_iterable(map(cannot_put_off, incoming.values()))
        odd = [
            text
            for one in settings.incoming.values()
            for text in odd_names(one, is_on_spark=one.name in self.spark)
        ]
        warnings = (*found.warnings, *told, *lost, *late, *odd)
        return AppSpec(incoming, outgoing, tuple(found.sources), warnings, unfed, made)

    def _found(self, settings: Settings) -> Found:
        found = Found()
        for entry in self.registrations.values():
            _find(entry, settings, found)
        for channel, decorated in self.spark.items():
            who = f"@app.spark({channel!r}) of {name_and_place(decorated.function)}"
            found.add(Match(who, Incoming(channel), spark=decorated), settings)
        for channel, matches in found.matches.items():
            if channel in settings.memory:
                found.problems += misfits(
                    matches, settings.memory[channel].as_incoming, are_objects=True
                )
                continue
            found.problems += misfits(matches, settings.incoming[channel], are_objects=False)
            for match in matches:
                if match.handler is not None and match.handler.shape is Shape.BATCH:
                    check_ordering(match, settings.incoming[channel], found.problems)
        handlers = [match.handler for match in chain.from_iterable(found.matches.values())]
        found.problems += Graph(needing(handlers, found.sources)).problems
        uses = [
            MemoryUse(tuple(one.channel for one in entry.incoming), tuple(entry.outgoing))
            for entry in self.registrations.values()
        ]
        # Refused above, and no second time.
        uses += [MemoryUse((channel,), ()) for channel in self.spark]
        found.problems += memory_problems(settings.memory, uses, self._emitters)
        return found


def _two_on_spark(channel: str) -> str:
    return f"channel {channel!r} has two Spark functions"


def _identity(function: Function) -> Hashable:
    """A key that stays the same while the function lives: each access to a bound method creates an
    object.
    """
    return (
        (id(function.__self__), id(function.__func__))
        if inspect.ismethod(function)
        else id(function)
    )


def _find(entry: Registration, settings: Settings, found: Found) -> None:
    """Note what one function is: the handler of its channels, or a source."""
    who = name_and_place(entry.function)
    outgoing = tuple(dict.fromkeys(entry.outgoing))
    for name in outgoing:
        if name not in settings.outgoing and name not in settings.memory:
            found.problems.append(
                unknown(f"@app.outgoing({name!r}) of {who}", "outgoing", name, settings)
            )
    if entry.draft is None:
        # Its @app.incoming has raised, and somebody has caught that.
        if not outgoing:
            return
        if problem := why_no_source(entry.function):
            found.problems.append(problem)
        else:
            name = name_of_handler(entry.function)
            returns = annotated_return(entry.function)
            sends = entry.layers.around_sends() if entry.layers is not None else ()
            found.sources.append(
                SourceSpec(
                    entry.function, name, outgoing, returns, source_needs(entry.function), sends
                )
            )
        return
    handler = tried(who, found.problems, entry.draft.spec, bool(outgoing))
    if not outgoing and (warning := entry.draft.dropped()):
        found.warnings.append(warning)
    if handler is None:
        return
    for decorated in entry.incoming:
        its = decorated.layered(handler)
        found.add(
            Match(f"@app.incoming({decorated.channel!r}) of {who}", decorated, its, outgoing),
            settings,
        )


def unknown(who: str, kind: str, name: str, settings: Settings) -> str:
    """The error for a name that is not a configured channel; *who* is the decorator or call that
    gave it.
    """
    if name in settings.memory:
        return f"{who}: [memory.{name}] is a memory channel, which has a handler, and neither partitions nor positions"
    known = {**(settings.incoming if kind == "incoming" else settings.outgoing), **settings.memory}
    return f"{who}: no [{kind}.{name}] is configured in {settings.source}{unknown_channel(name, known)}"
