"""How late an event loop turns, and how much memory processes hold."""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.memory import peak_mb
from benchmarks.spark.figures import Spread

TICK_S = 0.005
# Ticks.
MEMORY_EVERY = 20
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


class Gauges:
    """Samples the loop that it is entered in and this process's memory, apart for each phase.

    Attributes:
        phase: What samples are counted under from now on; the empty one is never asked for.
    """

    def __init__(self) -> None:
        self.phase = ""
        self._lags: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._memory: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._sample(), name="gauges")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _sample(self) -> None:
        turn = 0
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self._lags[self.phase].append(max(0.0, time.perf_counter() - due) * 1e3)
            turn += 1
            if turn % MEMORY_EVERY == 0:
                self._memory[self.phase].append(resident_mb())

    def lag_ms(self, phase: str) -> Spread:
        """How late the loop turned in a phase."""
        return Spread.of(self._lags[phase])

    def rss_mb(self, phase: str) -> Spread:
        """What was resident in a phase."""
        return Spread.of(self._memory[phase])


def resident_mb() -> float:
    """What of this process is in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MB


def driver_mb(spark: Any) -> float:
    """The largest resident memory of a classic session's Java process so far."""
    return peak_mb(spark.sparkContext._gateway.proc.pid)
