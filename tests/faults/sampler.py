"""Looks at processes from outside, again and again: memory, threads, descriptors, processor time,
lines of logs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.faults.driver import Life
from tests.faults.processes import PROC, cpu_s
from tests.faults.slopes import Sample

EVERY_S = 1.0
# Each entry of a log begins with its date; what follows of it (a traceback) does not.
LINE = b"20"


@dataclass
class Sampler:
    """Takes samples of every process that runs."""

    lives: Callable[[], Iterable[Life]]
    samples: list[Sample] = field(default_factory=list)
    # How far a log was read, and its lines up to there.
    _logs: dict[str, tuple[int, int]] = field(default_factory=dict)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Sampler]:
        """Look while the block runs."""
        task = asyncio.create_task(self._watch(), name="sampler")
        try:
            yield self
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _watch(self) -> None:
        while True:
            for life in self.lives():
                if life.exit_code is None:
                    # It has ended just now, and a dead one tells no memory.
                    with suppress(OSError, KeyError):
                        self.samples.append(self._look(life))
            await asyncio.sleep(EVERY_S)

    def _look(self, life: Life) -> Sample:
        status = dict(
            line.split(":", 1)
            for line in (PROC / str(life.pid) / "status").read_text().splitlines()
        )
        descriptors = list(_descriptors(life.pid))
        return Sample(
            t=time.time(),
            process=life.name,
            memory_mb=int(status["VmRSS"].split()[0]) / 1024,
            threads=int(status["Threads"]),
            descriptors=len(descriptors),
            sockets=sum(one.startswith("socket:") for one in descriptors),
            cpu_s=cpu_s(life.pid),
            lines=self._lines(life),
        )

    def _lines(self, life: Life) -> int:
        at, lines = self._logs.get(life.name, (0, 0))
        with life.log.open("rb") as log:
            log.seek(at)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        lines += sum(line.startswith(LINE) for line in whole.split(b"\n"))
        self._logs[life.name] = at + len(whole), lines
        return lines


def _descriptors(pid: int) -> Iterable[str]:
    folder = PROC / str(pid) / "fd"
    for one in folder.iterdir():
        # Closed since it was listed.
        with suppress(FileNotFoundError):
            yield str(one.readlink())
