"""Makes one dependency, and ends what was made when a scope is over."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any

from reactive_kafka.handlers.dependencies.depends import Factory, Need
from reactive_kafka.handlers.dependencies.graph import DependencyStep, FactoryKind
from reactive_kafka.handlers.dependencies.threads import LeftInThreadError, in_thread
from reactive_kafka.handlers.introspection import code_of
from reactive_kafka.handlers.signature import name_and_place

_LEFT_OPEN: list[object] = []
"""Dependencies that are never ended, because an abandoned thread still uses them.

The garbage collector would end a generator that nothing refers to. A thread is left behind only
when the event loop ends, so the list stays short.
"""


class ScopeEnds:
    """Ends what was made in a scope, the last first. Each end gets the exception that was raised.

    contextlib's AsyncExitStack lets one of them swallow the exception for those around it. A record
    that has failed would then be acked. It also takes 4 us more a call.
    """

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: list[Callable[..., Awaitable[Any]]] = []

    def push(self, manager: Any) -> None:
        """End an async context manager with the scope."""
        self._ends.append(manager.__aexit__)

    def push_in_thread(self, manager: Any) -> None:
        """End a context manager with the scope, in a thread."""
        self._ends.append(lambda *thrown: in_thread(partial(manager.__exit__, *thrown)))

    async def __aenter__(self) -> ScopeEnds:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, LeftInThreadError):
            # A thread still uses what would be ended here.
            _LEFT_OPEN.append(self._ends)
            return
        thrown = error
        while self._ends:
            try:
                await self._ends.pop()(None if thrown is None else type(thrown), thrown, trace)
            except LeftInThreadError:
                # The thread ends what was made last, which may still use what was made before.
                _LEFT_OPEN.append(self._ends)
                raise
            except BaseException as raised:
                thrown = raised
                trace = raised.__traceback__
        if thrown is not None and thrown is not error:
            raise thrown


class Making:
    """Makes one dependency.

    Args:
        given: Parameter -> value, for those that are the same each time.
        takes: The other parameters: what they get is created for each call.
    """

    __slots__ = ("_context", "_given", "_subjects", "_takes", "asked", "factory", "make")

    def __init__(self, step: DependencyStep, given: dict[str, Any], takes: Iterable[Need]) -> None:
        self.asked = step.asked
        self.factory = step.factory
        self._given = given
        self._takes = tuple((need.parameter, need.depends.factory) for need in takes)
        self._subjects = tuple(parameter for parameter, _ in step.subjects)
        self._context = _context_of(step.factory) if step.is_ended else None
        ways: dict[FactoryKind, Callable[[dict[str, Any], ScopeEnds], Awaitable[Any]]] = {
            FactoryKind.AWAITED: self._awaited,
            FactoryKind.CALLED: self._called,
            FactoryKind.IN_THREAD: self._in_thread,
            FactoryKind.ENTERED: self._entered,
            FactoryKind.ENTERED_IN_THREAD: self._entered_in_thread,
        }
        self.make = ways[step.kind]

    @property
    def is_ended(self) -> bool:
        """Whether something has to be done when its scope ends."""
        return self._context is not None

    def arguments(self, made: Mapping[Factory, Any], subject: Any) -> dict[str, Any]:
        """Return what the factory is called with, out of what has been made for it."""
        if not self._takes and not self._subjects:
            return self._given
        arguments = {**self._given, **dict.fromkeys(self._subjects, subject)}
        for parameter, factory in self._takes:
            arguments[parameter] = made[factory]
        return arguments

    async def _awaited(self, arguments: dict[str, Any], ends: ScopeEnds) -> Any:
        return await self.factory(**arguments)

    async def _called(self, arguments: dict[str, Any], ends: ScopeEnds) -> Any:
        return self.factory(**arguments)

    async def _in_thread(self, arguments: dict[str, Any], ends: ScopeEnds) -> Any:
        return await in_thread(partial(self.factory, **arguments))

    async def _entered(self, arguments: dict[str, Any], ends: ScopeEnds) -> Any:
        # For the type checker.
        assert self._context is not None  # noqa: S101
        manager = self._context(**arguments)
        value = await manager.__aenter__()
        ends.push(manager)
        return value

    async def _entered_in_thread(self, arguments: dict[str, Any], ends: ScopeEnds) -> Any:
        inside = ExitStack()
        # This comes before the manager is entered. A caller that is cancelled meanwhile does not
        # get the value, but has to end it.
        ends.push_in_thread(inside)
        return await in_thread(partial(self.enter, arguments, inside))

    def enter(self, arguments: dict[str, Any], inside: ExitStack) -> Any:
        """Make the dependency in the thread of the caller, and have *inside* end it."""
        if self._context is None:
            value = self.factory(**arguments)
            if inspect.isawaitable(value):
                raise TypeError(
                    f"{name_and_place(self.factory)} has returned an awaitable: define it with "
                    "async def"
                )
            return value
        manager = self._context(**arguments)
        value = manager.__enter__()

        # It returns nothing, so the manager cannot swallow the exception.
        def end(*thrown: Any) -> None:
            manager.__exit__(*thrown)

        inside.push(end)
        return value


def _context_of(factory: Factory) -> Callable[..., Any]:
    """Return what makes a context manager, of a factory that yields or that returns one."""
    code = code_of(factory)
    if inspect.isasyncgenfunction(code):
        return asynccontextmanager(factory)
    if inspect.isgeneratorfunction(code):
        return contextmanager(factory)

    # The factory is decorated, with @asynccontextmanager or by a plain wrapper around a generator.
    def context(**arguments: Any) -> Any:
        made = factory(**arguments)
        if inspect.isasyncgen(made):
            return asynccontextmanager(lambda: made)()
        return contextmanager(lambda: made)() if inspect.isgenerator(made) else made

    return context
