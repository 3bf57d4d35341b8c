"""What an event is, who is told, and the bases that events share."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, in the application as a whole unless it names a channel."""

    level: ClassVar[Level] = "info"
    # Of ``text()``: fields by their names.
    template: ClassVar[str] = ""
    # Events of one class that differ in one of these fields are not repeats.
    identity: ClassVar[tuple[str, ...]] = ()

    def text(self) -> str:
        """One sentence for people."""
        return self._filled()

    def key(self) -> Hashable:
        """Equal for an event and its repeats."""
        return (type(self), *(getattr(self, name) for name in self.identity))

    def subject(self) -> str:
        """What a log line begins with, or ""."""
        return ""

    def loudness(self) -> Level:
        """The level of this one; events of one class may differ."""
        return self.level

    def _filled(self, **more: str) -> str:
        return self.template.format(
            **{one.name: getattr(self, one.name) for one in fields(self)}, **more
        )


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def event(
    template: str = "", *, level: Level | None = None, apart: tuple[str, ...] = ()
) -> Callable[[type[_Event]], type[_Event]]:
    """Make an event of a class: a frozen dataclass with keyword arguments.

    *template* is the text of its log line, with fields by their names; without one the class
    defines ``text``. *level* is by default that of its base, and *apart* are the fields that tell
    events apart, besides those of its base.
    """

    def make(kind: type[_Event]) -> type[_Event]:
        # Set before the dataclass is made: with slots that is a second class, which copies what
        # this one has.
        kind.template = template
        kind.level = level or kind.level
        kind.identity = (*kind.identity, *apart)
        return dataclass(frozen=True, slots=True, kw_only=True)(kind)

    return make


@event(apart=("channel",))
class ChannelEvent(Event):
    """Something that happened in one channel."""

    channel: str

    def subject(self) -> str:
        return self.channel


@event(apart=("partition",))
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
    """Is told what happens, on the event loop and at once: it must neither block nor raise."""

    def on(self, event: Event) -> None: ...


def checked(observer: Observer) -> Observer:
    """The observer, if it is one. ConfigError: it has no ``on``, or one that is not called at
    once.
    """
    on = getattr(observer, "on", None)
    if not callable(on) or inspect.iscoroutinefunction(on):
        problem = "an async `on`, which nobody would await" if callable(on) else "no method `on`"
        raise ConfigError(
            f"the observer {observer!r} has {problem}: write `def on(self, event: Event) -> None`"
        )
    return observer


class Guard:
    """Calls what may be broken, and hides that from the caller."""

    def __init__(self) -> None:
        self._is_broken = False

    def call(self, what: Callable[..., object], *arguments: object) -> None:
        """Make a call; what it raises goes to stderr, the first time."""
        self.result(what, None, *arguments)

    def result(self, what: Callable[..., _T], otherwise: _T, *arguments: object) -> _T:
        """What a call returns, or *otherwise* where it raises."""
        try:
            return what(*arguments)
        except Exception:
            # Records must go on whatever a log sink does. Logging may be what is broken, so the
            # first error goes to stderr, and the same again each time would be a flood.
            if not self._is_broken:
                self._is_broken = True
                traceback.print_exc(file=sys.stderr)
            return otherwise


class Observers:
    """Several observers as one. One that raises disturbs neither the others nor the application."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = [(observer, Guard()) for observer in observers]

    def on(self, event: Event) -> None:
        """Tell each of them."""
        for observer, guard in self._observers:
            guard.call(observer.on, event)
