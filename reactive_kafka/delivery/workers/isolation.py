"""Keeps what one handler does to its task and its context from the handlers after it.

Workers call handlers inline, in their own task and context. So a handler that cancels its task or
sets a context variable would do that to the handlers after it. A look after each call (40 ns)
finds that out. From then on the channel calls its handlers in contexts, or in tasks, of their own.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import Context
from types import CoroutineType, coroutine
from typing import Any

from reactive_kafka.delivery.workers.worker import Worker
from reactive_kafka.verdicts.delivery_hook import Call

MOST_STRAYS = 16
"""A worker ends after it was cancelled this many times while no handler ran: that is not by
accident.
"""


class Isolation:
    """What the workers of one channel have learned about its handlers.

    A ``CancelledError`` has three possible meanings. It is our own, when a handler is interrupted
    for poison. It is a failure of the handler, while the workers are open. It is the application's,
    once they are closed or every task is being cancelled; only then does it end a worker.
    """

    def __init__(self, is_ending: Callable[[], bool]) -> None:
        # Returns True while every task is being cancelled, which is before the workers are closed.
        self._is_ending = is_ending
        # Each call gets a task of its own, too: a handler has left its task cancelled.
        self._in_tasks = False
        # Each call gets a context of its own: a handler has set context variables.
        self.in_contexts = False
        # Those contexts say what the call has: a handler's task or thread has asked.
        self._tells = False
        # No work will come any more. From now on only the application cancels workers.
        self.is_closed = False

    @property
    def _is_over(self) -> bool:
        return self.is_closed or self._is_ending()

    def apart(self, worker: Worker, call: Call) -> Call:
        """Return *call* as this worker makes it in its next stretch.

        That is *call* itself, until a handler has left something for those after it. In the first
        stretch of a worker, though, each call gets a context that says what it has: a task or a
        thread of these calls that asks for its message gets it. If none asks, later calls save
        the 2 µs.
        """
        if self._in_tasks:
            return lambda argument: in_task(call, argument, worker.fresh_context(tells=True))
        if self.in_contexts:
            return lambda argument: in_context(
                call, argument, worker.fresh_context(tells=self._tells)
            )
        if worker.is_new:
            worker.is_new = False
            return lambda argument: in_context(call, argument, worker.fresh_context(tells=True))
        return call

    def tell_calls(self) -> None:
        """Give each call from now on a context of its own that says what it has."""
        self.in_contexts = True
        self._tells = True

    async def call_returned(self, worker: Worker) -> None:
        """Look for what a call has left that has returned.

        Raises:
            CancelledError: The handler had cancelled its own task, and returned before that could
                reach it. In a task of its own it would have counted as cancelled.
        """
        # The handler may have ignored our interrupt and returned.
        worker.handler_ended()
        await self._contain(worker)

    async def call_raised(self, worker: Worker, error: BaseException) -> bool:
        """Look for what a call has left that has raised; return whether we had interrupted it.

        Raises:
            CancelledError: The application ends, and has cancelled the worker.
        """
        if isinstance(error, asyncio.CancelledError) and self._is_over and worker.is_cancelled:
            raise error
        try:
            await self._contain(worker)
        except asyncio.CancelledError:
            if self._is_over:
                raise
        return worker.handler_ended()

    async def _contain(self, worker: Worker) -> None:
        """Make sure that nothing a call has left reaches the next one."""
        if worker.has_changed_context:
            self.in_contexts = True
            worker.is_spent = True
        if worker.is_cancelled and not self._is_over:
            self.in_contexts = True
            self._in_tasks = True
            worker.is_spent = True
            try:
                # A cancellation that the task has not received yet is received here.
                await asyncio.sleep(0)
            finally:
                if not self._is_over:
                    worker.take_off_cancellation()

    async def done(self, worker: Worker, awaited: Sequence[Future[Any]]) -> None:
        """Return when all of these are done, even if an earlier handler's cancellation comes late.

        Cancellation:
            Only when the application ends; none of the futures is cancelled by it.
        """
        while pending := [future for future in awaited if not future.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError as error:
                self.stray(worker, error)

    async def let_others_run(self, worker: Worker) -> None:
        """Let the tasks run that are ready."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            self.stray(worker, error)

    def stray(self, worker: Worker, error: asyncio.CancelledError) -> None:
        """Ignore a cancellation that reached a worker while no handler ran in it.

        Raises:
            CancelledError: It is meant: the application ends, or the sender insists. Or the task
                was not cancelled at all, but something that it waited for was.
        """
        worker.strays += 1
        if self._is_over or worker.strays > MOST_STRAYS or not worker.is_cancelled:
            raise error
        self.in_contexts = True
        self._in_tasks = True
        worker.is_spent = True
        worker.take_off_cancellation()


@coroutine
def in_context(call: Call, argument: Any, context: Context) -> Generator[Any, Any, Any]:
    """Make a call in the current task, with each of its steps in *context*."""
    run = context.run
    made = run(call, argument)
    steps = made if isinstance(made, CoroutineType) else _awaited(made)
    step: Callable[[Any], Any] = steps.send
    given: Any = None
    while True:
        try:
            awaited = run(step, given)
        except StopIteration as end:
            return end.value
        try:
            given = yield awaited
            step = steps.send
        except GeneratorExit:
            run(steps.close)
            raise
        except BaseException as error:
            # What was awaited has raised, or we are cancelled. The traceback is to show the
            # handler's frames and not this one.
            here = error.__traceback__
            given = error.with_traceback(here and here.tb_next)
            step = steps.throw


async def in_task(call: Call, argument: Any, context: Context) -> Any:
    """Make a call in *context* and in a task of its own, so that a cancellation ends only that.

    Cancellation:
        The call is cancelled, once; this returns or raises what the call does after that.
    """
    task = asyncio.get_running_loop().create_task(
        _outcome(call, argument), context=context, name="handler"
    )
    result, ending = await task
    if ending is not None:
        raise ending
    return result


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _outcome(call: Call, argument: Any) -> tuple[Any, BaseException | None]:
    """Return what a call returned, and what it raised if raising that in a task would do harm.

    Such an exception would end the event loop, or close the coroutine that awaits the task.
    """
    try:
        return await call(argument), None
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as ending:
        return None, ending
