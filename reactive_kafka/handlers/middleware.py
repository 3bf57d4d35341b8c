"""Middleware: functions that an application puts around its handlers, and around its sends."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.introspection import is_coroutine, owner_of
from reactive_kafka.handlers.parameters import REST, bound_by_name
from reactive_kafka.handlers.signature import (
    HandlerFunction,
    Shape,
    name_and_place,
    name_of_handler,
)
from reactive_kafka.outgoing.outgoing_channel import AroundSend
from reactive_kafka.outgoing.output_routing import PutValue
from reactive_kafka.records import Record
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.message import Message
from reactive_kafka.verdicts.unawaited import DROPPED, checking, raise_if_dropped

CallNext = Callable[[Any], Awaitable[Any]]
"""The second argument of a middleware: calls what is inside it, with a message, batch or record."""
Middleware = Callable[[Any, CallNext], Awaitable[Any]]
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Layers:
    """The middleware of one application or router; the first is the outermost."""

    calls: list[Middleware] = field(default_factory=list)
    sends: list[Middleware] = field(default_factory=list)
    # The middleware of the application or router that includes it.
    outer: Layers | None = None

    def around_calls(self) -> tuple[Middleware, ...]:
        """Return the middleware that is around calls of its handlers now."""
        outer = self.outer.around_calls() if self.outer is not None else ()
        return (*outer, *self.calls)

    def around_sends(self) -> tuple[Middleware, ...]:
        """Return the middleware that is around the sends of its handlers and sources now."""
        outer = self.outer.around_sends() if self.outer is not None else ()
        return (*outer, *self.sends)

    def around_emitters(self) -> tuple[Middleware, ...]:
        """Return the middleware that is around the sends of emitters now.

        Emitters belong to the application, so it is the application's, even for a router.
        """
        return tuple(self.sends) if self.outer is None else self.outer.around_emitters()


def check_middleware(decorator: str, function: Any, first: str) -> None:
    """Check that ``@app.DECORATOR`` was given ``async def function(first, call_next)``.

    Raises:
        ConfigError: It was given something else.
    """
    if not callable(function) or inspect.isclass(function):
        problem: str | None = "is not a function"
    else:
        problem = _why_no_middleware(function, first)
    if problem is not None:
        right_form = f"async def m({first}, call_next): ... return await call_next({first})"
        raise ConfigError(
            f"@app.{decorator} of {name_and_place(function)} {problem}: write `{right_form}`"
        )


def _why_no_middleware(function: Any, first: str) -> str | None:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError) as error:
        return f"has no signature that can be read ({error})"
    if not (is_coroutine(function) or inspect.iscoroutinefunction(owner_of(function))):
        return "yields" if inspect.isasyncgenfunction(owner_of(function)) else "is not async"
    try:
        given = signature.bind(first, "call_next").arguments
    except TypeError as error:
        return f"is called with two arguments, the {first} and call_next: {error}"
    filled = {*given, *bound_by_name(function)}
    for parameter in signature.parameters.values():
        if parameter.name not in filled and parameter.kind not in REST:
            return f"has the parameter {parameter.name}, which nothing fills"
    return None


# Around the call of a handler.


def layered(functions: Sequence[Middleware], call: Call) -> Call:
    """Return *call* with each of *functions* around it, the first one outermost."""
    for function in reversed(functions):
        call = _layer(function, call)
    return call


def _layer(function: Middleware, inner: Call) -> Call:
    async def call(given: Any) -> Any:
        call_next = _Next(function, inner, given)
        try:
            result = await function(given, call_next)
        finally:
            is_running = call_next.end()
        if is_running:
            raise RuntimeError(
                f"the middleware {name_of_handler(function)} has returned before what call_next "
                "had begun: await call_next, or the record counts as handled before its handler is "
                "done"
            )
        return result

    return call


class _Next:
    """The ``call_next`` of one call of a middleware."""

    __slots__ = ("_begun", "_function", "_given", "_inner", "_is_over")

    def __init__(self, function: Middleware, inner: Call, given: Any) -> None:
        self._function = function
        self._inner = inner
        self._given = given
        self._begun: list[Coroutine[Any, Any, Any]] = []
        # True: the middleware has returned.
        self._is_over = False

    def __call__(self, passed: Any) -> Awaitable[Any]:
        """Call what is inside, maybe again. When awaited, it raises what that raises.

        Raises:
            ValueError: The argument is not the message that the middleware was given, and not some
                messages of its batch. Another record would count as handled.
            RuntimeError: The middleware has returned.
        """
        if self._is_over:
            raise RuntimeError(
                f"call_next of the middleware {name_of_handler(self._function)} after its return"
            )
        if passed is not self._given and not _is_part(passed, self._given):
            takes = "the message"
            if isinstance(self._given, Batch):
                takes = "some of the messages of the batch"
            raise ValueError(
                f"the middleware {name_of_handler(self._function)} has called "
                f"call_next({passed!r}): it takes {takes} that the middleware was given, "
                f"{self._given!r}"
            )
        begun = self._run(passed)
        self._begun.append(begun)
        return begun

    async def _run(self, passed: Any) -> Any:
        return await self._inner(passed)

    def end(self) -> bool:
        """Note that the middleware has returned.

        Returns:
            True if a call has not ended, or was never awaited. One that was cancelled before its
            first step has ended: a time limit may be over by then.
        """
        self._is_over = True
        begun = self._begun
        # Otherwise a call that was never awaited would keep itself in memory.
        self._begun = []
        return any(inspect.getcoroutinestate(one) != inspect.CORO_CLOSED for one in begun)


def _is_part(passed: Any, given: Any) -> bool:
    """Return whether *passed* has the form of *given*, and no other records than that."""
    if isinstance(given, Batch):
        there = {(message.tracker, message.index) for message in given}
        is_some = isinstance(passed, Batch) and len(passed) > 0
        return is_some and all((message.tracker, message.index) in there for message in passed)
    return (
        isinstance(passed, Message)
        and passed.tracker is given.tracker
        and passed.index == given.index
    )


def takes_message(handler: HandlerFunction, middleware: Sequence[Middleware]) -> bool:
    """Return whether a handler in its middleware is called with the message.

    A handler that takes the payload is, if it has middleware: that gets the message.
    """
    if handler.shape is Shape.PAYLOAD:
        return bool(middleware)
    return handler.shape is Shape.MESSAGE


def in_middleware(handler: HandlerFunction, middleware: Sequence[Middleware], call: Call) -> Call:
    """Return *call*, which takes what the handler takes, with the middleware around it."""
    if not middleware:
        return call
    return layered(middleware, _with_payload(call) if handler.shape is Shape.PAYLOAD else call)


def _with_payload(call: Call) -> Call:
    async def called(message: Message[Any]) -> Any:
        return await call(message.payload)

    return called


def generating(
    handler: HandlerFunction, middleware: Sequence[Middleware], *, has_emitters: bool = False
) -> Call:
    """Return a call that does not run the generator, but returns what runs it.

    That is called where the values are sent. The middleware is around the run, and not around
    making the generator.

    Args:
        has_emitters: The application has emitters. The run raises if a send was not awaited, before
            the next value is sent.
    """
    who = f"handler {handler.name}"

    async def run(given: Any, put: PutValue) -> None:
        async def pull(argument: Any) -> None:
            values = handler.function(argument)
            try:
                async for value in values:
                    if DROPPED:
                        raise_if_dropped(who)
                    if await put(value):
                        return
            finally:
                await values.aclose()

        call = in_middleware(handler, middleware, pull)
        result = await (checking(call, who) if has_emitters else call)(given)
        # A middleware has returned it: it is sent as if the handler had yielded it.
        if result is not None:
            await put(result)

    async def call(given: Any) -> Any:
        return functools.partial(run, given)

    return call


# Around a send.


def around_send(functions: Sequence[Middleware]) -> AroundSend | None:
    """Return what sends a record with *functions* around, the first one outermost.

    None: there are no functions.
    """
    return _Around(tuple(functions)) if functions else None


class _Around:
    """Sends records through the middleware of sends."""

    def __init__(self, functions: tuple[Middleware, ...]) -> None:
        self._functions = functions

    async def __call__(self, channel: str, value: Any, then: Callable[[Any], Awaitable[T]]) -> T:
        """Send a value or a Record to a channel by calling *then*, and return what that returns.

        Raises:
            RuntimeError: A middleware has passed no record on, or two.
            BaseException: What *then* or a middleware raises.
        """
        made = value if isinstance(value, Record) else Record(value)
        record = replace(made, headers=tuple(made.headers), channel=made.channel or channel)
        return await self._send(record, 0, then)

    async def _send(self, record: Record, depth: int, then: Callable[[Any], Awaitable[T]]) -> T:
        """Call the middleware at *depth*, or *then* inside the innermost one."""
        if depth == len(self._functions):
            return await then(record)
        function = self._functions[depth]
        sent = list[T]()
        is_over = False

        async def call_next(passed: Any) -> T:
            nonlocal is_over
            if not isinstance(passed, Record):
                raise TypeError(
                    f"send_middleware {name_of_handler(function)}: call_next takes a Record, "
                    f"not {passed!r}"
                )
            if is_over:
                raise RuntimeError(
                    f"send_middleware {name_of_handler(function)} has sent its record, or "
                    "returned, already"
                )
            is_over = True
            try:
                sent.append(await self._send(passed, depth + 1, then))
            finally:
                is_over = bool(sent)
            return sent[0]

        try:
            await function(record, call_next)
        finally:
            is_over = True
        if not sent:
            raise RuntimeError(
                f"send_middleware {name_of_handler(function)} has returned and not sent the "
                "record: await call_next(record), or raise; a handler that is to send nothing "
                "returns None"
            )
        return sent[0]
