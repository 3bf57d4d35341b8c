"""The protocols of Spark sessions, whose calls block, and the threads that run such calls.

All methods of the protocols block, except where it says "at once".

Spark ties a Python thread to a Java thread for good, so short-lived threads would leave Java
threads behind: threads are kept and used again. And a function that never ends must not delay the
exit of the process. So they are daemon threads of our own, and no executor.
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
    """All Spark jobs that one run of a function starts. They are cancelled and counted together."""

    def run(self, job: Callable[[Any], T]) -> T:
        """Call *job* with the session in this thread, as this group, and return its result.

        The thread's Spark settings are cleared at the end.
        """

    def cancel(self) -> None:
        """Cancel the running jobs, and those that the function would still start.

        It may be called again. Tasks end later.
        """

    def progress(self) -> JobProgress:
        """Return the stages and tasks so far. It takes some milliseconds."""

    def is_over(self) -> bool:
        """True if no job of the group runs, and no task of one is active.

        Call it when *run* has returned. If it raises, the group is over only if the session has
        ended.
        """


class Session(Protocol):
    """A Spark session, classic or Connect."""

    @property
    def spark(self) -> Any:
        """The ``pyspark.sql.SparkSession`` for the user's function. At once."""

    @property
    def owned(self) -> bool:
        """False: the application started it. We use it, but never stop or replace it. At once."""

    @property
    def driver_pid(self) -> int | None:
        """The process id of the driver. None: it is not our process. At once."""

    def has_ended(self) -> bool:
        """True if the session is beyond repair. At once: it only asks the operating system."""

    def trouble(self) -> str | None:
        """Ask the driver or the server why jobs cannot run. None: they can.

        It is called about every second, one call at a time. It may find that the session is beyond
        repair; then :meth:`has_ended` is true from then on. An exception is trouble, too.
        """

    def warm_up(self) -> None:
        """Run a small job, with Python on an executor. It raises if jobs would fail.

        Call it in a thread for jobs.
        """

    def group(self, description: str, pool: str) -> JobGroup:
        """Make a new group.

        *description* is for Spark's pages, *pool* is the FAIR pool whose jobs share cores.
        """

    def stop(self) -> None:
        """Stop an owned session and cancel its jobs. It may hang."""

    def end(self) -> None:
        """End the process and the session in a bounded time, whatever their state.

        It may be called twice.
        """


class SessionMaker(Protocol):
    """Opens sessions, one after the other."""

    @property
    def longest_retry_s(self) -> float:
        """The longest wait between two attempts."""

    def open(self) -> Session:
        """Open a session. It may take a minute; the text of an error says why it did not start."""

    def abort(self) -> None:
        """Make an :meth:`open` that runs in another thread fail soon."""


# The calls of one thread; None ends the thread.
Calls = SimpleQueue[Callable[[], None] | None]


@dataclass(frozen=True, slots=True)
class CallResult(Generic[T]):
    """The result of a call, or the error that it has raised."""

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        # T itself may be None.
        return self.value  # type: ignore[return-value]


class CallThreads:
    """As many threads as there are concurrent calls, so that no call waits for another one.

    Idle threads are used again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._all: list[Calls] = []
        # The threads add themselves when they are idle.
        self._idle: deque[Calls] = deque()

    def submit(self, call: Callable[[], T]) -> asyncio.Future[CallResult[T]]:
        """Start a call in a thread of its own. The future's result holds an error, if there is one.

        Cancelling the future does not stop the call.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CallResult[T]] = loop.create_future()
        calls = self._idle.pop() if self._idle else self._new_thread()

        def run() -> None:
            outcome = _result_of(call)
            self._idle.append(calls)
            try:
                loop.call_soon_threadsafe(_settle, future, outcome)
            except RuntimeError:
                # A closed loop waits for no result.
                if not loop.is_closed():
                    raise

        calls.put(run)
        return future

    def close(self) -> None:
        """End the threads, each after the call that it runs."""
        for calls in self._all:
            calls.put(None)

    def _new_thread(self) -> Calls:
        calls: Calls = SimpleQueue()
        threading.Thread(
            target=_work, args=[calls], name=f"{self._name}-{len(self._all)}", daemon=True
        ).start()
        self._all.append(calls)
        return calls


def _work(calls: Calls) -> None:
    while True:
        call = calls.get()
        if call is None:
            return
        call()
        # Otherwise the call, with the batch that it refers to, would stay in memory until the next
        # one arrives.
        del call


def _result_of(call: Callable[[], T]) -> CallResult[T]:
    try:
        return CallResult(value=call())
    except BaseException as error:
        # This includes SystemExit, which is raised where the result is taken.
        return CallResult(error=error)


def _settle(future: asyncio.Future[CallResult[T]], outcome: CallResult[T]) -> None:
    if not future.done():
        future.set_result(outcome)
