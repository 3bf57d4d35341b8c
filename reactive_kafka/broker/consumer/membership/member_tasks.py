"""The tasks of one member of a group: what they have in common in both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from reactive_kafka.errors import FencedError, TransientBrokerError


class MemberTasks:
    """Runs the tasks of a member until it is closed. A task that raises has a bug."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run *work* in a task with this name."""
        self._tasks.append(asyncio.create_task(work, name=name))

    def raise_ended(self) -> None:
        """Raise why a task has ended.

        Raises:
            TransientBrokerError: One has ended, which makes the client useless.
        """
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise TransientBrokerError(f"the client has stopped working: {error!r}") from error

    async def end(self, caller: asyncio.Task[Any] | None) -> None:
        """Cancel the tasks, and wait until they have ended, without the *caller*.

        Raises nothing but cancellation.
        """
        others = [task for task in self._tasks if task is not caller]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)


def fenced(instance_id: str | None) -> FencedError:
    """Return the error of a static member whose id another consumer has now."""
    return FencedError(
        f"another consumer has joined the group with group_instance_id = {instance_id!r}, which "
        "only one at a time may have: this one stops"
    )
