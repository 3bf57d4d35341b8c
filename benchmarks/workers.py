"""``run --workers 2`` compared with two processes that were started by hand.

``python -m benchmarks.workers`` starts a Kafka, fills a topic, and has both read it to its end with
``--until-end``. ``--bootstrap`` names a Kafka that runs already. The start of the processes is not
counted: each process writes when it handled its first and its last record.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks import topic
from reactive_kafka.broker.local_kafka import local_kafka

GOAL = 0.9
PROCESSES = 2
RECORDS = 200_000
ROUNDS = 3
SERVICE = """\
import atexit
import os
import time
from pathlib import Path

from reactive_kafka import App

app = App()
begun = ended = 0.0
count = 0


@app.incoming("numbers")
async def take(value: bytes) -> None:
    global begun, ended, count
    ended = time.time()
    begun = begun or ended
    count += 1


@app.before_stop
async def write() -> None:
    Path(os.environ["FIGURES"], str(os.getpid())).write_text(f"{begun} {ended} {count}")
"""
CONFIG = """\
[kafka]
bootstrap_servers = "{bootstrap}"
auto_offset_reset = "earliest"

[incoming.numbers]
topic = "{topic}"
group_id = "{group}"

[http]
enabled = false
"""


def measured(bootstrap: str, name: str, *, supervised: bool) -> float:
    """Have the topic read once. Returns the records per second of all processes together."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        figures = folder / "figures"
        figures.mkdir()
        (folder / "service.py").write_text(SERVICE)
        group = f"bench-{uuid.uuid4().hex[:8]}"
        config = CONFIG.format(bootstrap=bootstrap, topic=name, group=group)
        (folder / "reactive-kafka.toml").write_text(config)
        run = [sys.executable, "-m", "reactive_kafka", "run", "service:app", "--until-end"]
        commands = [run] * PROCESSES
        if supervised:
            commands = [[*run, "--workers", str(PROCESSES)]]
        environment = os.environ | {"FIGURES": str(figures)}
        started = [
            subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
            for command in commands
        ]
        codes = [process.wait(300) for process in started]
        if any(codes):
            raise SystemExit(f"a run has ended with {codes}")
        return _rate([file.read_text() for file in figures.iterdir()])


def _rate(figures: Sequence[str]) -> float:
    """Return the records per second, from the first record of all to the last of all."""
    rows = [tuple(map(float, text.split())) for text in figures]
    busy = [row for row in rows if row[2]]
    begun = min(row[0] for row in busy)
    ended = max(row[1] for row in busy)
    return sum(row[2] for row in busy) / (ended - begun)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the ratio. Returns 1 if it is below the goal."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--bootstrap", metavar="HOST:PORT")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    kafka = nullcontext(given.bootstrap) if given.bootstrap else local_kafka()
    by_hand: list[float] = []
    supervised: list[float] = []
    with kafka as bootstrap:
        name = f"bench-workers-{uuid.uuid4().hex[:8]}"
        asyncio.run(topic.fill(bootstrap, name, given.records))
        # Both in turns, so that a machine that slows down meets both.
        for _ in range(given.rounds):
            by_hand.append(measured(bootstrap, name, supervised=False))
            supervised.append(measured(bootstrap, name, supervised=True))
    ratio = statistics.median(supervised) / statistics.median(by_hand)
    print(f"{PROCESSES} processes by hand: {statistics.median(by_hand):,.0f} records/s")
    print(f"run --workers {PROCESSES}: {statistics.median(supervised):,.0f} records/s")
    print(f"ratio: {ratio:.2f} (goal: at least {GOAL})")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
