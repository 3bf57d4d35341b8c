"""Calls the ``on_start`` hooks of an application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context

from reactive_kafka.handlers.declared_hooks import Hook, checked_hook
from reactive_kafka.handlers.signature import RAISED_BY, name_and_place
from reactive_kafka.tasks import outcome_of, outcome_text


async def run_start_hooks(
    hooks: Sequence[Hook], context: Context, then: Callable[[], None]
) -> None:
    """Run the hooks one after the other, each in a task of its own; then call *then*.

    A hook may cancel its own task, even late. The caller's task must live as long as the run, so
    no hook runs in it. *then* is called in the same turn of the loop in which the last hook ends:
    a task that a hook has started, and that asks for a channel in its first line, finds it.

    Args:
        context: The hooks run in it, and may change it.

    Raises:
        BaseException: What a hook has raised, with a note that names the hook; or *then*, without.
        RuntimeError: A hook has ended as cancelled. The code that starts the application was not
            cancelled.
    """
    if not hooks:
        then()
    for number, hook in enumerate(hooks, 1):

        async def run(hook: Hook = hook, is_last: bool = number == len(hooks)) -> None:
            try:
                await checked_hook("on_start", hook)()
            except BaseException as raised:
                raised.add_note(f"{RAISED_BY}on_start hook {name_and_place(hook)}")
                raise
            if is_last:
                then()

        error = await outcome_of(run, "on_start hook", None, context)
        if isinstance(error, asyncio.CancelledError):
            raise RuntimeError(
                f"the on_start hook {name_and_place(hook)} ended with {outcome_text(error)}"
            ) from error
        if error is not None:
            raise error
