"""Spies on handlers: what each was called with, and what came of it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from reactive_kafka.handlers.signature import Handler, HandlerFunction
from reactive_kafka.planning.channel_plans import AppPlan, HandlerPlan
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.message import Message


@dataclass(slots=True)
class HandlerCall:
    """One call of a handler; each attempt at a record is one.

    Attributes:
        channel: The channel that the handler was called for.
        argument: What it was called with: a payload, a :class:`Message` or a :class:`Batch`.
        result: What it has returned; the values that it has yielded so far, as a list; None until
            then.
        error: What it has raised; None if it has not.
    """

    channel: str
    argument: Any
    result: Any = None
    error: BaseException | None = None

    @property
    def payload(self) -> Any:
        """The value that it was called for, of a batch the list of them."""
        if isinstance(self.argument, Batch):
            return self.argument.payloads
        return self.argument.payload if isinstance(self.argument, Message) else self.argument


@dataclass(slots=True)
class HandlerSpy:
    """The calls of one handler, the oldest first."""

    function: Handler
    calls: list[HandlerCall] = field(default_factory=list)


class Spies:
    """The spies on all handlers of an application, put in their place before their channels
    start.
    """

    def __init__(self) -> None:
        self._spies: list[HandlerSpy] = []

    def of(self, function: Callable[..., Any]) -> HandlerSpy:
        """The one on *function*, which may be a method: each access to one makes another object.

        Raises:
            LookupError: It is no handler of the application.
        """
        for spy in self._spies:
            if spy.function == function:
                return spy
        names = ", ".join(
            getattr(spy.function, "__qualname__", repr(spy.function)) for spy in self._spies
        )
        raise LookupError(
            f"{function!r} is no handler of the application; its handlers are: {names or 'none'}"
        )

    def clear(self) -> None:
        """Forget all of them, with their calls."""
        self._spies.clear()

    def put(self, plan: AppPlan) -> AppPlan:
        """Return the plan with a spy on each handler. The spies know no calls yet."""
        incoming = {
            name: replace(channel, handlers=self._watched(name, channel.handlers))
            for name, channel in plan.incoming.items()
        }
        memory = {
            name: replace(channel, handlers=self._watched(name, channel.handlers))
            for name, channel in plan.memory.items()
        }
        return replace(plan, incoming=incoming, memory=memory)

    def _watched(self, channel: str, handlers: tuple[HandlerPlan, ...]) -> tuple[HandlerPlan, ...]:
        return tuple(replace(plan, handler=self._spied(channel, plan.handler)) for plan in handlers)

    def _spied(self, channel: str, handler: HandlerFunction) -> HandlerFunction:
        function = handler.function
        spy = next((spy for spy in self._spies if spy.function == function), None)
        if spy is None:
            spy = HandlerSpy(function)
            self._spies.append(spy)
        return replace(handler, function=_watching(channel, handler, spy.calls))


def _watching(channel: str, handler: HandlerFunction, calls: list[HandlerCall]) -> Handler:
    """A function that is called as the handler is, and notes each call."""
    function = handler.function

    def begin(argument: Any) -> HandlerCall:
        call = HandlerCall(channel, argument)
        calls.append(call)
        return call

    async def ended(call: HandlerCall, result: Awaitable[Any]) -> Any:
        try:
            call.result = await result
        except BaseException as error:
            call.error = error
            raise
        return call.result

    async def on_loop(argument: Any, **dependencies: Any) -> Any:
        call = begin(argument)
        try:
            result = function(argument, **dependencies)
        except BaseException as error:
            # A plain wrapper around an async function.
            call.error = error
            raise
        return await ended(call, result)

    def in_thread(argument: Any, **dependencies: Any) -> Any:
        call = begin(argument)
        try:
            result = function(argument, **dependencies)
        except BaseException as error:
            call.error = error
            raise
        if inspect.isawaitable(result):
            return ended(call, result)
        call.result = result
        return result

    async def yielding(argument: Any, **dependencies: Any) -> AsyncGenerator[Any, None]:
        call = begin(argument)
        call.result = []
        try:
            async with aclosing(function(argument, **dependencies)) as values:
                async for value in values:
                    call.result.append(value)
                    yield value
        except GeneratorExit:
            # Nobody wants more of it.
            raise
        except BaseException as error:
            call.error = error
            raise

    if handler.yields:
        return yielding
    return on_loop if handler.is_async else in_thread
