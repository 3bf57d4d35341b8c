"""Calls that block: what the engine needs from a Spark of any kind, and the threads that run it for
an event loop.

Everything in the protocols blocks, except where it says "at once". Spark ties a Python thread to a
Java thread for good, so short-lived threads would leave Java threads behind. And a function that
never ends must not hold up the exit of the process. So these are daemon threads, and no executor.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from reactive_kafka.spark.batches.ledger import JobProgress

T = TypeVar("T")


class JobGroup(Protocol):
    """All Spark jobs that one run of a function starts: cancelled and counted together."""

    def run(self, job: Callable[[Any], T]) -> T:
        """Run *job* with the session in this thread, as this group; the thread's settings are
        cleared at the end.
        """

    def cancel(self) -> None:
        """Cancel the running jobs and those that the function would still start; repeatable. Tasks
        end later.
        """

    def progress(self) -> JobProgress:
        """The stages and tasks so far; takes some milliseconds."""

    def is_over(self) -> bool:
        """Whether no job of the group runs and no task of one is active; asked when *run* has
        returned.

        After an exception, which is no answer, the group is over only if the session has ended.
        """


class Session(Protocol):
    """A Spark session, classic or Connect."""

    @property
    def spark(self) -> Any:
        """The ``pyspark.sql.SparkSession`` for the user's function. At once."""

    @property
    def owned(self) -> bool:
        """False for a session that somebody else started: it is used, and neither stopped nor
        replaced. At once.
        """

    @property
    def driver_pid(self) -> int | None:
        """The driver's process; None if it is not ours. At once."""

    def has_ended(self) -> bool:
        """Whether it is beyond repair. At once: only the operating system is asked."""

    def trouble(self) -> str | None:
        """Ask the driver or server why jobs cannot run; None: they can. One call at a time, about
        every second.

        May find that the session is beyond repair, which :meth:`has_ended` says from then on. That
        it cannot be asked (any exception) is trouble, too.
        """

    def warm_up(self) -> None:
        """Run a small job, with Python on an executor, in a thread for jobs; raises if jobs would
        fail.
        """

    def group(self, description: str, pool: str) -> JobGroup:
        """A new group. *description* is for Spark's own pages; *pool* is the FAIR pool that it
        shares cores in.
        """

    def stop(self) -> None:
        """Stop an owned session: running jobs are cancelled. May hang."""

    def end(self) -> None:
        """End the process and the session in whatever state they are, in a bounded time; twice is
        harmless.
        """


class SessionMaker(Protocol):
    """Opens sessions, one after the other."""

    @property
    def longest_retry_s(self) -> float:
        """The longest wait between two attempts."""

    def open(self) -> Session:
        """Open a session; may take a minute. An exception's text says why it did not start."""

    def abort(self) -> None:
        """From another thread: make an :meth:`open` that is under way fail soon."""


# Of one thread; None ends it.
Calls = SimpleQueue[Callable[[], None] | None]


@dataclass(frozen=True, slots=True)
class CallResult(Generic[T]):
    """What a call returned, or the error that it raised."""

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> T:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        # T itself may be None.
        return self.value  # type: ignore[return-value]


class CallThreads:
    """As many threads as there are concurrent calls; idle ones are used first. No call holds up
    another.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._all: list[Calls] = []
        # Appended to by the threads themselves.
        self._idle: deque[Calls] = deque()

    def submit(self, call: Callable[[], T]) -> asyncio.Future[CallResult[T]]:
        """Run a call at once, to its end, in a thread of its own. The future never fails: an error
        is in its result.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallResult[T]] = loop.create_future()
        calls = self._idle.pop() if self._idle else self._another()

        def run() -> None:
            outcome = _result_of(call)
            self._idle.append(calls)
            try:
                loop.call_soon_threadsafe(_settle, future, outcome)
            except RuntimeError:
                # The loop is closed, and waits for no result.
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
        threading.Thread(
            target=_work, args=[calls], name=f"{self._name}-{len(self._all)}", daemon=True
        ).start()
        self._all.append(calls)
        return calls


def _work(calls: Calls) -> None:
    while (call := calls.get()) is not None:
        call()
        # Or the call, and the batch that it holds, would stay in memory until the next one.
        del call


def _result_of(call: Callable[[], T]) -> CallResult[T]:
    try:
        return CallResult(value=call())
    except BaseException as error:
        # Also SystemExit: it is raised where the result is taken.
        return CallResult(error=error)


def _settle(future: asyncio.Future[CallResult[T]], outcome: CallResult[T]) -> None:
    if not future.done():
        future.set_result(outcome)
