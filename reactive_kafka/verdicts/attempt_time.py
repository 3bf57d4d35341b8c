"""Limits how long one attempt of a handler may take: ``attempt_timeout``.

Only the time of the application's own code counts, as for the age of a record. The wait for a
broker, a store or a registry does not, so an outage fails no attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from reactive_kafka.verdicts.delivery_hook import Call

ATTEMPT: ContextVar[AttemptTime | None] = ContextVar("reactive_kafka attempt", default=None)


class AttemptTime:
    """Cancels the task of an attempt once the attempt has taken too long.

    It begins with the object, and ends with :meth:`end`.
    """

    __slots__ = ("_due", "_loop", "_task", "_timer", "_waits", "_waits_since", "is_over")

    def __init__(self, limit_s: float, task: asyncio.Task[Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = task
        self._due = self._loop.time() + limit_s
        # How many tasks of the attempt wait for a broker, a store or a registry.
        self._waits = 0
        self._waits_since = 0.0
        # True: the attempt took too long, and its task was cancelled.
        self.is_over = False
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(self._due, self._look)

    def wait_begins(self, since: float) -> None:
        """Stop counting as of *since*, until :meth:`wait_ends` was called as often."""
        if not self._waits:
            self._waits_since = since
        self._waits += 1

    def wait_ends(self, now: float) -> None:
        """Count again, if nothing of the attempt waits any more."""
        self._waits -= 1
        if self._waits:
            return
        self._due += max(0.0, now - self._waits_since)
        if self._timer is None and not self.is_over:
            self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waits:
            # The end of the wait sets the timer again.
            return
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
            return
        self.is_over = True
        self._task.cancel()

    def end(self) -> None:
        """Cancel nothing any more: the attempt has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        # A task that outlives the attempt may still wait. Its end must set no timer.
        self._waits += 1


@contextmanager
def not_counted() -> Iterator[None]:
    """Do not count the time of this block for ``attempt_timeout``."""
    attempt = ATTEMPT.get()
    if attempt is None:
        yield
        return
    time = asyncio.get_running_loop().time
    attempt.wait_begins(time())
    try:
        yield
    finally:
        attempt.wait_ends(time())


def within(call: Call, limit_s: float, timed_out: Callable[[], BaseException]) -> Call:
    """Return *call*, cancelled when it takes longer than *limit_s*. Then it raises a timeout.

    It raises that also if the handler has ignored the cancellation and returned in the end, because
    its work was cut short.

    Args:
        timed_out: Makes the error.

    Cancellation:
        A cancellation that is not ours passes as it is, even at the moment of the timeout.
    """

    async def called(argument: Any) -> Any:
        task = asyncio.current_task()
        # For the type checker.
        assert task is not None  # noqa: S101
        cancelled_before = task.cancelling()
        attempt = AttemptTime(limit_s, task)
        token = ATTEMPT.set(attempt)
        failed: BaseException | None = None
        result: Any = None
        try:
            result = await call(argument)
        except GeneratorExit:
            attempt.end()
            # If the coroutine is closed by the garbage collector, that is in another context.
            with suppress(ValueError):
                ATTEMPT.reset(token)
            raise
        except BaseException as error:
            failed = error
        attempt.end()
        ATTEMPT.reset(token)
        if not attempt.is_over:
            if failed is not None:
                raise failed
            return result
        is_cancelled_by_others = task.uncancel() > cancelled_before
        if isinstance(failed, SystemExit | KeyboardInterrupt):
            raise failed
        if isinstance(failed, asyncio.CancelledError) and is_cancelled_by_others:
            raise failed
        raise timed_out() from failed

    return called
