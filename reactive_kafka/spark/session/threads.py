"""Threads that live as long as their owner and run calls for an event loop.

Spark ties a Python thread to a Java thread for good, so short-lived threads would leave Java threads behind. And a
function that never ends must not hold up the exit of the process. So these are daemon threads, and no executor.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
Calls = SimpleQueue[Callable[[], None] | None]
"""The calls of one thread; None ends it."""


@dataclass(frozen=True, slots=True)
class CallResult(Generic[T]):
    """What a call returned, or the error that it raised."""

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> T:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # T itself may be None


class CallThreads:
    """As many threads as there are concurrent calls; idle ones are used first.

    A call that never ends keeps its thread, and holds up no other call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._all: list[Calls] = []
        self._idle: deque[Calls] = deque()  # appended to by the threads themselves

    def submit(self, call: Callable[[], T]) -> asyncio.Future[CallResult[T]]:
        """Run a call at once, in a thread that it has for itself. The future never fails: an error is in its result.

        Cancellation:
            The call runs all the same, and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallResult[T]] = loop.create_future()
        calls = self._idle.pop() if self._idle else self._another()

        def run() -> None:
            outcome = _result_of(call)
            self._idle.append(calls)
            try:
                loop.call_soon_threadsafe(_settle, future, outcome)
            except RuntimeError:  # the loop is closed, and waits for no result
                if not loop.is_closed():
                    raise

        calls.put(run)
        return future

    def close(self) -> None:
        """End the threads, each after the call that it runs."""
        for calls in self._all:
            calls.put(None)

    def _another(self) -> Calls:
        calls: Calls = SimpleQueue()
        threading.Thread(target=_work, args=[calls], name=f"{self._name}-{len(self._all)}", daemon=True).start()
        self._all.append(calls)
        return calls


def _work(calls: Calls) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # or the call, and the batch that it holds, would stay in memory until the next one


def _result_of(call: Callable[[], T]) -> CallResult[T]:
    try:
        return CallResult(value=call())
    except BaseException as error:  # also SystemExit: it is raised where the result is taken
        return CallResult(error=error)


def _settle(future: asyncio.Future[CallResult[T]], outcome: CallResult[T]) -> None:
    if not future.done():
        future.set_result(outcome)
