"""Histories survive what they are there to witness."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.faults.history import History, HistoryReader

WRITE_THEN_HANG = """
import sys, time
from pathlib import Path
from tests.faults.history import History
history = History(Path(sys.argv[1]))
for offset in range(100):
    history.begin(("orders", 1), offset, f"id-{offset}")
print("written", flush=True)
time.sleep(600)
"""


def test_events_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "a.1.jsonl"
    history = History(path)
    history.assigned([("orders", 1), ("orders", 0)])
    history.begin(("orders", 0), 7, "x")
    history.end(("orders", 0), 7, "x")
    assigned, begin, end = HistoryReader(path).refresh()
    assert (assigned.process, assigned.partitions) == ("a.1", (("orders", 0), ("orders", 1)))
    assert (begin.kind, begin.tp, begin.offset, begin.id) == ("begin", ("orders", 0), 7, "x")
    assert (end.kind, end.outcome) == ("end", "ok")
    assert assigned.t <= begin.t <= end.t


def test_a_history_survives_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "a.1.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_THEN_HANG, path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(5) == -signal.SIGKILL
    assert [event.offset for event in HistoryReader(path).refresh()] == list(range(100))


def test_a_line_that_is_not_finished_is_read_later(tmp_path: Path) -> None:
    path = tmp_path / "a.1.jsonl"
    History(path).begin(("orders", 0), 1, "x")
    whole = path.read_bytes()
    reader = HistoryReader(path)
    path.write_bytes(whole + whole[:20])
    assert len(reader.refresh()) == 1
    path.write_bytes(whole + whole)
    assert len(reader.refresh()) == 2
    assert len(reader.refresh()) == 2
