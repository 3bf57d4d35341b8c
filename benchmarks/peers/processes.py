"""Processes of contenders: each ends in time, by its own id, and with the process that has started
it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peers.homes import ROOT
from benchmarks.peers.journal import LINE_BYTES

STOPS_S = 25.0
"""A member that was told to stop, and runs on for so long, is killed."""


class FailedError(Exception):
    """A contender ended with an error, or not in time; the text has the end of what it said."""


@contextlib.contextmanager
def lifeline() -> Iterator[int]:
    """Standard input for children: its other end closes when this process is gone, and they end."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


def output(words: Sequence[str], timeout_s: float) -> str:
    """What a process prints until it ends.

    Raises:
        FailedError: Its exit code is not 0, or it did not end in time.
    """
    with lifeline() as stdin:
        try:
            done = subprocess.run(
                words,
                cwd=ROOT,
                stdin=stdin,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = (
                error.stderr.decode(errors="replace")
                if isinstance(error.stderr, bytes)
                else error.stderr
            )
            raise FailedError(f"not done after {timeout_s:.0f} s: {tail(said or '')}") from None
    if done.returncode:
        raise FailedError(f"exit code {done.returncode}: {tail(done.stderr)}")
    return done.stdout


def tail(text: str) -> str:
    """The end of what a process has said, in one line."""
    return (
        " | ".join(line.strip() for line in text.splitlines()[-4:] if line.strip())[-400:]
        or "no output"
    )


class Member:
    """A member of a group: a process at a time, each of which writes a journal of its own."""

    def __init__(self, name: str, words: Sequence[str], folder: Path, stdin: int) -> None:
        self.name = name
        self._words = words
        self._folder = folder
        self._stdin = stdin
        self._process: subprocess.Popen[bytes] | None = None
        self.journals: list[Path] = []
        self.killed_at_stop = 0
        """How often it did not stop in time."""

    def start(self) -> None:
        """Begin its next life."""
        self.journals.append(self._folder / f"{self.name}{len(self.journals)}.journal")
        with self._log().open("wb") as log:
            self._process = subprocess.Popen(
                [*self._words, "--journal", str(self.journals[-1])],
                cwd=ROOT,
                stdin=self._stdin,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def handled(self) -> int:
        """How many records its present life has handled."""
        journal = self.journals[-1]
        return journal.stat().st_size // LINE_BYTES if journal.exists() else 0

    def check(self) -> None:
        """FailedError: its process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise FailedError(
                f"{self.name} ended with code {self._process.returncode}: {self.said()}"
            )

    def kill(self) -> None:
        """End its process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def has_stopped(self, asked_at: float) -> bool:
        """Whether its process is gone; it is killed where it does not go in time."""
        if self._process is None or self._process.poll() is not None:
            return True
        if time.monotonic() - asked_at > STOPS_S:
            self.killed_at_stop += 1
            self.kill()
        return False

    def said(self) -> str:
        """The end of what its present life has printed."""
        return tail(self._log().read_text(errors="replace"))

    def _log(self) -> Path:
        return self.journals[-1].with_suffix(".log")
