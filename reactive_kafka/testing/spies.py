"""Spies on handlers: the argument, the result and the error of each call."""

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
    """One call of a handler. Each attempt at a record is a call.

    Attributes:
        channel: The channel that the handler was called for.
        argument: The handler's argument: a payload, a :class:`Message` or a :class:`Batch`.
        result: The return value, or the list of values that the handler has yielded so far. None
            while it runs.
        error: The exception that it has raised, if any.
    """

    channel: str
    argument: Any
    result: Any = None
    error: BaseException | None = None

    @property
    def payload(self) -> Any:
        """The payload of the argument; of a batch, the list of payloads."""
        if isinstance(self.argument, Batch):
            return self.argument.payloads
        if isinstance(self.argument, Message):
            return self.argument.payload
        return self.argument


@dataclass(slots=True)
class HandlerSpy:
    """The calls of one handler, oldest first."""

    function: Handler
    calls: list[HandlerCall] = field(default_factory=list)


class Spies:
    """The spies on all handlers of an application, installed before its channels start."""

    def __init__(self) -> None:
        self._spies: list[HandlerSpy] = []

    def of(self, function: Callable[..., Any]) -> HandlerSpy:
        """Return the spy on *function*.

        Raises:
            LookupError: *function* is no handler of the application.
        """
        for spy in self._spies:
            # Not `is`: Python makes a new object at each access to a method.
            if spy.function == function:
                return spy
        names = ", ".join(
            getattr(spy.function, "__qualname__", repr(spy.function)) for spy in self._spies
        )
        raise LookupError(
            f"{function!r} is no handler of the application; its handlers are: {names or 'none'}"
        )

    def clear(self) -> None:
        """Forget all spies and their calls."""
        self._spies.clear()

    def install(self, plan: AppPlan) -> AppPlan:
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
        return replace(handler, function=_noting_calls(channel, handler, spy.calls))


def _noting_calls(channel: str, handler: HandlerFunction, calls: list[HandlerCall]) -> Handler:
    """Return a function that calls the handler and adds each call to *calls*.

    It is a plain, an async or an async generator function, as the handler is.
    """
    function = handler.function

    def begin(argument: Any) -> HandlerCall:
        call = HandlerCall(channel, argument)
        calls.append(call)
        return call

    async def finish(call: HandlerCall, pending: Awaitable[Any]) -> Any:
        try:
            call.result = await pending
        except BaseException as error:
            call.error = error
            raise
        return call.result

    async def on_loop(argument: Any, **dependencies: Any) -> Any:
        call = begin(argument)
        try:
            result = function(argument, **dependencies)
        except BaseException as error:
            # It raised before the first await: the handler is a plain function that returns an
            # awaitable.
            call.error = error
            raise
        return await finish(call, result)

    def in_thread(argument: Any, **dependencies: Any) -> Any:
        call = begin(argument)
        try:
            result = function(argument, **dependencies)
        except BaseException as error:
            call.error = error
            raise
        if inspect.isawaitable(result):
            return finish(call, result)
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
            # The caller stopped iterating: the handler has not failed.
            raise
        except BaseException as error:
            call.error = error
            raise

    if handler.yields:
        return yielding
    return on_loop if handler.is_async else in_thread
