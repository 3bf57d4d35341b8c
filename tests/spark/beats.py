"""Spark jobs whose Python tasks write to a file for as long as they run: what shows that a task
lives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EVERY_S = 0.01
# 50 beats: nothing tells of a beat that does not come.
QUIET_S = 0.5


class Beats:
    """The beats of a job's tasks.

    Args:
        folder: Where the file is, on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "beats"
        self._end = folder / "end"

    def __len__(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0

    def let_end(self) -> None:
        """Let tasks, also those to come, return."""
        self._end.touch()

    def held(self, limit_s: float = 120.0) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """For ``mapInArrow``: the rows as they are, but only after :meth:`let_end`; until then it
        beats.
        """
        file, end, beats = str(self._file), str(self._end), int(limit_s / EVERY_S)

        def hold(rows: Iterator[Any]) -> Iterator[Any]:
            import os

            for _ in range(beats):
                if os.path.exists(end):  # noqa: PTH110 - pickled, and run elsewhere
                    break
                with open(file, "a") as out:  # noqa: PTH123
                    out.write(".")
                time.sleep(EVERY_S)
            yield from rows

        return hold

    def job(self, tasks: int = 1) -> Callable[[Any], int]:
        """A function for the engine: *tasks* Python tasks beat until :meth:`let_end`. Returns the
        rows, one a task.
        """
        hold = self.held()
        return lambda spark: len(
            spark.range(0, tasks, 1, tasks).mapInArrow(hold, "id long").collect()
        )

    async def begun(self, limit_s: float = 60.0) -> None:
        """Wait for the first one."""
        await soon(lambda: len(self) > 0, limit_s)

    async def are_over(self) -> bool:
        """Whether there were some, and no further one comes."""
        at_once = len(self)
        await asyncio.sleep(QUIET_S)
        return 0 < at_once == len(self)


async def soon(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    """Poll until *condition* is true; it must be quick.

    Raises:
        TimeoutError: It did not become true in time.
    """
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - another process's state: nobody could set an event
            await asyncio.sleep(0.02)
