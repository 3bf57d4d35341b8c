"""The base classes of events, and the observers that events are reported to."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, Protocol, TypeVar, dataclass_transform

from reactive_kafka.errors import ConfigError
from reactive_kafka.records import TopicPartition

Level = Literal["info", "warning", "error"]
_Event = TypeVar("_Event", bound="Event")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Event:
    """Something that happened, in the application as a whole unless it names a channel."""

    level: ClassVar[Level] = "info"
    # The format string behind `text()`; it names fields.
    template: ClassVar[str] = ""
    # Two events of one class are repeats if all of these fields are equal.
    identity: ClassVar[tuple[str, ...]] = ()

    # A dataclass would write these three for each of eighty classes, which is half a megabyte of
    # code in each process.

    def __repr__(self) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self))
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def text(self) -> str:
        """One sentence for people."""
        return self._filled()

    def key(self) -> Hashable:
        """A value that is equal for an event and its repeats."""
        return (type(self), *(getattr(self, name) for name in self.identity))

    def subject(self) -> str:
        """The beginning of the log line, or ""."""
        return ""

    def loudness(self) -> Level:
        """The level of this event; events of one class may differ."""
        return self.level

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, one.name) for one in fields(self) if one.compare)

    def _filled(self, **more: str) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return self.template.format(**values, **more)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def event(
    template: str = "", *, level: Level | None = None, identity: tuple[str, ...] = ()
) -> Callable[[type[_Event]], type[_Event]]:
    """Turn a class into an event: a frozen dataclass with keyword arguments.

    Args:
        template: Format string of the log line, which names fields. A class without one defines
            ``text``.
        level: Level of the log line. None: that of the base class.
        identity: Fields, added to those of the base class, that must be equal in a repeat.
    """

    def make(kind: type[_Event]) -> type[_Event]:
        # Set these first: a dataclass with slots is a second class, which copies the attributes
        # that this one has.
        kind.template = template
        kind.level = level or kind.level
        kind.identity = (*kind.identity, *identity)
        return dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)(kind)

    return make


@event(identity=("channel",))
class ChannelEvent(Event):
    """Something that happened in one channel."""

    channel: str

    def subject(self) -> str:
        return self.channel


@event(identity=("partition",))
class PartitionEvent(ChannelEvent):
    """Something that happened to one partition."""

    partition: TopicPartition


@event(level="warning")
class Problem(ChannelEvent):
    """Something does not work as it should."""

    reason: str


@event(level="error")
class TracedProblem(Problem):
    """A problem whose log line is followed by the traceback of *error*."""

    error: BaseException | None = field(default=None, compare=False)


class Observer(Protocol):
    """Receives each event on the event loop, when it happens. It must neither block nor raise."""

    def on(self, event: Event) -> None:
        """Receive one event. It is called on the event loop, so it must return at once."""


def checked(observer: Observer) -> Observer:
    """Return the observer.

    Raises:
        ConfigError: It has no method ``on``, or an async one.
    """
    on = getattr(observer, "on", None)
    if callable(on) and not inspect.iscoroutinefunction(on):
        return observer
    problem = "an async `on`, which is never awaited" if callable(on) else "no method `on`"
    raise ConfigError(
        f"the observer {observer!r} has {problem}: write `def on(self, event: Event) -> None`"
    )


class SafeCaller:
    """Calls functions that may raise, such as observers of users and log handlers.

    The first error is printed to stderr, because logging itself may be broken. Later ones are
    dropped, or each record could print one.
    """

    def __init__(self) -> None:
        self._has_failed = False

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function; its errors never reach the caller."""
        self.result(function, None, *arguments)

    def result(self, function: Callable[..., _T], otherwise: _T, *arguments: object) -> _T:
        """Return the function's result, or *otherwise* if it raises."""
        try:
            return function(*arguments)
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                traceback.print_exc(file=sys.stderr)
            return otherwise


class Observers:
    """Several observers as one. An error in one affects neither the others nor the application."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = [(observer, SafeCaller()) for observer in observers]

    def on(self, event: Event) -> None:
        """Pass the event to each observer."""
        for observer, caller in self._observers:
            caller.call(observer.on, event)
