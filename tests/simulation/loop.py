"""An event loop on which the same seed gives the same run, in every process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

from reactive_kafka.testing import FakeClock, VirtualTimeLoop

T = TypeVar("T")


class SeededLoop(VirtualTimeLoop):
    """Brings what is ready into the order in which its tasks were made, before the seed shuffles
    it.

    asyncio keeps waiting tasks in sets, whose order is that of their addresses in memory: another
    one in each run.
    """

    def __init__(self, clock: FakeClock, seed: int) -> None:
        super().__init__(clock, seed)
        self._numbers = count(1)
        self._number_of: dict[int, int] = {}
        self.set_task_factory(self._make_task)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, context: Any = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
        # An address may serve again: the newest task counts.
        self._number_of[id(task)] = next(self._numbers)
        return task

    def _place(self, handle: Any) -> int:
        owner = getattr(handle._callback, "__self__", None)
        return self._number_of.get(id(owner), 0) if isinstance(owner, asyncio.Task) else 0

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            # stable: what belongs to no task keeps its order.
            order = sorted(ready, key=self._place)
            ready.clear()
            ready.extend(order)
        super()._run_once()


def run_seeded(main: Callable[[FakeClock], Coroutine[Any, Any, T]], seed: int) -> T:
    """Run ``main(clock)`` on a loop of its own, shuffled by *seed*."""
    clock = FakeClock(monotonic=1000.0)
    with asyncio.Runner(loop_factory=lambda: SeededLoop(clock, seed)) as runner:
        return runner.run(main(clock))
