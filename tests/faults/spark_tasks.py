"""A service whose Spark tasks do what their records say, and beat for as long as they run.

``python -m tests.faults.spark_tasks CONFIG HISTORY --folder FOLDER --channels NAME... [--seed N]``

Values of records: ``work`` is written at once, ``hold`` when there is a file ``go`` in FOLDER,
``sleep 9`` after nine seconds; ``die`` makes the function end its driver. Rows go to FOLDER/rows, a
directory for each range. Every 50 ms a task appends a line to FOLDER/beats: the time, the process,
the channel, and which call of its function it belongs to.

In the history ``tp`` of ``begin`` and ``end`` is the channel and the number of the call, ``id`` the
batch's; the outcome of ``begin`` and ``revoked`` tells which Spark jobs are active just then.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from reactive_kafka import App, SparkBatch, TopicPartition
from tests.examples.spark import COLUMNS, example
from tests.faults.history import History

BEAT_S = 0.05
# Of a task that nobody lets go.
LONGEST_S = 90.0
NO_JOBS = "no jobs"
directory_per_range = example("sinks/directory_per_range.py")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--channels", nargs="+", required=True)
    options = parser.parse_args()
    history = History(options.history)
    history.note("start")
    app = App(str(options.config))
    for channel in options.channels:
        add(app, channel, options, history)
    app.run()
    history.note("stop")


def add(app: App, channel: str, options: argparse.Namespace, history: History) -> None:
    """A channel whose function writes down when it begins, and when its rows are written."""
    numbers = count(1)
    # That of the latest call.
    sessions: list[Any] = []

    @app.on_assigned(channel)
    async def assigned(partitions: frozenset[TopicPartition]) -> None:
        history.assigned(partitions)

    @app.on_revoked(channel)
    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        jobs = active_jobs(sessions[0]) if sessions else ""
        history.note("revoked", partitions=sorted(partitions), outcome=jobs)

    @app.spark(channel)
    def run(df: Any, batch: SparkBatch) -> None:
        number = next(numbers)
        sessions[:] = [batch.spark]
        jobs = active_jobs(batch.spark)
        history.note(
            "begin", tp=(channel, number), id=batch.id, attempt=batch.attempt, outcome=jobs
        )
        words = {bytes(row.value).decode() for row in df.select("value").collect()}
        if "die" in words:
            os.kill(batch.spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        rows = df.select("topic", "partition", "offset", "value").coalesce(1)
        task = beating(options.folder, f"{options.history.stem} {channel} {number}", words)
        directory_per_range.write(rows.mapInArrow(task, COLUMNS), batch, options.folder / "rows")
        history.note("end", tp=(channel, number), id=batch.id)


def active_jobs(spark: Any) -> str:
    """The Spark jobs that run, of whatever channel."""
    return " ".join(map(str, spark.sparkContext.statusTracker().getActiveJobsIds())) or NO_JOBS


def beating(folder: Path, name: str, words: set[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For ``mapInArrow``: the rows as they are, after what the *words* of the batch ask for; until
    then it beats.
    """
    go, beats = folder / "go", folder / "beats"
    sleep_s = max(
        (float(word.split()[1]) for word in words if word.startswith("sleep")), default=0.0
    )
    is_held = "hold" in words

    def work(rows: Iterator[Any]) -> Iterator[Any]:
        began = time.time()
        while (now := time.time()) < began + LONGEST_S:
            with beats.open("a") as out:
                out.write(f"{now} {name}\n")
            if now >= began + sleep_s and (not is_held or go.exists()):
                break
            time.sleep(BEAT_S)
        yield from rows

    return work


if __name__ == "__main__":
    main()
