"""The processes below a service, as Linux tells them: its driver, and the Python workers of
that.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    """One process. ``started`` tells it from a later one with the same number."""

    pid: int
    parent: int
    started: str
    command: str

    @property
    def is_java(self) -> bool:
        return Path(self.command.split("\0")[0]).name == "java"

    @property
    def is_python_worker(self) -> bool:
        return "pyspark.daemon" in self.command


def descendants(pid: int) -> list[Process]:
    """All processes below *pid*, its children first."""
    everybody = [
        found for path in PROC.iterdir() if path.name.isdigit() and (found := look(int(path.name)))
    ]
    below, parents = [], {pid}
    while parents:
        children = [one for one in everybody if one.parent in parents]
        below += children
        parents = {one.pid for one in children}
    return below


def look(pid: int) -> Process | None:
    """The process of that number; None if there is none, or only its exit code is left."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        command = (PROC / str(pid) / "cmdline").read_text()
    except OSError:
        return None
    state, parent, started = fields[0], int(fields[1]), fields[19]
    return None if state in "ZX" else Process(pid, parent, started, command)


def alive(processes: list[Process]) -> list[Process]:
    """Those of them that run still."""
    return [one for one in processes if (now := look(one.pid)) and now.started == one.started]


def cpu_s(pid: int) -> float:
    """The processor time that a process has used up to now, in seconds."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    # User, system.
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def driver_of(service: int) -> Process:
    """The Java process that a service has started."""
    (driver,) = [one for one in descendants(service) if one.is_java]
    return driver


def kill(process: Process) -> None:
    """End it at once."""
    os.kill(process.pid, signal.SIGKILL)
