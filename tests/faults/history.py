"""What each process did and when, in a file of its own that survives SIGKILL.

One JSON line an event, written with one ``write`` to an ``O_APPEND`` file: what was written before
the kill is in the page cache and stays. Times are wall clock seconds: one host, one clock, also the
broker's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a history.

    Attributes:
        kind: start, assigned, revoked, begin, end, tasks or stop.
        process: Name of one life of one member: a restart has another one.
        partitions: Of assigned and revoked.
        count: Of tasks: how many the event loop has.
        tp, offset, id: Of begin and end; ``id`` is what the producer put into the payload.
        attempt: Of begin: above 1 for in-place retries.
        outcome: Of end: "ok" only when the handler's work was done. Written before the ack.
    """

    t: float
    process: str
    kind: str
    tp: Partition = ("", -1)
    offset: int = -1
    id: str = ""
    attempt: int = 1
    outcome: str = ""
    partitions: tuple[Partition, ...] = ()
    count: int = 0


class History:
    """Writes the events of this process."""

    def __init__(self, path: Path) -> None:
        self._process = path.stem
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)

    def note(self, kind: str, **details: Any) -> None:
        """Append one event; on return a SIGKILL cannot take it back."""
        line = json.dumps({"t": time.time(), "process": self._process, "kind": kind, **details})
        os.write(self._file, line.encode() + b"\n")

    def assigned(self, partitions: Iterable[Partition]) -> None:
        self.note("assigned", partitions=sorted(partitions))

    def revoked(self, partitions: Iterable[Partition]) -> None:
        self.note("revoked", partitions=sorted(partitions))

    def begin(self, tp: Partition, offset: int, id: str, attempt: int = 1) -> None:
        self.note("begin", tp=tp, offset=offset, id=id, attempt=attempt)

    def end(self, tp: Partition, offset: int, id: str, outcome: str = "ok") -> None:
        self.note("end", tp=tp, offset=offset, id=id, outcome=outcome)


class HistoryReader:
    """The events of one file so far; ``refresh`` reads what was added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.events: list[Event] = []

    def refresh(self) -> list[Event]:
        """All events up to now. A line that is not finished is left for the next time."""
        if not self._path.exists():
            return self.events
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole, newline, _ = text.rpartition(b"\n")
        self._read += len(whole) + len(newline)
        self.events.extend(parse(line) for line in whole.split(b"\n") if line)
        return self.events


def parse(line: bytes) -> Event:
    """The event that a line holds."""
    fields = json.loads(line)
    if "tp" in fields:
        fields["tp"] = _partition(fields["tp"])
    if "partitions" in fields:
        fields["partitions"] = tuple(_partition(pair) for pair in fields["partitions"])
    return Event(**fields)


def _partition(pair: list[Any]) -> Partition:
    return str(pair[0]), int(pair[1])
