"""Pulls values from the sources of an application, as fast as their channels take records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, cast

from reactive_kafka.handlers.dependencies.filling import Dependencies
from reactive_kafka.handlers.middleware import around_send
from reactive_kafka.outgoing.handler_outputs import Outputs
from reactive_kafka.outgoing.target import Target
from reactive_kafka.planning.channel_plans import SourcePlan
from reactive_kafka.tasks import Handle, Tasks
from reactive_kafka.verdicts.unawaited import CALLER, Caller, raise_if_dropped

ENDED_S = 2.0
"""How long a source may take to clean up when the application stops."""


class Sources:
    """The sources of one run."""

    def __init__(
        self,
        plans: Sequence[SourcePlan],
        outgoing: Callable[[str], Target],
        dependencies: Dependencies,
        tasks: Tasks,
    ) -> None:
        self._sources = list[tuple[str, Callable[[], AsyncIterator[Any]], list[Target], Outputs]]()
        for plan in plans:
            channels = [outgoing(name) for name in plan.outgoing]
            around = around_send(plan.send_middleware)
            outputs = Outputs(
                channels, settles=False, yields=False, around=around, returns=plan.returns
            )
            function = dependencies.source(plan.function, plan.needs)
            self._sources.append((plan.name, function, channels, outputs))
        self._tasks = tasks
        self._running: list[Handle] = []

    def start(self) -> None:
        """Begin to pull values from each source."""
        tasks = self._tasks
        for name, function, channels, outputs in self._sources:
            work = partial(_pull, name, function, outputs)
            handle = tasks.start(work, f"source {name}", partial(_fail, channels))
            if handle is not None:
                self._running.append(handle)

    async def stop(self) -> None:
        """Pull no more, and let the sources clean up. What they have yielded is still written."""
        for handle in self._running:
            handle.cancel()
        if self._running:
            await asyncio.wait([handle.task for handle in self._running], timeout=ENDED_S)


async def _pull(name: str, function: Callable[[], AsyncIterator[Any]], outputs: Outputs) -> None:
    values = cast("AsyncGenerator[Any, None]", function())
    task = asyncio.current_task()
    who = f"source {name}"
    CALLER.set(Caller())
    try:
        async for value in values:
            raise_if_dropped(who)
            await outputs.put(value, _ignore_outcome)
            if task is not None and task.cancelling():
                # The application stops, and the source has swallowed its cancellation.
                return
        raise_if_dropped(who)
    finally:
        await values.aclose()


def _ignore_outcome(error: BaseException | None) -> None:
    """Do nothing: a source has no record to ack or nack.

    Its channel reports a record that was refused.
    """


def _fail(channels: Sequence[Target], error: BaseException) -> None:
    for channel in channels:
        channel.writer.fail(error)
