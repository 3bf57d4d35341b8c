"""Tasks and their owners: what escapes from a task fails its owner, and nothing else.

Every background task is started here. Its owner (a channel, the application) gets what the task
raises: an exception, a CancelledError that none of us has sent, or any other BaseException.

There is no task group underneath. A task group cancels all of its tasks if one raises, and takes a
cancelled one for a success. anyio's cancels again and again until a task has ended: no cleanup
could await anything, and a handler that ignores its cancellation would use up a core.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from math import floor, inf
from threading import get_ident
from typing import Any, Generic, Literal, NoReturn, Protocol, TypeVar, cast

from reactive_kafka.errors import ChannelClosedError, UnexpectedEndError, describe

logger = logging.getLogger("reactive_kafka")

T = TypeVar("T")

CLEANED_UP_S = 2.0
"""How long a task may clean up after it was cancelled for taking too long."""

Work = Callable[[], Awaitable[None]]


class Spawn(Protocol):
    """Starts a named task of an owner, which gets what the task raises.

    The task ends with the application at the latest. It runs in *context*, or in a copy of the
    caller's. None is returned if the application has ended its tasks.
    """

    def __call__(
        self, work: Work, name: str, context: Context | None = None, /
    ) -> Handle | None: ...


Fails = Callable[[BaseException], object]
"""Called with what has escaped from a task."""


def log_failure(error: BaseException) -> None:
    """Log what a task without another owner has raised."""
    logger.error("a task has failed: %s", describe(error), exc_info=error)


class Handle:
    """A started task."""

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
        """Cancel the task, once. Its owner is not told."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.task.cancel()

    async def _run(
        self, work: Work, name: str, fails: Fails, is_ending: Callable[[], bool]
    ) -> None:
        try:
            await work()
        except KeyboardInterrupt:
            # A Ctrl-C hits whatever runs at the moment. It ends the loop.
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and (self.is_cancelled or is_ending()):
                return
            owner_error = _cause(error, name)
            try:
                fails(owner_error)
            except BaseException:
                # The owner cannot be told, so the error is logged. Other tasks continue.
                logger.exception(
                    "the task %r has failed, and so did telling its owner",
                    name,
                    exc_info=owner_error,
                )


def _cause(error: BaseException, name: str) -> BaseException:
    """Return the error that the owner gets.

    A task group or a cancellation may hide it: a group with one error is unwrapped, and an error
    that is no ``Exception`` becomes an UnexpectedEndError.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, Exception):
        return error
    unexpected = UnexpectedEndError(name, error)
    unexpected.__cause__ = error
    return unexpected


class Tasks:
    """The background tasks of an application. Create it in the task that ends them.

    The loop may cancel that task and all of these at once (``asyncio.run`` does so at its end):
    that is not counted as a failure.
    """

    def __init__(self) -> None:
        self._home = asyncio.current_task()
        self._running: dict[asyncio.Task[None], Handle] = {}
        self._is_over = False

    def of(self, fails: Fails) -> Spawn:
        """Return a function that starts the tasks of one owner."""

        def spawn(work: Work, name: str, context: Context | None = None) -> Handle | None:
            return self.start(work, name, fails, context)

        return spawn

    def start(
        self, work: Work, name: str, fails: Fails, context: Context | None = None
    ) -> Handle | None:
        """Start a task. Returns None if the application has already ended its tasks."""
        if self._is_over:
            return None
        handle = Handle(work, name, fails, self.is_ending, context)
        self._running[handle.task] = handle
        handle.task.add_done_callback(self._running.pop)
        return handle

    def is_ending(self) -> bool:
        """True if all tasks are being cancelled, by :meth:`end` or by the end of the loop."""
        return self._is_over or (self._home is not None and self._home.cancelling() > 0)

    async def end(self, within_s: float) -> list[str]:
        """Cancel each task once, and wait for their ends. Returns the names of those that are late.

        A task that ignores its cancellation is left alone: cancelled again and again it would use
        up a core.
        """
        self._is_over = True
        is_home_cancelled = self._home is not None and self._home.cancelling() > 0
        # At its end the loop has cancelled all of them. A second time would cut off their cleanup.
        if not (is_home_cancelled and all(task.cancelling() for task in self._running)):
            for handle in list(self._running.values()):
                handle.cancel()
        if self._running:
            await asyncio.wait(list(self._running), timeout=within_s)
        return [task.get_name() for task in self._running]


async def all_ended(*works: Awaitable[object]) -> None:
    """Wait until all have ended. Then raise what one has raised, or a group of errors."""
    ends = await asyncio.gather(*works, return_exceptions=True)
    errors = [end for end in ends if isinstance(end, BaseException)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise BaseExceptionGroup("several have failed", errors)


TOGETHER_S = 0.1
"""Longer waits end at whole multiples of this."""


def aligned_wait_s(wait_s: float, now: float) -> float:
    """Return the wait, shortened by at most 0.1 s if that lets it end together with others.

    In an idle process waking the loop costs most: 0.1 to 0.2 ms, whatever is done then.
    """
    if not 1 <= wait_s < inf:
        return wait_s
    # The small number keeps a float of 49.99999 from being rounded down.
    return floor((now + wait_s) / TOGETHER_S + 1e-6) * TOGETHER_S - now


class Flag:
    """Wakes the tasks that wait until it is set. Behaves as ``asyncio.Event`` does.

    That one holds a deque of 600 bytes from its start. A channel has twenty, and in most of them
    nobody waits.
    """

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        # In the order in which they came. None: nobody waits.
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """True if nobody has to wait."""
        return self._is_set

    def set(self) -> None:
        """Wake all who wait. Nobody has to wait until :meth:`clear` is called."""
        if self._is_set:
            return
        self._is_set = True
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Let the next :meth:`wait` wait. Those that were woken stay so."""
        self._is_set = False

    async def wait(self) -> Literal[True]:
        """Wait until it is set. Returns at once if it is."""
        if self._is_set:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        waiters = self._waiters
        waiters.append(waiter)
        try:
            await waiter
            return True
        finally:
            waiters.remove(waiter)
            if not waiters:
                self._waiters = None


async def is_set_within(flag: Flag, timeout_s: float | None) -> bool:
    """Wait for a flag, for at most *timeout_s* if that is given. True if it was set."""
    try:
        async with asyncio.timeout(None if timeout_s is None else max(0.0, timeout_s)):
            return await flag.wait()
    except TimeoutError:
        return False


class NoEndError(TimeoutError):
    """A call took longer than allowed, and was cancelled."""


async def outcome_of(
    work: Callable[[], Awaitable[object]],
    name: str,
    within_s: float | None,
    context: Context | None = None,
    cleanup_s: float = CLEANED_UP_S,
) -> BaseException | None:
    """Run a call, which may be user code, in its own task. Returns what it raised, or None.

    Whatever it does to its task (cancelling it, asking the process to end) stays there. It runs in
    *context*, and may change it; None: in a copy of the caller's.

    Returns:
        NoEndError if it has not ended *within_s*. It is cancelled once, and left alone if it has
        not ended *cleanup_s* later.

    Cancellation:
        It is cancelled, too, once, and has the same time for its cleanup.
    """

    async def work_and_catch() -> BaseException | None:
        try:
            await work()
        except BaseException as error:
            return error
        return None

    task = asyncio.create_task(work_and_catch(), name=name, context=context)
    is_late = False
    try:
        await asyncio.wait([task], timeout=within_s)
        is_late = not task.done()
    finally:
        if not task.done():
            # When the loop ends, it has cancelled the task already. A second time would cut off its
            # cleanup.
            if is_late or not task.cancelling():
                task.cancel()
            await asyncio.wait([task], timeout=cleanup_s)
    if is_late and within_s is not None:
        return NoEndError(f"no end within {round(within_s, 2):g} s")
    # A task that cancels itself in its last step raises nothing in there.
    return asyncio.CancelledError() if task.cancelled() else task.result()


def outcome_text(error: BaseException) -> str:
    """Return the text for an outcome."""
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: it cancelled itself, or awaited what was cancelled"
    return str(error) if isinstance(error, NoEndError) else describe(error)


class HomeLoop:
    """The event loop of an object, for calls from any thread. Create it on that loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = get_ident()

    @property
    def is_here(self) -> bool:
        """True if the caller is on the loop's thread."""
        return get_ident() == self._thread

    def call(self, call: Callable[[], T], when_ended: Callable[[], T]) -> T:
        """Return what *call* returns or raises on the loop. Another thread waits for it.

        *when_ended* is called instead if the loop is closed.
        """
        if self.is_here:
            return call()
        return self.send(lambda answer: answer.set_result(call()), when_ended).result()

    def send(
        self, call: Callable[[concurrent.futures.Future[T]], object], when_ended: Callable[[], T]
    ) -> concurrent.futures.Future[T]:
        """Have *call* set an answer on the loop. Calls of one thread keep their order.

        What *call* raises is the answer, too. *when_ended* gives the answer if the loop is closed.
        """
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        # From now on a loop that awaits the answer cannot cancel it.
        answer.set_running_or_notify_cancel()
        sent = _SentCall(call, answer, when_ended)
        # The loop is closed if this raises: the application has stopped.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(sent)
        # It may also have been closed in between.
        if self.loop.is_closed():
            sent.end()
        return answer


class _SentCall(Generic[T]):
    """A call that a loop is to make once.

    A loop that is closed before it turns drops the call. Then the answer is that of *when_ended*,
    or the thread that waits for it would wait for ever.
    """

    __slots__ = ("_answer", "_call", "_is_over", "_when_ended")

    def __init__(
        self,
        call: Callable[[concurrent.futures.Future[T]], object],
        answer: concurrent.futures.Future[T],
        when_ended: Callable[[], T],
    ) -> None:
        self._call = call
        self._answer = answer
        self._when_ended = when_ended
        # It was made, or will not be.
        self._is_over = False

    def __call__(self) -> None:
        self._is_over = True
        try:
            self._call(self._answer)
        except BaseException as error:
            # Even SystemExit is for the calling thread, not for the loop.
            self._answer.set_exception(error)

    def __del__(self) -> None:
        self.end()

    def end(self) -> None:
        """Answer without the call, unless it was made."""
        if self._is_over:
            return
        self._is_over = True
        try:
            self._answer.set_result(self._when_ended())
        except Exception as error:
            # Like an error of the call itself.
            self._answer.set_exception(error)


async def at_home(home: HomeLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await a coroutine on the loop of the application, from any loop and thread.

    Raises:
        ChannelClosedError: The loop has ended, and the coroutine before its own end.

    Cancellation: The coroutine is cancelled, too.
    """
    if home.is_here:
        return await work()
    tasks: list[asyncio.Task[Any]] = []

    async def run() -> tuple[T | None, BaseException | None]:
        try:
            return await work(), None
        except (SystemExit, KeyboardInterrupt) as ending:
            # It is meant for the caller. Raised in a task, it would end the application's loop.
            return None, ending

    def cancel(_: object) -> None:
        for task in tasks:
            task.cancel()

    answer = home.send(partial(_start, run, tasks), has_stopped)
    try:
        result, ending = await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        # Calls of one thread keep their order, so the task has been created when this runs.
        home.send(cancel, lambda: None)
        raise
    if ending is not None:
        raise ending
    return cast(T, result)


def _start(
    work: Callable[[], Coroutine[Any, Any, Any]],
    tasks: list[asyncio.Task[Any]],
    answer: concurrent.futures.Future[Any],
) -> None:
    """Start the task of a call, which its caller on another loop may cancel, and answer it."""
    task = asyncio.create_task(work())
    tasks.append(task)
    task.add_done_callback(partial(_answer_with, answer))


def _answer_with(answer: concurrent.futures.Future[Any], task: asyncio.Task[Any]) -> None:
    """Pass on the outcome of a task to its caller on another loop."""
    if task.cancelled() and task.cancelling():
        # The loop ends, and has cancelled all tasks; or the caller has, and does not look.
        answer.set_exception(has_stopped_error())
    elif task.cancelled():
        answer.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


def has_stopped() -> NoReturn:
    """Raise the error of a call to an application whose loop is closed."""
    raise has_stopped_error()


def has_stopped_error() -> ChannelClosedError:
    """Return the error of a call to an application whose loop is closed."""
    return ChannelClosedError("the application has stopped")
