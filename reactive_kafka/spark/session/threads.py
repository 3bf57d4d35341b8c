"""Threads that live as long as their owner and run one call after the other for an event loop.

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


class CallThread:
    """One daemon thread, started by the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[[], T]) -> asyncio.Future[CallResult[T]]:
        """Queue a call. The future never fails: an error of the call is in its result.

        Cancellation:
            The call runs all the same, and its result is dropped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallResult[T]] = loop.create_future()

        def run() -> None:
            outcome = _result_of(call)
            try:
                loop.call_soon_threadsafe(_settle, future, outcome)
            except RuntimeError:  # the loop is closed, and waits for no result
                if not loop.is_closed():
                    raise

        self._calls.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return future

    def close(self) -> None:
        """End the thread after the calls that are queued."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # or the call, and the batch that it holds, would stay in memory until the next one


class CallThreads:
    """As many threads as there are concurrent calls; idle ones are used first.

    A call that never ends keeps its thread, and holds up no other call.

    Args:
        name: Prefix of the threads' names.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._all: list[CallThread] = []
        self._idle: deque[CallThread] = deque()  # appended to by the threads themselves

    def submit(self, call: Callable[[], T]) -> asyncio.Future[CallResult[T]]:
        """Run a call at once, in a thread that it has for itself. The future is that of :meth:`CallThread.submit`."""
        worker = self._idle.pop() if self._idle else self._another()

        def run() -> T:
            try:
                return call()
            finally:
                self._idle.append(worker)

        return worker.submit(run)

    def close(self) -> None:
        """End the threads, each after the call that it runs."""
        for worker in self._all:
            worker.close()

    def _another(self) -> CallThread:
        worker = CallThread(f"{self._name}-{len(self._all)}")
        self._all.append(worker)
        return worker


def _result_of(call: Callable[[], T]) -> CallResult[T]:
    try:
        return CallResult(value=call())
    except BaseException as error:  # also SystemExit: it is raised where the result is taken
        return CallResult(error=error)


def _settle(future: asyncio.Future[CallResult[T]], outcome: CallResult[T]) -> None:
    if not future.done():
        future.set_result(outcome)
