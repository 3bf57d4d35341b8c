"""Tasks and their owners: what escapes from a task fails its owner, and nobody else.

Every task that goes on in the background is started here. Its owner (a channel, the application)
hears of whatever it raises: an exception, a CancelledError that nobody of ours has sent, or any
other BaseException.

There is no task group underneath. A group cancels all of its tasks for one that raises, and takes
one that was cancelled for a success. anyio's cancels again and again until a task has ended: no
cleanup could await anything, and a handler that ignores its cancellation would take a core.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from math import floor, inf
from threading import get_ident
from typing import Protocol, TypeVar

from reactive_kafka.errors import UnexpectedEndError, describe

logger = logging.getLogger("reactive_kafka")

T = TypeVar("T")

CLEANED_UP_S = 2.0
"""How long what was cancelled for taking too long may take to clean up."""

Work = Callable[[], Awaitable[None]]


class Spawn(Protocol):
    """Starts a task with a name, which ends with the application; its owner hears of what it
    raises.

    The task runs in the context that is given, or else in a copy of the caller's.
    """

    def __call__(self, work: Work, name: str, context: Context | None = None, /) -> object: ...


Fails = Callable[[BaseException], object]
"""Told what has escaped from a task."""


def log_failure(error: BaseException) -> None:
    """Where a task has no other owner than whoever reads the log."""
    logger.error("a task has failed: %s", describe(error), exc_info=error)


class Handle:
    """A task that was started."""

    def __init__(
        self,
        work: Work,
        name: str,
        fails: Fails,
        is_ending: Callable[[], bool] = lambda: False,
        context: Context | None = None,
    ) -> None:
        self.is_cancelled = False
        self.task = asyncio.create_task(
            self._run(work, name, fails, is_ending), name=name, context=context
        )

    def cancel(self) -> None:
        """Cancel it, once; whoever owns it does not hear of that."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.task.cancel()

    async def _run(
        self, work: Work, name: str, fails: Fails, is_ending: Callable[[], bool]
    ) -> None:
        try:
            await work()
        except KeyboardInterrupt:
            # Somebody's Ctrl-C, which hits whatever runs at the moment: the loop ends for it.
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and (self.is_cancelled or is_ending()):
                return
            cause = _cause(error, name)
            try:
                fails(cause)
            except BaseException:
                # The owner cannot hear of it: the log is what is left, and its neighbours go on.
                logger.exception(
                    "the task %r has failed, and so did telling its owner", name, exc_info=cause
                )


def _cause(error: BaseException, name: str) -> BaseException:
    """What an owner is told: an error that is a reason, also where a task group or a cancellation
    hides it.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, Exception):
        return error
    unexpected = UnexpectedEndError(name, error)
    unexpected.__cause__ = error
    return unexpected


class Tasks:
    """The background tasks of an application; made in the task that ends them.

    The loop may cancel that task and all of these at once (``asyncio.run`` does at its end): that
    is nobody's failure.
    """

    def __init__(self) -> None:
        self._home = asyncio.current_task()
        self._running: dict[asyncio.Task[None], Handle] = {}
        self._is_over = False

    def of(self, fails: Fails) -> Spawn:
        """What starts the tasks of one owner."""

        def spawn(work: Work, name: str, context: Context | None = None) -> Handle | None:
            return self.start(work, name, fails, context)

        return spawn

    def start(
        self, work: Work, name: str, fails: Fails, context: Context | None = None
    ) -> Handle | None:
        """Start a task; None once the application has ended them all: what comes after that is not
        begun.
        """
        if self._is_over:
            return None
        handle = Handle(work, name, fails, self.is_ending, context)
        self._running[handle.task] = handle
        handle.task.add_done_callback(self._running.pop)
        return handle

    def is_ending(self) -> bool:
        """Whether all of them are being cancelled: by :meth:`end`, or by the end of the loop."""
        return self._is_over or (self._home is not None and self._home.cancelling() > 0)

    async def end(self, within_s: float) -> list[str]:
        """Cancel each task once, and wait for their ends; the names of those that have not come to
        it in time.

        A task that ignores its cancellation is left alone from then on: cancelled again and again
        it would take a core.
        """
        self._is_over = True
        # The loop has cancelled all of them already where it ends: once more would cut off their
        # cleanup.
        if not (
            self._home is not None
            and self._home.cancelling()
            and all(one.cancelling() for one in self._running)
        ):
            for handle in list(self._running.values()):
                handle.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=within_s)
        return [task.get_name() for task in self._running]


async def each(*works: Awaitable[object]) -> None:
    """Wait for the end of all of them, and raise then what one of them has raised; a group, where
    several have.
    """
    ends = await asyncio.gather(*works, return_exceptions=True)
    errors = [end for end in ends if isinstance(end, BaseException)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise BaseExceptionGroup("several have failed", errors)


TOGETHER_S = 0.1


def ends_with_others(wait_s: float, now: float) -> float:
    """A wait of a second or more, made shorter by a tenth of one at most, so that it ends when
    those of others do.

    Where nothing comes in, that the loop wakes up at all costs most: 0.1 to 0.2 ms, whatever it
    does then.
    """
    if not 1 <= wait_s < inf:
        return wait_s
    # A whole tenth is one, if a float says 49.99.
    return floor((now + wait_s) / TOGETHER_S + 1e-6) * TOGETHER_S - now


async def is_set_within(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait for an event, not longer than *timeout_s*, if given; whether it was set."""
    try:
        async with asyncio.timeout(None if timeout_s is None else max(0.0, timeout_s)):
            return await event.wait()
    except TimeoutError:
        return False


class NoEndError(TimeoutError):
    """It was cancelled, for it took longer than it may."""


async def outcome_of(
    work: Callable[[], Awaitable[object]],
    name: str,
    within_s: float | None,
    context: Context | None = None,
    cleanup_s: float = CLEANED_UP_S,
) -> BaseException | None:
    """Run what may be anybody's in a task of its own, and return what it raised; None: it came to
    its end.

    Whatever it does to its task (cancels it, asks the process to end) stays in there. It runs in
    *context*, and may change it; None: a copy of the caller's.

    Returns:
        NoEndError where it has not ended *within_s*: it is cancelled once, and left alone where it
            has not come to its
        end *cleanup_s* later.

    Cancellation:
        It is cancelled, too, once, and gets the same time for its cleanup.
    """

    async def run() -> BaseException | None:
        try:
            await work()
        except BaseException as error:
            return error
        return None

    task = asyncio.create_task(run(), name=name, context=context)
    is_late = False
    try:
        await asyncio.wait([task], timeout=within_s)
        is_late = not task.done()
    finally:
        if not task.done():
            # Else the loop ends, and a second one would cut off its cleanup.
            if is_late or not task.cancelling():
                task.cancel()
            await asyncio.wait([task], timeout=cleanup_s)
    if is_late and within_s is not None:
        return NoEndError(f"no end within {round(within_s, 2):g} s")
    # By itself, in its last step: there was no wait any more to raise in.
    return asyncio.CancelledError() if task.cancelled() else task.result()


def told_of(error: BaseException) -> str:
    """What is said of an outcome."""
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: it cancelled itself, or awaited what was cancelled"
    return str(error) if isinstance(error, NoEndError) else describe(error)


class HomeLoop:
    """The event loop that an object lives in, for calls from any thread. Made on that loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = get_ident()

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's thread."""
        return get_ident() == self._thread

    def call(self, call: Callable[[], T], when_ended: Callable[[], T]) -> T:
        """What *call* returns or raises on the loop, or *when_ended* once it is over. Another
        thread waits for it.
        """
        if self.is_here:
            return call()
        return self.send(lambda answer: answer.set_result(call()), when_ended).result()

    def send(
        self, call: Callable[[concurrent.futures.Future[T]], object], when_ended: Callable[[], T]
    ) -> concurrent.futures.Future[T]:
        """Have *call* set an answer on the loop; what it raises is the answer, too. Calls of one
        thread keep order.
        """
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        # A loop that awaits it cannot cancel it from now on.
        answer.set_running_or_notify_cancel()

        def run() -> None:
            try:
                call(answer)
            except BaseException as error:
                # Even SystemExit is for the thread that asked, and not for the loop.
                answer.set_exception(error)

        try:
            self.loop.call_soon_threadsafe(run)
        except RuntimeError:
            # The loop is closed: the application has stopped.
            try:
                answer.set_result(when_ended())
            except Exception as error:
                # As of the call itself.
                answer.set_exception(error)
        return answer
