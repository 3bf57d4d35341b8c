"""What the figures were taken on."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

QUIET = 0.5
"""A load below this leaves the figures alone."""


SLOWED = 1.1
"""A loop that takes so many times its best was slowed down from outside: on a quiet machine it
varies by less.
"""


WAIT_S = 10.0
PAUSE_S = 0.5
"""How long others are waited for at most, and how often the loop is looked at meanwhile."""


class Pace:
    """Whether a loop on this machine is slower than it can be: other guests of its host are in no
    load.

    Args:
        loop: Gives what the loop takes.
        sleep: Waits for so many seconds.
    """

    def __init__(self, loop: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._loop = loop
        self._sleep = sleep
        self._best = math.inf
        self.looks = 0
        self.slowed = 0

    def wait(self) -> None:
        """Wait until the loop is about as fast as it ever was, for :data:`WAIT_S` at most."""
        self.looks += 1
        for _ in range(round(WAIT_S / PAUSE_S)):
            if not self._is_slowed():
                return
            self._sleep(PAUSE_S)
        self.slowed += self._is_slowed()

    def _is_slowed(self) -> bool:
        took = self._loop()
        self._best = min(self._best, took)
        return took > SLOWED * self._best


def environment() -> dict[str, str]:
    """As installed packages are run: from bytecode that is there, whatever ours is told of writing
    it.
    """
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**given, "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode")}


def load() -> float:
    """How many processes wanted a core at once, on average over the last minute."""
    return os.getloadavg()[0]


def describe(*, python: str | None = platform.python_version()) -> list[str]:
    """Lines for the head of the results; without *python* they name none."""
    interpreter = "" if python is None else f"CPython {python}, "
    return [
        f"{_cpu()}, {os.cpu_count()} cores shared with the broker, {_memory_gb()} GB; {platform.platform()}",
        f"{interpreter}aiokafka {version('aiokafka')}, commit {_commit()}",
    ]


def _cpu() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> int:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return round(int(line.split()[1]) / 1e6)
    return 0


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = (
        " with uncommitted changes" if git("status", "--porcelain", "--", "reactive_kafka") else ""
    )
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed
