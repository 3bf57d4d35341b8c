"""What every contender measures, in the same way: from the first record to the last one.

A no-op handler of any contender contains the same two lines, so that counting costs each of them the same::

    nonlocal seen, mark
    seen += 1
    if seen == mark:
        mark = meter.reached(seen)
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from dataclasses import asdict, dataclass

from benchmarks.figures import CPU, RATE, RECORDS, RSS, Figures
from benchmarks.memory import peak_mb


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a contender is asked to do.

    Args:
        bootstrap: ``host:port`` of the broker.
        topic: Read from its beginning.
        group: A consumer group that nobody used before.
        records: How many to handle; the topic holds at least as many.
        wait_s: How long the handler sleeps for each record; 0 for a handler that does nothing.
        target: The topic to write to, if that is what it does.
        registry: Where the schemas of the topic are, if it has any.
    """

    bootstrap: str
    topic: str
    group: str
    records: int
    wait_s: float = 0.0
    target: str = ""
    registry: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run of a contender took.

    Args:
        records: How many were handled between the two readings of the clock.
        wall_s: From the first handler call to the end of the last one, in seconds.
        cpu_s: User and system time of the whole process in that span, in seconds.
        peak_rss_mb: Largest resident memory of the process in its whole life, in MB.
    """

    records: int
    wall_s: float
    cpu_s: float
    peak_rss_mb: float

    def figures(self) -> Figures:
        """The same as tables have it."""
        return {
            RECORDS: self.records,
            RATE: self.records / self.wall_s,
            CPU: self.cpu_s / self.records * 1e6,
            RSS: self.peak_rss_mb,
        }

    def write(self) -> None:
        """Print it as the last line of the process."""
        print(json.dumps(asdict(self)), flush=True)


class Meter:
    """Reads the clocks at the first and at the last of *records* records."""

    def __init__(self, records: int) -> None:
        self.records = records
        self._done = asyncio.Event()
        self._began = 0.0
        self._cpu_began = 0.0
        self._wall_s = 0.0
        self._cpu_s = 0.0

    def begin(self) -> None:
        """The first record has come: the span begins."""
        gc.collect()
        self._cpu_began = time.process_time()
        self._began = time.perf_counter()

    def end(self) -> None:
        """The last record is handled: the span ends."""
        self._wall_s = time.perf_counter() - self._began
        self._cpu_s = time.process_time() - self._cpu_began
        self._done.set()

    def reached(self, seen: int) -> int:
        """Take a reading at the first and the last record; the count at which to call again, -1 for
        never.
        """
        if seen == 1:
            self.begin()
            return self.records
        self.end()
        return -1

    @property
    def finished(self) -> bool:
        """Whether the last record was handled."""
        return self._done.is_set()

    async def wait(self) -> None:
        """Return when the last record was handled."""
        await self._done.wait()

    def result(self) -> Result:
        """The readings, for the process as it stands now."""
        return Result(
            records=self.records, wall_s=self._wall_s, cpu_s=self._cpu_s, peak_rss_mb=peak_mb()
        )
