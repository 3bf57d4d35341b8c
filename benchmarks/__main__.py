"""``make bench``: every contender against the same records on a real Kafka, in turns, and a table of it.

Each run is a process of its own with a fresh consumer group, reading from the beginning. The clocks run from the
first handler call to the end of the last one, so starting up and joining the group are not in the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import machine, report, topic
from benchmarks.contenders.meter import Result
from benchmarks.plan import CONTENDERS, WAIT_S, Contender

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.md"
RUN_TIMEOUT_S = 120.0


class RunFailedError(Exception):
    """A contender did not handle all its records, or did not commit them."""


def main() -> int:
    """Measure, print, write the results; 1 if a contender failed, or with --check if a goal is missed."""
    given = _arguments()
    chosen = [contender for contender in CONTENDERS if given.only in contender.run]
    load = machine.load()
    if load > machine.QUIET:
        print(f"warning: others use this machine (load {load:.1f}): the figures will say little", file=sys.stderr)
    with kafka(given.bootstrap) as (bootstrap, broker):
        name = f"bench-{uuid.uuid4().hex[:8]}"
        began = time.monotonic()
        asyncio.run(topic.fill(bootstrap, name, given.records))
        print(f"{given.records:,} records written in {time.monotonic() - began:.1f} s", flush=True)
        # The broker's code is cold at first, and the first reader alone would pay for it.
        _run(CONTENDERS[0], bootstrap, name, given.records)
        rounds, failures = _rounds(chosen, given.rounds, bootstrap, name, given.records)
    text = _page(rounds, given.records, broker, load)
    print("\n" + text)
    if given.write:
        RESULTS.write_text(text)
    verdicts = report.verdicts(rounds)
    missed = [sentence for met, sentence in verdicts if not met] if given.check else []
    print("\n".join([*failures, *missed]), file=sys.stderr)
    return 1 if failures or missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each contender runs (default: %(default)s)")
    parser.add_argument("--records", type=int, default=2_000_000, help="records in the topic (default: %(default)s)")
    parser.add_argument("--only", default="", help="only contenders whose module:function contains this")
    parser.add_argument("--bootstrap", help="host:port of a Kafka that runs already (default: start one)")
    parser.add_argument("--check", action="store_true", help="fail if a performance goal is missed")
    parser.add_argument("--no-write", dest="write", action="store_false", help="leave benchmarks/results.md alone")
    return parser.parse_args()


@contextlib.contextmanager
def kafka(bootstrap: str | None) -> Iterator[tuple[str, str]]:
    """A broker's address and what to call it."""
    if bootstrap:
        yield bootstrap, f"the broker at {bootstrap}"
        return
    from reactive_kafka.broker.jars import KAFKA_VERSION
    from reactive_kafka.broker.local import KafkaCluster

    with KafkaCluster(nodes=1) as cluster:
        yield cluster.bootstrap_servers, f"Apache Kafka {KAFKA_VERSION}, one node on this machine"


def _rounds(
    contenders: Sequence[Contender], count: int, bootstrap: str, name: str, records: int
) -> tuple[list[dict[str, Result]], list[str]]:
    """Run everybody *count* times, every other round backwards; the results and what failed."""
    rounds: list[dict[str, Result]] = []
    failures: list[str] = []
    for number in range(count):
        results: dict[str, Result] = {}
        # Neighbours stay neighbours, so that what is compared ran within seconds of each other.
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            try:
                result = _run(contender, bootstrap, name, records)
            except RunFailedError as error:
                failures.append(f"round {number + 1}: {contender.name}: {error}")
                print(failures[-1], file=sys.stderr, flush=True)
                continue
            results[contender.name] = result
            print(f"round {number + 1}: {contender.name}: {report.rate(result):,.0f} records/s", flush=True)
        rounds.append(results)
    return rounds, failures


def _run(contender: Contender, bootstrap: str, name: str, records: int) -> Result:
    """One run in a process of its own.

    Raises:
        RunFailedError: It ended with an error, took too long, or committed less than it should have.
    """
    group = f"{contender.run.replace(':', '-')}-{uuid.uuid4().hex[:8]}"
    wanted = min(contender.records or records, records)
    python = ROOT / (".venv-bench" if contender.peer else ".venv") / "bin" / "python"
    command = [str(python), "-m", "benchmarks.contenders", contender.run]
    command += ["--bootstrap", bootstrap, "--topic", name, "--group", group, "--records", str(wanted)]
    command += ["--wait", str(WAIT_S if contender.series == "10 ms" else 0.0)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"not done after {RUN_TIMEOUT_S:g} s: {_tail(error.stderr)}") from error
    if done.returncode or not done.stdout.strip():
        raise RunFailedError(f"exit code {done.returncode}: {_tail(done.stderr)}")
    stored = asyncio.run(topic.committed(bootstrap, name, group))
    if stored < (records if contender.reads_all else 1):
        raise RunFailedError(f"committed {stored:,} of {records:,} records")
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def _tail(text: str | bytes | None) -> str:
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return "\n".join((text or "no output").splitlines()[-15:])


def _page(rounds: Sequence[report.Round], records: int, broker: str, load: float) -> str:
    """The results as a page."""
    lines = [
        "# Measured",
        "",
        f"`make bench` on {time.strftime('%Y-%m-%d', time.gmtime())}, {len(rounds)} rounds, contenders in turns, "
        "every other round backwards. Ratios travel between machines, absolute figures do not.",
        "",
        *(f"- {line}" for line in machine.describe()),
        f"- Load of the machine in the minute before: {load:.1f}",
        f"- {broker}; {records:,} records of {topic.VALUE_BYTES} bytes in {topic.PARTITIONS} partitions, uncompressed",
        "- Everybody is at least once: nothing is committed before it is handled. Ours runs with its metrics, poison "
        "watch and health over HTTP on, and had committed the end of the topic when it ended.",
        "- Measured from the first handler call to the end of the last one, each in a process of its own with a fresh "
        "group; CPU is that of the process in that span, RSS the peak of its life.",
        "- Ratios are medians of the ratios in each round.",
        "",
        report.table(rounds, "no-op"),
        "",
        report.table(rounds, "10 ms"),
        "",
        *(f"- {sentence}" for _, sentence in report.verdicts(rounds)),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
