"""The command line as a user runs it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

COMMAND = (sys.executable, "-m", "reactive_kafka.cli")


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what would configure an application, and with *extra*."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REACTIVE_KAFKA_", "DEMO_"))
    }
    return kept | {"PYTHONUNBUFFERED": "1"} | dict(extra or {})


def cli(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> Ended:
    """Run a command to its end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class Running:
    """A command that runs; what it prints is kept."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: dict[str, list[str]] = {"out": [], "err": []}
        self._readers = [
            threading.Thread(
                target=self._read, args=(name, getattr(process, f"std{name}")), daemon=True
            )
            for name in self._lines
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._lines[name].append(line)

    @property
    def out(self) -> str:
        """What it has printed to stdout so far."""
        return "".join(self._lines["out"])

    @property
    def err(self) -> str:
        """What it has printed to stderr so far."""
        return "".join(self._lines["err"])

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
        """Wait until *condition* holds; fails when the process ends before, or time runs out."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, (
                f"ended with {self.process.returncode} before {what}:\n{self.said}"
            )
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}\n{self.said}"
            time.sleep(0.02)

    def end(self, timeout_s: float = 30.0) -> Ended:
        """Wait for its end."""
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(5.0)
        return Ended(code, self.out, self.err)

    @property
    def said(self) -> str:
        """All that it has printed, for failures."""
        return f"--- stdout\n{self.out}\n--- stderr\n{self.err}"


@contextmanager
def running(*command: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """A command that runs, by itself: ``running(*COMMAND, "run", ...)``. It is killed at the end of
    the block.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Running(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10.0)
