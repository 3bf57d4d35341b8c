"""``make bench-spark``: Spark channels beside Spark by hand and Structured Streaming on a real Kafka, in turns.

Each run is a process of its own with a Spark of its own, on the same topic. Spark's start and the first batches are
not in the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks import machine, topic
from benchmarks.place import kafka
from benchmarks.report import wrapped
from benchmarks.runs import RunFailedError
from benchmarks.spark import figures, plan, report
from benchmarks.spark.beside import ticks_topic
from benchmarks.spark.work import click
from reactive_kafka.spark.session.kafka_source import fetch_connector

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "spark_results.md"
RUN_TIMEOUT_S = 420.0
PARTS = ("throughput", "overhead", "beside")


@dataclass(slots=True)
class Measured:
    """All that was measured, and what failed."""

    rounds: list[dict[str, figures.Throughput]] = field(default_factory=list)
    overheads: list[figures.Overhead] = field(default_factory=list)
    beside: figures.Beside | None = None
    failures: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """A run that fails is noted, and the others go on."""
        try:
            yield
        except RunFailedError as error:
            self.failures.append(f"{what}: {error}")
            print(self.failures[-1], file=sys.stderr, flush=True)


def main() -> int:
    """Measure, print, write the results; 1 if a run failed, or with --check if a goal is missed."""
    given = _arguments()
    load = machine.load()
    if load > machine.QUIET:
        print(f"warning: others use this machine (load {load:.1f}): the figures will say little", file=sys.stderr)
    fetch_connector()
    began = time.monotonic()
    with kafka(given.bootstrap) as (bootstrap, broker):
        measured = _measure(Runs(bootstrap, given.batches), given)
    verdicts = report.verdicts(measured.rounds, measured.overheads, measured.beside)
    text = _page(measured, given, broker, load, [sentence for _, sentence in verdicts])
    print(f"\n{text}\n{time.monotonic() - began:.0f} s in all")
    if given.write:
        RESULTS.write_text(text)
    missed = [sentence for met, sentence in verdicts if not met] if given.check else []
    print("\n".join([*measured.failures, *missed]), file=sys.stderr)
    return 1 if measured.failures or missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each contender runs (default: %(default)s)")
    parser.add_argument(
        "--batches",
        type=int,
        default=plan.BATCHES,
        help="batches that a contender's run measures (default: %(default)s)",
    )
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="only these parts")
    parser.add_argument("--bootstrap", help="host:port of a Kafka that runs already (default: start one)")
    parser.add_argument("--check", action="store_true", help="fail if a performance goal is missed")
    parser.add_argument("--no-write", dest="write", action="store_false", help=f"leave {RESULTS.name} alone")
    return parser.parse_args()


class Runs:
    """Runs measurements in processes of their own.

    Args:
        bootstrap: ``host:port`` of the broker.
        batches: That the run of a contender measures.
    """

    def __init__(self, bootstrap: str, batches: int) -> None:
        self._bootstrap = bootstrap
        self._batches = batches
        self._topic = f"bench-{uuid.uuid4().hex[:8]}"
        self._all_batches = max(
            plan.WARM_BATCHES + batches + plan.SPARE_BATCHES, plan.WARM_BATCHES + plan.BESIDE_BATCHES + 1
        )

    def fill(self) -> None:
        """Write the topic that all but one read."""
        records = self._all_batches * plan.BATCH_RECORDS
        asyncio.run(topic.fill(self._bootstrap, self._topic, records, click))
        print(f"{records:,} records of {plan.VALUE_BYTES} bytes written", flush=True)

    def throughput(self, contender: plan.Contender) -> figures.Throughput:
        """One run of a contender. Ours is to have committed what it was measured with."""
        group, done = f"{contender.run}-{uuid.uuid4().hex[:8]}", plan.WARM_BATCHES + self._batches
        found = figures.read_throughput(
            self._run(contender.run, self._topic, group, plan.BATCH_RECORDS, plan.WARM_BATCHES, self._batches)
        )
        if contender in plan.OURS:
            stored = asyncio.run(topic.committed(self._bootstrap, self._topic, group))
            if stored < done * plan.BATCH_RECORDS:
                raise RunFailedError(f"committed {stored:,} of {done * plan.BATCH_RECORDS:,} records")
        return found

    def overhead(self, records: int, batches: int) -> figures.Overhead:
        """Batches of one size, in a topic of their own: it is written as they are measured."""
        name = f"{self._topic}-{records}"
        asyncio.run(topic.create(self._bootstrap, name))
        return figures.read_overhead(self._run("overhead", name, name, records, plan.OVERHEAD_WARM, batches))

    def beside(self) -> figures.Beside:
        """The plain channel; the topic's last batch is the long job."""
        asyncio.run(topic.create(self._bootstrap, ticks_topic(self._topic)))
        return figures.read_beside(
            self._run("beside", self._topic, "beside", plan.BATCH_RECORDS, plan.WARM_BATCHES, self._batches)
        )

    def _run(self, what: str, name: str, group: str, batch_records: int, warm: int, batches: int) -> str:
        """The last line of one process.

        Raises:
            RunFailedError: It ended with an error, or took too long.
        """
        command = [sys.executable, "-m", "benchmarks.spark.run", what]
        command += ["--bootstrap", self._bootstrap, "--topic", name, "--group", group]
        numbers = {"batch-records": batch_records, "warm": warm, "batches": batches, "all-batches": self._all_batches}
        for option, number in numbers.items():
            command += [f"--{option}", str(number)]
        # a session of its own, so that its Spark ends with it whatever happens
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            out, err = process.communicate(timeout=RUN_TIMEOUT_S)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _, err = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RunFailedError(f"not done after {RUN_TIMEOUT_S:g} s: {_tail(err)}") from error
            raise
        if process.returncode or not out.strip():
            raise RunFailedError(f"exit code {process.returncode}: {_tail(err)}")
        return out.splitlines()[-1]


def _tail(text: str) -> str:
    return "\n".join((text or "no output").splitlines()[-25:])


def _measure(runs: Runs, given: argparse.Namespace) -> Measured:
    measured = Measured()
    if "overhead" in given.only:
        for records, batches in plan.OVERHEADS:
            with measured.noting(f"overhead at {records:,} records"):
                measured.overheads.append(runs.overhead(records, batches))
                over = measured.overheads[-1]
                print(f"overhead at {records:,} records: {over.over_ms:.1f} ms, {over.over:.1%}", flush=True)
    if {"throughput", "beside"}.intersection(given.only):
        runs.fill()
    for number in range(given.rounds if "throughput" in given.only else 0):
        measured.rounds.append(_round(runs, number, measured))
    if "beside" in given.only:
        with measured.noting("beside"):
            measured.beside = runs.beside()
    return measured


def _round(runs: Runs, number: int, measured: Measured) -> dict[str, figures.Throughput]:
    """Everybody once, every other round backwards, so that what is compared ran within a minute."""
    results: dict[str, figures.Throughput] = {}
    for contender in plan.CONTENDERS if number % 2 == 0 else plan.CONTENDERS[::-1]:
        with measured.noting(f"round {number + 1}: {contender.name}"):
            found = results[contender.name] = runs.throughput(contender)
            print(f"round {number + 1}: {contender.name}: {found.rate:,.0f} records/s", flush=True)
    return results


def _page(measured: Measured, given: argparse.Namespace, broker: str, load: float, sentences: Sequence[str]) -> str:
    """The results as a page."""
    lines = [
        "# Measured: batches on Spark",
        "",
        f"`make bench-spark` on {time.strftime('%Y-%m-%d', time.gmtime())}, {len(measured.rounds)} rounds, contenders "
        "in turns, every other round backwards. Ratios carry over to other machines, absolute figures do not.",
        "",
        *(f"- {line}" for line in machine.describe()),
        f"- PySpark {version('pyspark')}, pyarrow {version('pyarrow')}, `{plan.MASTER}`, driver with "
        f"{plan.CONF['spark.driver.memory']}; all sessions have the properties that the package sets",
        f"- Load of the machine in the minute before: {load:.1f}",
        f"- {broker}; values of {plan.VALUE_BYTES} bytes in {plan.PARTITIONS} partitions, uncompressed",
        "- All contenders run the same job: `groupBy` a field of the JSON value, `count`, write to Spark's `noop` "
        "sink. No disk is measured.",
        "- Ours runs with metrics, poison watch and health over HTTP on. Ratios and differences are medians over "
        "pairs of neighbouring runs.",
        "",
    ]
    if measured.rounds:
        lines += [
            f"## Throughput: {given.batches} batches of {plan.BATCH_RECORDS:,} records",
            "",
            "Each contender runs in its own process with its own Spark. Measured from the end of batch "
            f"{plan.WARM_BATCHES} to the end of batch {plan.WARM_BATCHES + given.batches}, with more records in the "
            "topic after that. Ours had committed all of them when it ended.",
            "",
            report.throughputs(measured.rounds),
            "",
            "Our process during the runs (lag: how late a task that sleeps for 5 ms wakes up; p50 and p99: medians "
            "over the rounds; max: of all rounds):",
            "",
            report.loop_and_memory(measured.rounds),
            "",
        ]
    if measured.overheads:
        lines += [
            "## The overhead of a batch",
            "",
            "A channel in mode `records` compared with `createDataFrame` of an existing Arrow table and the same job, "
            "in the same process and session, in turns. Ours is measured from when the last record of the batch is in "
            "its column (columns are built as records arrive) until the group has the position after the batch: "
            "storing the plan, the job, and the commit. `commit_interval` is 5 ms here, because the wait for a tick "
            "is a setting and not a cost.",
            "",
            report.overheads(measured.overheads),
            "",
        ]
    if measured.beside is not None:
        lines += [
            "## A plain channel next to a Spark channel",
            "",
            f"One application, one process: `@app.incoming` with {measured.beside.ticks_per_s:,.0f} records a second, "
            f"sent one at a time by another process, and a Spark channel in mode `records` with "
            f"{measured.beside.batches} batches of {plan.BATCH_RECORDS:,}, then a job whose Python function sleeps for "
            f"{plan.LONG_JOB_S:g} s, then nothing. Latency is measured from before the send to the handler call, so it "
            "includes the producer and the broker. All of them share the two cores with Spark.",
            "",
            report.beside(measured.beside),
            "",
        ]
    lines += [*(f"- {failure.splitlines()[0]}" for failure in measured.failures), *(f"- {one}" for one in sentences)]
    return wrapped("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())
