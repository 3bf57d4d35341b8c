"""``make bench-spark``: Spark channels beside Spark by hand and Structured Streaming on a real
Kafka, in turns.

Each run is a process of its own with a Spark of its own, on the same topic. Spark's start and the
first batches are not in the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks import machine
from benchmarks.place import kafka
from benchmarks.report import wrapped
from benchmarks.runs import RunFailedError
from benchmarks.spark import figures, goals, plan, report
from benchmarks.spark.runs import Runs
from reactive_kafka.spark.session.kafka_source import fetch_connector

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "spark_results.md"
PARTS = ("throughput", "light", "overhead", "growth", "trickle", "beside")


@dataclass(slots=True)
class Measured:
    """All that was measured, and what failed."""

    rounds: list[dict[str, figures.Throughput]] = field(default_factory=list)
    lights: list[dict[str, figures.Light]] = field(default_factory=list)
    overheads: list[figures.Overhead] = field(default_factory=list)
    growth: figures.Growth | None = None
    trickle: figures.Trickle | None = None
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
        print(
            f"warning: others use this machine (load {load:.1f}): the figures will say little",
            file=sys.stderr,
        )
    fetch_connector()
    began = time.monotonic()
    with kafka(given.bootstrap) as (bootstrap, broker):
        measured = _measure(Runs(bootstrap, given.batches), given)
    verdicts = [
        *report.verdicts(measured.rounds, measured.overheads, measured.beside),
        *goals.verdicts(measured.lights, measured.overheads, measured.growth, measured.trickle),
    ]
    text = _page(measured, given, broker, load, [sentence for _, sentence in verdicts])
    print(f"\n{text}\n{time.monotonic() - began:.0f} s in all")
    if given.write:
        RESULTS.write_text(text)
    missed = [sentence for met, sentence in verdicts if not met] if given.check else []
    print("\n".join([*measured.failures, *missed]), file=sys.stderr)
    return 1 if measured.failures or missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each contender runs (default: %(default)s)"
    )
    parser.add_argument(
        "--batches",
        type=int,
        default=plan.BATCHES,
        help="batches that a contender's run measures (default: %(default)s)",
    )
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="only these parts")
    parser.add_argument(
        "--bootstrap", help="host:port of a Kafka that runs already (default: start one)"
    )
    parser.add_argument("--check", action="store_true", help="fail if a performance goal is missed")
    parser.add_argument(
        "--no-write", dest="write", action="store_false", help=f"leave {RESULTS.name} alone"
    )
    return parser.parse_args()


def _measure(runs: Runs, given: argparse.Namespace) -> Measured:
    measured = Measured()
    if "overhead" in given.only:
        for records, batches in plan.OVERHEADS:
            with measured.noting(f"overhead at {records:,} records"):
                measured.overheads.append(runs.overhead(records, batches))
                over = measured.overheads[-1]
                print(
                    f"overhead at {records:,} records: {over.over_ms:.1f} ms, {over.over:.1%}",
                    flush=True,
                )
    if "growth" in given.only:
        with measured.noting("growth"):
            measured.growth = runs.growth()
            print(f"growth: {measured.growth.grown_mb:.0f} MB", flush=True)
    if "trickle" in given.only:
        with measured.noting("trickle"):
            measured.trickle = runs.trickle()
            print(f"trickle: {measured.trickle.latency_ms.p50:.0f} ms", flush=True)
    if {"throughput", "light", "beside"}.intersection(given.only):
        runs.fill()
    for number in range(given.rounds):
        if "light" in given.only:
            measured.lights.append(_light_round(runs, number, measured))
        if "throughput" in given.only:
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


def _light_round(runs: Runs, number: int, measured: Measured) -> dict[str, figures.Light]:
    """The same with a light job."""
    results: dict[str, figures.Light] = {}
    for contender in plan.LIGHT if number % 2 == 0 else plan.LIGHT[::-1]:
        with measured.noting(f"round {number + 1}, a light job: {contender.name}"):
            found = results[contender.name] = runs.light(contender)
            print(
                f"round {number + 1}, a light job: {contender.name}: {found.median_s * 1e3:.0f} ms",
                flush=True,
            )
    return results


def _page(
    measured: Measured,
    given: argparse.Namespace,
    broker: str,
    load: float,
    sentences: Sequence[str],
) -> str:
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
        "- Unless said otherwise all run the same job: `groupBy` a field of the JSON value, `count`, write to Spark's "
        "`noop` sink. No disk is measured.",
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
    lines += goals.page(measured.lights, measured.growth, measured.trickle)
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
    lines += [
        *(f"- {failure.splitlines()[0]}" for failure in measured.failures),
        *(f"- {one}" for one in sentences),
    ]
    return wrapped("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())
