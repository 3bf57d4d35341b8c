"""Keeps what a handler leaves in the task and the context of its worker from the handlers after it.

Workers call handlers inline, in their own task and context. What a handler does to either would reach the handlers
after it, so once a handler has done something to them its channel calls it in a context or in a task of its own.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import Context
from types import CoroutineType, coroutine
from typing import Any

from reactive_kafka.delivery.worker import Worker
from reactive_kafka.verdicts.hook import Call

MOST_STRAYS = 16
"""After so many cancellations that nobody awaits a worker ends: whoever sends them means it."""


class Isolation:
    """What the workers of one channel know about the habits of its handlers.

    Args:
        is_ending: Whether every task is being cancelled, before the workers are closed.

    Attributes:
        is_closed: No work will come any more; who cancels a worker from now on is the application.
        in_contexts: Each call gets a context of its own: a handler sets context variables.
    """

    def __init__(self, is_ending: Callable[[], bool]) -> None:
        self._is_ending = is_ending
        self._in_tasks = False  # a call gets a task of its own, too: a handler leaves its task cancelled
        self.in_contexts = False
        self.is_closed = False

    @property
    def _is_over(self) -> bool:
        return self.is_closed or self._is_ending()

    def apart(self, worker: Worker, call: Call) -> Call:
        """*call* as this worker makes it: as it is, until a handler has left something for those after it."""
        if self._in_tasks:
            return lambda argument: in_task(call, argument, worker.fresh_context())
        if self.in_contexts:
            return lambda argument: in_context(call, argument, worker.fresh_context())
        return call

    async def call_returned(self, worker: Worker) -> None:
        """A call has returned, and may have left something.

        Raises:
            CancelledError: It had cancelled its own task, and returned before that could reach it. A task of its own
                would have counted as cancelled.
        """
        worker.handler_ended()  # also where it has ignored our interrupt
        await self._look(worker)

    async def call_raised(self, worker: Worker, error: BaseException) -> bool:
        """A call has raised; whether it was interrupted for poison.

        Raises:
            CancelledError: The application ends, and has cancelled the worker.
        """
        if isinstance(error, asyncio.CancelledError) and self._is_over and worker.is_cancelled:
            raise error
        try:
            await self._look(worker)
        except asyncio.CancelledError:
            if self._is_over:
                raise
        return worker.handler_ended()

    async def _look(self, worker: Worker) -> None:
        """Make sure that nothing a call has left reaches the next one."""
        if worker.has_strange_values:
            self.in_contexts = worker.is_spent = True
        if worker.is_cancelled and not self._is_over:
            self.in_contexts = self._in_tasks = worker.is_spent = True
            try:
                await asyncio.sleep(0)  # a cancellation that is still to come, comes here
            finally:
                if not self._is_over:
                    worker.take_off_cancellation()

    async def done(self, worker: Worker, awaited: Sequence[Future[Any]]) -> None:
        """Wait until all of these are done, even if an earlier handler's late cancellation arrives meanwhile.

        Cancellation:
            Only when the application ends; none of the futures is cancelled by it.
        """
        while pending := [one for one in awaited if not one.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError as error:
                self.stray(worker, error)

    async def let_others_run(self, worker: Worker) -> None:
        """Give the loop to whatever else is ready."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            self.stray(worker, error)

    def stray(self, worker: Worker, error: asyncio.CancelledError) -> None:
        """A worker was cancelled, and no handler runs in it.

        Raises:
            CancelledError: It is meant: the application ends, or somebody insists. Or its task was not cancelled at
                all, and something that it waits for was.
        """
        worker.strays += 1
        if self._is_over or worker.strays > MOST_STRAYS or not worker.is_cancelled:
            raise error
        self.in_contexts = self._in_tasks = worker.is_spent = True
        worker.take_off_cancellation()


@coroutine
def in_context(call: Call, argument: Any, context: Context) -> Generator[Any, Any, Any]:
    """Make a call in the task that awaits this, and in *context*: each of its steps runs there."""
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
        except BaseException as error:  # what was awaited has raised, or we are cancelled
            here = error.__traceback__
            given, step = error.with_traceback(here and here.tb_next), steps.throw  # without this frame of ours


async def in_task(call: Call, argument: Any, context: Context) -> Any:
    """Make a call in *context* and in a task of its own, so that cancelling that task cancels this call only.

    Cancellation:
        The call is cancelled, once; it returns or raises what the call does after that.
    """
    task = asyncio.get_running_loop().create_task(_outcome(call, argument), context=context, name="handler")
    result, ending = await task
    if ending is not None:
        raise ending
    return result


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _outcome(call: Call, argument: Any) -> tuple[Any, BaseException | None]:
    """What a call returned, and what it raised if that would end the loop or close the coroutine awaiting the task."""
    try:
        return await call(argument), None
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as ending:
        return None, ending
