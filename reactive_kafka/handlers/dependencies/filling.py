"""Calls functions with their dependencies.

Dependencies of the application are made and ended once in a run, those of a call at each call.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from reactive_kafka.delivery.current import current_message
from reactive_kafka.handlers.dependencies.depends import Factory, Need
from reactive_kafka.handlers.dependencies.graph import DependencyStep, FactoryKind, Graph
from reactive_kafka.handlers.dependencies.making import Making, ScopeEnds
from reactive_kafka.handlers.dependencies.threads import in_thread
from reactive_kafka.handlers.signature import RAISED_BY, HandlerFunction, Shape, name_and_place
from reactive_kafka.tasks import CLEANED_UP_S, Fails, Flag, Handle, NoEndError, outcome_text
from reactive_kafka.verdicts.delivery import is_called_again
from reactive_kafka.verdicts.message import Message, new_message

Function = Callable[..., Any]

_NO_ENDS = ScopeEnds()
"""For scopes in which nothing has to be ended."""


class CallScope:
    """Calls one function, with dependencies that are made for each call.

    Args:
        makings: What is made on the event loop, in this order.
        late: What is made after that, in the thread of a function that blocks, and ended there.
        given: Parameter of the function -> value, for those that are the same each time.
        takes: The parameters that get what is made for each call.
        subject: Returns the message or batch of a call for its argument. None: no dependency takes
            it.
    """

    def __init__(
        self,
        function: Function,
        makings: Sequence[Making],
        late: Sequence[Making],
        given: dict[str, Any],
        takes: Iterable[Need],
        subject: Callable[[Any], Any] | None,
    ) -> None:
        self._function = function
        self._makings = makings
        self._late = late
        self._given = given
        self._takes = tuple((need.parameter, need.depends.factory) for need in takes)
        self._subject = subject
        self._has_ends = any(making.is_ended for making in makings)

    def _values(self, made: Mapping[Factory, Any]) -> dict[str, Any]:
        values = self._given.copy()
        for parameter, factory in self._takes:
            values[parameter] = made[factory]
        return values

    async def _make(self, argument: Any, ends: ScopeEnds) -> tuple[dict[Factory, Any], Any]:
        """Make what is made on the event loop; return it, and the message or batch of the call."""
        made = dict[Factory, Any]()
        subject = None if self._subject is None else self._subject(argument)
        for making in self._makings:
            made[making.asked] = await making.make(making.arguments(made, subject), ends)
        return made, subject

    async def awaited(self, argument: Any) -> Any:
        """Call an async function."""
        if not self._has_ends:
            made, _ = await self._make(argument, _NO_ENDS)
            return await self._function(argument, **self._values(made))
        async with ScopeEnds() as ends:
            made, _ = await self._make(argument, ends)
            return await self._function(argument, **self._values(made))

    async def yielding(self, *argument: Any) -> AsyncIterator[Any]:
        """Call an async generator function, and yield what it yields."""
        async with ScopeEnds() as ends:
            made, _ = await self._make(argument[0] if argument else None, ends)
            async with aclosing(self._function(*argument, **self._values(made))) as results:
                async for result in results:
                    yield result

    async def in_thread(self, argument: Any) -> Any:
        """Call a function that blocks."""
        async with ScopeEnds() as ends:
            made, subject = await self._make(argument, ends)
            kept = list[ExitStack]()

            def run() -> tuple[Any]:
                with ExitStack() as inside:
                    for making in self._late:
                        made[making.asked] = making.enter(making.arguments(made, subject), inside)
                    result = self._function(argument, **self._values(made))
                    if inspect.isawaitable(result):
                        # A plain wrapper around an async function. It still uses what was made
                        # here, so that is ended after the awaitable.
                        if inspect.iscoroutine(result):
                            # A caller that was cancelled meanwhile does not await it.
                            inside.callback(result.close)
                        kept.append(inside.pop_all())
                    return (result,)

            try:
                (result,) = await in_thread(run)
            finally:
                # The thread ends them in any other case.
                if kept:
                    ends.push_in_thread(kept[0])
            return await result if kept else result


class Dependencies:
    """The dependencies of one run.

    Those of the application live in a task of their own. A task group in a factory cancels the
    task that has entered it when one of its children fails: that must not be the task of the run.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._of_app = [Making(step, {}, step.needs) for step in graph.of_app]
        # Arguments that get dependencies of the application, when these are made.
        self._bound: list[tuple[dict[str, Any], tuple[Need, ...]]] = []
        self._asked_to_end = Flag()
        self._handle: Handle | None = None
        self._error: BaseException | None = None

    def fill(self, handler: HandlerFunction) -> HandlerFunction:
        """Return the handler as one that is called with its record alone."""
        if not handler.needs:
            return handler
        function = handler.function
        steps = self._graph.of_call(handler.needs)
        if not steps:
            given = self._bind(handler.needs)
            return replace(handler, function=lambda argument: function(argument, **given), needs=())
        scope = self._scope(function, handler.needs, steps, handler.shape, on_loop=handler.is_async)
        if handler.yields:
            call: Function = scope.yielding
        elif handler.is_async:
            call = scope.awaited
        else:
            call = scope.in_thread
        return replace(handler, function=call, is_async=True, needs=())

    def source(
        self, function: Function, needs: tuple[Need, ...]
    ) -> Callable[[], AsyncIterator[Any]]:
        """Return the source as one that is called without arguments."""
        if not needs:
            return function
        scope = self._scope(function, needs, self._graph.of_call(needs), None, on_loop=True)
        return scope.yielding

    def _scope(
        self,
        function: Function,
        needs: tuple[Need, ...],
        steps: Sequence[DependencyStep],
        shape: Shape | None,
        *,
        on_loop: bool,
    ) -> CallScope:
        late = set[Factory]() if on_loop else _late(steps)
        makings = {
            step.asked: Making(step, self._bind(step.needs), _of_calls(step.needs))
            for step in steps
        }
        subject = _subject_of(shape) if any(step.subjects for step in steps) else None
        return CallScope(
            function,
            [making for asked, making in makings.items() if asked not in late],
            [making for asked, making in makings.items() if asked in late],
            self._bind(needs),
            _of_calls(needs),
            subject,
        )

    def _bind(self, needs: tuple[Need, ...]) -> dict[str, Any]:
        """Return arguments for the parameters that get dependencies of the application.

        The dictionary is filled when these are made.
        """
        given = dict[str, Any]()
        self._bound.append((given, tuple(need for need in needs if need.depends.scope == "app")))
        return given

    async def open(self, fails: Fails, is_ending: Callable[[], bool]) -> None:
        """Make the dependencies of the application.

        Args:
            fails: Called if the task that they live in fails later.

        Raises:
            BaseException: What a factory has raised. What was made by then is ended.
        """
        if not self._of_app:
            return
        made = Flag()
        self._handle = Handle(partial(self._live, made), "dependencies", fails, is_ending)
        waiting = asyncio.ensure_future(made.wait())
        try:
            await asyncio.wait([waiting, self._handle.task], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._handle.cancel()
            raise
        finally:
            waiting.cancel()
        if self._error is not None:
            raise self._error

    async def _live(self, made: Flag) -> None:
        try:
            async with ScopeEnds() as ends:
                await self._make(ends)
                made.set()
                await self._asked_to_end.wait()
        except BaseException as error:
            if made.is_set() and not self._asked_to_end.is_set():
                raise
            self._error = error

    async def _make(self, ends: ScopeEnds) -> None:
        values = dict[Factory, Any]()
        for making in self._of_app:
            try:
                values[making.asked] = await making.make(making.arguments(values, None), ends)
            except BaseException as error:
                what = f"dependency {name_and_place(making.factory)}, which is made at the start"
                is_own = self._handle is not None and not self._handle.is_cancelled
                if isinstance(error, asyncio.CancelledError) and is_own:
                    raise RuntimeError(f"the {what}, ended with {outcome_text(error)}") from error
                error.add_note(f"{RAISED_BY}{what}")
                raise
        for given, needs in self._bound:
            given.update({need.parameter: values[need.depends.factory] for need in needs})

    async def close(self, within_s: float) -> BaseException | None:
        """End the dependencies of the application.

        Returns:
            What one of them has raised. NoEndError: they have not ended *within_s*.
        """
        if self._handle is None or self._handle.task.done():
            return None
        self._asked_to_end.set()
        task = self._handle.task
        await asyncio.wait([task], timeout=within_s)
        if not task.done():
            self._handle.cancel()
            await asyncio.wait([task], timeout=CLEANED_UP_S)
            return NoEndError(f"no end within {within_s:g} s")
        return None if self._handle.is_cancelled else self._error


def _of_calls(needs: Iterable[Need]) -> list[Need]:
    return [need for need in needs if need.depends.scope == "call"]


def _late(steps: Sequence[DependencyStep]) -> set[Factory]:
    """Return what can be made in the thread of the function.

    These are plain functions and classes that nothing async needs.
    """
    late = set[Factory]()
    early = set[Factory]()
    # In reverse order each dependency comes before those that it needs.
    for step in reversed(steps):
        if step.asked in early or step.kind in (FactoryKind.AWAITED, FactoryKind.ENTERED):
            early.update([step.asked, *(need.depends.factory for need in step.needs)])
        else:
            late.add(step.asked)
    return late


def _subject_of(shape: Shape | None) -> Callable[[Any], Any]:
    """Return what finds the message or batch of a call by the argument of the call."""
    if shape is Shape.PAYLOAD:
        return _message_with
    return lambda argument: argument


def _message_with(payload: Any) -> Message[Any] | None:
    """Return the message of the call around this, with what the handler takes as its payload.

    The call around knows the record, and what the channel decodes it into. The handler may have a
    type of its own, and a middleware may have changed the payload.
    """
    current = current_message()
    if current is None:
        return None
    message = new_message(payload, current.record, current.tracker, current.index)
    if is_called_again(current):
        message.attempt = current.attempt
    return message
