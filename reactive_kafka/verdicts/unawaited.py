"""Finds sends that the application forgot to await: Python drops them, and nothing is sent.

Whatever runs a function of the application asks at its end whether the function has dropped a send,
and raises if so. A send that is kept in a variable, or that a task has, was not dropped: it may
still begin.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Caller:
    """Whatever calls functions of the application, one after the other: a worker, a hook, a source.

    Attributes:
        is_over: It calls nothing any more.
    """

    __slots__ = ("_dropped", "_ignored_up_to", "is_over")

    def __init__(self) -> None:
        # The method that made a send that was dropped.
        self._dropped: str | None = None
        # The sends up to this number were made in calls that have raised.
        self._ignored_up_to = -1
        self.is_over = False

    def drop(self, number: int, what: str) -> None:
        """Send *number*, made by the method *what* in a call of this, was never begun."""
        if not self.is_over and number > self._ignored_up_to:
            self._dropped = what
            DROPPED.add(self)

    def take(self) -> str | None:
        """Return the method whose send was dropped since the last call of this; None: none was."""
        what = self._dropped
        self._dropped = None
        DROPPED.discard(self)
        return what

    def call_raised(self) -> None:
        """A call has raised: its sends do not count for the next call.

        The traceback may keep some of them for a while, and they are dropped during later calls.
        """
        self._ignored_up_to = next(_NUMBERS)
        self.take()


CALLER: ContextVar[Caller | None] = ContextVar("reactive_kafka caller", default=None)
"""Whatever called the function that runs in this context."""

DROPPED: set[Caller] = set()
"""The callers whose functions have dropped a send.

Workers look whether it is empty, which costs next to nothing, and it is in most applications.
"""

_NUMBERS = itertools.count()
"""Numbers the sends in the order in which they were made."""


class AwaitedOrReported(Coroutine[Any, Any, T]):
    """A coroutine that tells its caller if it is dropped before it has begun.

    Awaiting it, throwing into it (as a task does that is cancelled early) and closing it each count
    as beginning.
    """

    __slots__ = ("__weakref__", "_caller", "_has_begun", "_number", "_steps", "_what")

    def __init__(self, steps: Coroutine[Any, Any, T], what: str) -> None:
        self._steps = steps
        self._what = what
        self._has_begun = False
        self._caller = CALLER.get()
        self._number = next(_NUMBERS)

    def __await__(self) -> Generator[Any, Any, T]:
        self._has_begun = True
        return self._steps.__await__()

    def send(self, value: Any) -> Any:
        self._has_begun = True
        return self._steps.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Any:
        self._has_begun = True
        error = kind if isinstance(kind, BaseException) else value
        if not isinstance(error, BaseException):
            # For the type checker.
            assert isinstance(kind, type)  # noqa: S101
            error = kind() if value is None else kind(value)
        if trace is not None:
            error = error.with_traceback(trace)
        return self._steps.throw(error)

    def close(self) -> None:
        self._has_begun = True
        self._steps.close()

    def __getattr__(self, name: str) -> Any:
        # Debuggers, asyncio and anyio look at the frame and the state of a task's coroutine.
        if name.startswith("cr_") or name in ("__name__", "__qualname__"):
            return getattr(self._steps, name)
        raise AttributeError(name)

    def __del__(self) -> None:
        # Python's own warning follows. It is the only sign if a task has outlived its caller.
        if not self._has_begun and self._caller is not None:
            self._caller.drop(self._number, self._what)


def awaited_or_reported(
    what: str,
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Decorate an async method: a call of it that is never awaited is an error of the caller.

    Args:
        what: The method's name, for the error.
    """

    def decorate(
        function: Callable[P, Coroutine[Any, Any, T]],
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
            return AwaitedOrReported(function(*arguments, **named), what)

        # Frameworks ask whether to await what they call, for example Starlette's background tasks.
        if sys.version_info >= (3, 12):
            return inspect.markcoroutinefunction(call)
        call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
        return call

    return decorate


def raise_if_dropped(who: str, result: object = None, *, in_thread: bool = False) -> None:
    """Raise if a function of the application has dropped a send.

    Args:
        who: The function, for the error.
        result: What it has returned, or yielded. A send that it returns is not awaited either.
        in_thread: It is not async, and runs in a thread.

    Raises:
        RuntimeError: It has dropped one. Nothing was sent.
    """
    caller = CALLER.get()
    what = None if caller is None else caller.take()
    if what is None and type(result) is AwaitedOrReported and not result._has_begun:
        what = result._what
        # It will not begin: without this Python would warn, too.
        result.close()
    if what is None:
        return
    if in_thread:
        raise RuntimeError(
            f"{who} has called {what}, which a function that is not async cannot await: "
            "nothing was sent; "
            "write emitter.send_nowait(value).result(), or make the function async"
        )
    raise RuntimeError(f"{who} has called {what} without await: nothing was sent")


def checking(
    call: Callable[..., Awaitable[T]], who: str, *, in_thread: bool = False
) -> Callable[..., Awaitable[T]]:
    """Return a call of a handler that raises if it drops a send. Its worker is the caller."""

    async def checked(*arguments: Any) -> T:
        try:
            result = await call(*arguments)
        except BaseException:
            caller = CALLER.get()
            if caller is not None:
                caller.call_raised()
            raise
        if DROPPED or type(result) is AwaitedOrReported:
            raise_if_dropped(who, result, in_thread=in_thread)
        return result

    return checked


def checked_alone(
    call: Callable[..., Awaitable[T]], who: str, *, in_thread: bool = False
) -> Callable[..., Awaitable[T]]:
    """Return the same for a function that no worker calls: each call has a caller of its own."""
    checked_call = checking(call, who, in_thread=in_thread)

    async def checked(*arguments: Any) -> T:
        caller = Caller()
        token = CALLER.set(caller)
        try:
            return await checked_call(*arguments)
        finally:
            caller.is_over = True
            CALLER.reset(token)

    return checked
