"""``python -m benchmarks.at_rest``: where the memory of an application is that has nothing to read.

What such an application takes as a whole, ``make bench`` measures: ``BENCH_ARGS="--only idle --only
start"``.
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks import machine
from benchmarks.machine import ROOT

STAGES = {
    "the interpreter": "sys",
    "asyncio, ssl, logging, email, http": "asyncio, ssl, logging, email.parser, http.client, concurrent.futures.thread",
    "reactive_kafka": "reactive_kafka",
    "aiokafka, and what is around it": "reactive_kafka.broker.aiokafka.kafka_consumer",
    "HTTP: uvicorn, starlette, h11": "reactive_kafka.http.server, reactive_kafka.http.asgi",
    "prometheus_client, with the first scrape": "reactive_kafka.observe.prometheus",
    "the command line: click": "reactive_kafka.cli.commands, reactive_kafka.cli.run_command, "
    "reactive_kafka.cli.check_command",
    "pydantic, where JSON is read or written": "reactive_kafka.formats.models",
}
"""What is imported one after the other, and the modules."""


def imported() -> dict[str, float]:
    """Stage -> MB of resident memory that its imports add, in one new process."""
    look = "print(open('/proc/self/statm').read().split()[1])"
    code = "\n".join(f"import {modules}\n{look}" for modules in STAGES.values())
    # The first time it compiles what has changed, which takes memory of its own.
    for _ in range(2):
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=ROOT, env=machine.environment()
        )
    reached = [int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6 for pages in done.stdout.split()]
    return {
        name: now - before
        for name, now, before in zip(STAGES, reached, [0.0, *reached], strict=False)
    }


def main() -> None:
    """Measure, and print a table."""
    print("\n".join(f"- {line}" for line in machine.describe()))
    print("\n| imported | MB |\n|---|---|")
    stages = imported()
    for name, megabytes in stages.items():
        print(f"| {name} | {megabytes:.1f} |")
    print(f"| together | {sum(stages.values()):.1f} |")


if __name__ == "__main__":
    main()
