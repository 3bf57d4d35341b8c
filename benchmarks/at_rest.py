"""``python -m benchmarks.at_rest``: what an application costs that has nothing to read, and where its memory is.

It runs ``reactive-kafka run`` on a real Kafka with one channel, and with many of ten partitions: how long the process
takes to its first record (and to one of each channel), what it takes of a core from then on, and its resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiokafka import AIOKafkaProducer

from benchmarks import machine, topic
from benchmarks.place import kafka
from benchmarks.runs import ROOT

MANY = 100
PARTITIONS = 10
SETTLED_S = 8.0  # after the first records: the last commit, and the first checks, are over

STAGES = {
    "the interpreter": "sys",
    "asyncio, ssl, logging, email, http": "asyncio, ssl, logging, email.parser, http.client, concurrent.futures.thread",
    "pydantic": "pydantic",
    "reactive_kafka": "reactive_kafka",
    "aiokafka, and what is around it": "reactive_kafka.broker.aiokafka.clients",
    "HTTP: uvicorn, starlette, h11": "reactive_kafka.http.server, reactive_kafka.http.asgi",
    "prometheus_client": "reactive_kafka.observe.prometheus",
    "the command line: click": "reactive_kafka.cli.commands, reactive_kafka.cli.application",
}
"""What is imported one after the other, and the modules."""


@dataclass(frozen=True, slots=True)
class Rest:
    """One run of the application."""

    first_s: float  # from the start of the process to the first record
    all_s: float  # to one of each channel
    cpu: float  # of a core, at rest
    rss_mb: float


def rss_mb(pid: int | str = "self") -> float:
    """The resident memory of a process now, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _environment(**more: str) -> dict[str, str]:
    """As installed packages are run: from bytecode that is there."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**given, "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode"), **more}


def imported() -> dict[str, float]:
    """Stage -> MB of resident memory that its imports add, in one new process."""
    look = "print(open('/proc/self/statm').read().split()[1])"
    code = "\n".join(f"import {modules}\n{look}" for modules in STAGES.values())
    for _ in range(2):  # the first time it compiles what has changed, which takes memory of its own
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=_environment())
    reached = [int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6 for pages in done.stdout.split()]
    return {name: now - before for name, now, before in zip(STAGES, reached, [0.0, *reached], strict=False)}


@contextmanager
def resting(bootstrap: str, prefix: str, channels: int, *, http: bool = True) -> Iterator[tuple[int, float, float]]:
    """The application in a process of its own: its id, and the seconds to its first record and to one of each."""
    began = time.monotonic()
    given = {"BOOTSTRAP": bootstrap, "TOPIC": prefix, "CHANNELS": str(channels), "RUN": uuid.uuid4().hex[:8]}
    given["HTTP"] = "on" if http else "off"
    environment = _environment(**{f"REST_{name}": value for name, value in given.items()})
    command = [sys.executable, "-m", "reactive_kafka.cli", "run", "benchmarks.resting:app", "--log-level", "warning"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # for the type checker
        try:
            came = [time.monotonic() - began for _, _ in zip(range(channels), process.stdout, strict=False)]
            if len(came) < channels:
                raise SystemExit(f"the application ended after {len(came)} of {channels} channels")
            yield process.pid, came[0], came[-1]
        finally:
            process.terminate()


def cpu_s(pid: int) -> float:
    """What all threads of a process have taken of a core so far."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measured(bootstrap: str, prefix: str, channels: int, seconds: float, *, http: bool = True) -> Rest:
    """Start the application, let it settle, and look at it for so many seconds."""
    with resting(bootstrap, prefix, channels, http=http) as (pid, first_s, all_s):
        time.sleep(SETTLED_S)
        before, began = cpu_s(pid), time.monotonic()
        time.sleep(seconds)
        return Rest(first_s, all_s, (cpu_s(pid) - before) / (time.monotonic() - began), rss_mb(pid))


async def fill(bootstrap: str, prefix: str, channels: int) -> None:
    """Make a topic for each channel, with a record in each of its partitions."""
    names = [f"{prefix}-{number}" for number in range(channels)]
    for first in range(0, channels, 10):
        await topic.create(bootstrap, *names[first : first + 10], partitions=PARTITIONS)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for name in names:
            each = [await producer.send(name, topic.numbered(0), partition=number) for number in range(PARTITIONS)]
            await asyncio.gather(*each)


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.at_rest", description=__doc__)
    parser.add_argument("--bootstrap", help="host:port of a Kafka that runs already (default: start one)")
    parser.add_argument("--channels", type=int, default=MANY, help="of the large one (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of rest that are looked at (default: %(default)s)")
    parser.add_argument("--memory", action="store_true", help="only what the imports take; needs no Kafka")
    given = parser.parse_args()
    print("\n".join(f"- {line}" for line in machine.describe()))
    print("\n| imported | MB |\n|---|---|")
    stages = imported()
    for name, megabytes in stages.items():
        print(f"| {name} | {megabytes:.1f} |")
    print(f"| together | {sum(stages.values()):.1f} |")
    if given.memory:
        return
    print(
        "\n| application | first record, s | one of each channel, s | of a core | MB |\n|---|---|---|---|---|",
        flush=True,
    )
    with kafka(given.bootstrap) as (bootstrap, _):
        prefix = f"rest-{uuid.uuid4().hex[:8]}"
        asyncio.run(fill(bootstrap, prefix, given.channels))
        for channels, http in ((1, False), (1, True), (given.channels, True)):
            rest = measured(bootstrap, prefix, channels, given.seconds, http=http)
            what = (
                f"{channels:,} channel{'s' * (channels > 1)} of {PARTITIONS} partitions, HTTP {'on' if http else 'off'}"
            )
            print(
                f"| {what} | {rest.first_s:.2f} | {rest.all_s:.2f} | {rest.cpu:.2%} | {rest.rss_mb:.1f} |", flush=True
            )


if __name__ == "__main__":
    main()
