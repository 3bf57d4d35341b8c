"""Calls of functions that block: each runs in a worker thread.

A thread cannot be ended. A call that is cancelled continues in its thread, and the process must not
wait for it at exit.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from anyio import CapacityLimiter, to_thread

_running: set[object] = set()
"""One token for each call that is in its thread now, whether or not anybody awaits it."""


def calls_in_threads() -> int:
    """Return how many blocking calls have not returned."""
    return len(_running)


def as_async(
    function: Callable[..., Any], limiter: CapacityLimiter | None = None
) -> Callable[..., Awaitable[Any]]:
    """Return the function as one that is awaited. One that is not async runs in a thread.

    Args:
        limiter: How many threads may run at once. None: anyio's own limit.
    """
    if inspect.iscoroutinefunction(function):
        return function

    def run(*arguments: Any) -> tuple[Any, GeneratorExit | None]:
        token = object()
        _running.add(token)
        try:
            return function(*arguments), None
        except GeneratorExit as raised:
            # It is returned instead of raised: a future that held a GeneratorExit would close the
            # coroutines that await it.
            return None, raised
        finally:
            _running.discard(token)

    async def call(*arguments: Any) -> Any:
        # anyio gives the limiter back when the call is cancelled, though its thread runs on. So
        # calls are counted by the tokens.
        result, raised = await to_thread.run_sync(
            run, *arguments, limiter=limiter, abandon_on_cancel=True
        )
        if raised is not None:
            raise raised
        return await result if inspect.isawaitable(result) else result

    return call
