"""A service with a Spark channel that writes to every sink of the examples, and may be held before
its commit.

``python -m tests.faults.spark_service CONFIG HISTORY --sinks FOLDER --postgres DSN [--seed N]``

While there is a file ``hold`` in FOLDER a batch waits when the sinks have it, and before its
function returns, until somebody kills the process: the first batch of a life with an even seed, the
second of one with an odd seed.
"""

from __future__ import annotations

import argparse
import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from reactive_kafka import App, SparkBatch
from tests.examples.spark import example
from tests.faults.history import History

COLUMNS = ("topic", "partition", "offset", "value")
delta_per_range = example("sinks/delta_per_range.py")
directory_per_range = example("sinks/directory_per_range.py")
plain_append = example("sinks/plain_append.py")
postgres_rows = example("sinks/postgres_rows.py")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sinks", type=Path, required=True)
    parser.add_argument("--postgres", required=True)
    options = parser.parse_args()
    history = History(options.history)
    history.note("start")
    build(options, history).run()
    history.note("stop")


def build(options: argparse.Namespace, history: History) -> App:
    """The application: one channel, whose function writes down when a batch begins, is written,
    waits, and ends.
    """
    app = App(str(options.config))
    hold = options.sinks / "hold"
    batches = count(1)
    held = 2 - (options.seed + 1) % 2

    @app.spark("clicks")
    def keep(df: Any, batch: SparkBatch) -> None:
        number = next(batches)
        history.note("begin", id=batch.id)
        write(df.select(*COLUMNS), batch, options, options.history.stem)
        history.note("written", id=batch.id)
        if hold.exists() and number >= held:
            history.note("waiting", id=batch.id)
            # A Spark job each time, so that a revocation ends the wait.
            while hold.exists():
                time.sleep(0.1)
                batch.spark.range(1).count()
        history.note("end", id=batch.id)

    return app


def write(df: Any, batch: SparkBatch, options: argparse.Namespace, process: str) -> None:
    """Write the batch to every sink."""
    sinks: Path = options.sinks
    directory_per_range.write(df, batch, sinks / "directories")
    postgres_rows.write(df, batch, options.postgres, "clicks", ["partition", "offset"])
    with alone(sinks / "delta.lock"):
        if not (sinks / "delta").exists():
            delta_per_range.create(
                batch.spark,
                sinks / "delta",
                "topic STRING, partition INT, offset BIGINT, value BINARY",
            )
        delta_per_range.write(df, batch, sinks / "delta")
    plain_append.write(df, batch, sinks / "appended" / process)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One process at a time: on a local disk two writers can take the same version of a Delta
    table.
    """
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main()
