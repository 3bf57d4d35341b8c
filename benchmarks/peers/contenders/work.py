"""What the handler of a contender does, the same for all of them: it counts, or it notes which
record it was.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.peers.journal import LINE_BYTES

SESSION_S = 6.0
"""Sessions of all members that are killed."""
AT_ONCE = 1_000
"""Records under way, where a peer can have more than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Job):
    """A job of a measured run, or of a member of a group that runs until SIGTERM.

    Args:
        journal: The file that a member appends to.
    """

    journal: str = ""

    @property
    def is_service(self) -> bool:
        """Whether it runs until SIGTERM."""
        return bool(self.journal)


class Work:
    """The handler's work: count the records of a measured run, or write the journal of a member."""

    def __init__(self, task: Task) -> None:
        self.meter = Meter(task.records)
        self._task = task
        # Whose steps are whole among threads.
        self._arrived = itertools.count()
        self._handled = itertools.count(1)
        self._journal = -1
        if task.is_service:
            self._journal = os.open(task.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def wait_s(self, value: bytes) -> float:
        """How long the handler waits for this record: in a member up to twice the wait, by the
        record's number.
        """
        if self._journal < 0:
            return self._task.wait_s
        return self._task.wait_s * 2 * (int(value[2 : LINE_BYTES - 1]) * 7919 % 100) / 100

    def started(self) -> None:
        """A record has come to a handler that waits: the first one starts the clocks."""
        if self._journal < 0 and not next(self._arrived):
            self.meter.begin()

    def did(self, value: bytes) -> bool:
        """The record is handled; whether it was the last one."""
        if self._journal >= 0:
            os.write(self._journal, value[: LINE_BYTES - 1] + b"\n")
            return False
        count = next(self._handled)
        if count == 1 and not self._task.wait_s:
            self.meter.begin()
        if count == self.meter.records:
            self.meter.end()
        return count == self.meter.records

    def result(self) -> Result:
        """The readings."""
        return self.meter.result()
