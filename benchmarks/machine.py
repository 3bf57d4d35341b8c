"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

QUIET = 0.5
"""A load below this leaves the figures alone."""


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

    changed = " with uncommitted changes" if git("status", "--porcelain", "--", "reactive_kafka") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed
