"""Calls of a handler in a context of their own, or in a task of their own.

Workers call handlers inline, in their own task and context. What a handler does to either would reach the handlers
after it, so once a handler has done something to them its channel calls it with these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from types import CoroutineType, coroutine
from typing import Any

Call = Callable[[Any], Awaitable[Any]]


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
