"""Sources: async generators of the application, pulled as fast as their outgoing channels take
records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, cast

from reactive_kafka.handlers.dependencies.filling import Dependencies
from reactive_kafka.handlers.middleware import around_send
from reactive_kafka.handlers.spec import SourceSpec
from reactive_kafka.outgoing.handler_outputs import Outputs
from reactive_kafka.outgoing.memory import Target
from reactive_kafka.tasks import Handle, Tasks
from reactive_kafka.verdicts.unawaited import CALLER, Caller, raise_if_dropped

ENDED_S = 2.0
"""How long a source may take to clean up when the application stops."""


class Sources:
    """The sources of one run."""

    def __init__(
        self,
        specs: Sequence[SourceSpec],
        outgoing: Callable[[str], Target],
        dependencies: Dependencies,
        tasks: Tasks,
    ) -> None:
        self._sources = list[tuple[str, Callable[[], AsyncIterator[Any]], list[Target], Outputs]]()
        for spec in specs:
            channels = [outgoing(name) for name in spec.outgoing]
            around = around_send(spec.send_middleware)
            outputs = Outputs(
                channels, settles=False, yields=False, around=around, returns=spec.returns
            )
            self._sources.append(
                (spec.name, dependencies.source(spec.function, spec.needs), channels, outputs)
            )
        self._tasks = tasks
        self._running: list[Handle] = []

    def start(self) -> None:
        """Begin to pull each of them."""
        tasks = self._tasks
        for name, function, channels, outputs in self._sources:
            work = partial(_pull, name, function, outputs)
            handle = tasks.start(work, f"source {name}", partial(_fail, channels))
            if handle is not None:
                self._running.append(handle)

    async def stop(self) -> None:
        """Pull no more, and let them clean up; what they have yielded is still written."""
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
            await outputs.put(value, _told)
            if task is not None and task.cancelling():
                # The application stops, and the source has ignored it.
                return
        raise_if_dropped(who)
    finally:
        await values.aclose()


def _told(error: BaseException | None) -> None:
    """A record of a source is written, or refused, which its channel has told: there is nobody to
    nack it to.
    """


def _fail(channels: Sequence[Target], error: BaseException) -> None:
    for channel in channels:
        channel.writer.fail(error)
