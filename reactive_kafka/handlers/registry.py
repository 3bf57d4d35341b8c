"""What an application was decorated with, matched with its settings. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from reactive_kafka.config.schema import Settings
from reactive_kafka.config.values import unknown_channel
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.signature import HandlerDraft, Shape, draft_handler, local_names_at, name_and_place
from reactive_kafka.handlers.spec import (
    LOADED,
    MADE,
    AppSpec,
    Incoming,
    Match,
    check_named,
    check_ordering,
    incoming_spec,
    outgoing_spec,
    tried,
)
from reactive_kafka.spark.batches.function import SparkDecoration

Function = Callable[..., Any]


@dataclass(slots=True)
class Registration:
    """One decorated function; ``draft`` is there from its first ``@app.incoming`` on."""

    function: Function
    draft: HandlerDraft | None = None
    incoming: list[Incoming] = field(default_factory=list)
    outgoing: list[str] = field(default_factory=list)

    def look(self, caller: FrameType) -> None:
        """Read the signature of a handler that is decorated in the scope *caller*."""
        if self.draft is None:
            self.draft = draft_handler(self.function, local_names=local_names_at(caller, self.function))


class Registry:
    """The decorated functions of one application."""

    def __init__(self) -> None:
        self._registrations: dict[Hashable, Registration] = {}
        self.spark: dict[str, SparkDecoration] = {}

    def of(self, function: Function) -> Registration:
        """The entry of a function, created by its first decorator."""
        return self._registrations.setdefault(_identity(function), Registration(function))

    def misfits(self, settings: Settings) -> list[str]:
        """The problems of the functions and of what is named as ``module:function``; the settings may be incomplete."""
        problems = self._matched(settings)[1]
        for channel in settings.incoming.values():
            check_named(channel, problems, by=LOADED)
        return list(dict.fromkeys(problems))

    def spec(self, settings: Settings) -> AppSpec:
        """Fit the functions to the settings; a ConfigError has every problem."""
        matches, problems = self._matched(settings)
        names = dict.fromkeys([*matches, *settings.incoming])
        incoming = {name: incoming_spec(matches.get(name), settings.incoming[name], problems) for name in names}
        for channel in settings.incoming.values():
            check_named(channel, problems, by=MADE)
        outgoing = {name: outgoing_spec(one, problems) for name, one in settings.outgoing.items()}
        if problems:
            raise ConfigError(*dict.fromkeys(problems))
        return AppSpec(incoming, outgoing)

    def _matched(self, settings: Settings) -> tuple[dict[str, Match], list[str]]:
        """Channel -> its function, and what is wrong with names and signatures."""
        matches: dict[str, Match] = {}
        problems: list[str] = []
        for entry in self._registrations.values():
            _match(entry, settings, matches, problems)
        for channel, decorated in self.spark.items():
            who = f"@app.spark({channel!r}) of {name_and_place(decorated.function)}"
            _add(Match(who, Incoming(channel), spark=decorated), settings, matches, problems)
        for channel, match in matches.items():
            if match.handler is not None and match.handler.shape is Shape.BATCH:
                check_ordering(match, settings.incoming[channel], problems)
        return matches, problems


def _identity(function: Function) -> Hashable:
    """A key that stays the same while the function lives: each access to a bound method creates an object."""
    return (id(function.__self__), id(function.__func__)) if inspect.ismethod(function) else id(function)


def _match(entry: Registration, settings: Settings, matches: dict[str, Match], problems: list[str]) -> None:
    who = name_and_place(entry.function)
    for name in entry.outgoing:
        if name not in settings.outgoing:
            problems.append(unknown(f"@app.outgoing({name!r}) of {who}", "outgoing", name, settings))
    if entry.draft is None:
        problems.append(f"{who} has @app.outgoing and no @app.incoming: a source of its own is not supported yet")
        return
    handler = tried(who, problems, entry.draft.spec, bool(entry.outgoing))
    for decorated in entry.incoming if handler is not None else ():
        match = Match(f"@app.incoming({decorated.channel!r}) of {who}", decorated, handler, tuple(entry.outgoing))
        _add(match, settings, matches, problems)


def _add(match: Match, settings: Settings, matches: dict[str, Match], problems: list[str]) -> None:
    channel = match.decorated.channel
    if channel not in settings.incoming:
        problems.append(unknown(match.who, "incoming", channel, settings))
    elif channel in matches:
        problems.append(f"channel {channel!r} has two handlers: {matches[channel].who} and {match.who}")
    else:
        matches[channel] = match


def unknown(who: str, kind: str, name: str, settings: Settings) -> str:
    """The error for a name that is not a configured channel; *who* is the decorator or call that gave it."""
    known = settings.incoming if kind == "incoming" else settings.outgoing
    return f"{who}: no [{kind}.{name}] is configured in {settings.source}{unknown_channel(name, known)}"
