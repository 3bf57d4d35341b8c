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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import machine, orders, report, topic
from benchmarks.contenders.meter import Result
from benchmarks.plan import BASELINES, CONTENDERS, WAIT_S, Contender, Source

if TYPE_CHECKING:
    from tests.schemas.server import RegistryServer

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.md"
RUN_TIMEOUT_S = 120.0


class RunFailedError(Exception):
    """A contender did not handle all its records, or did not commit them."""


def main() -> int:
    """Measure, print, write the results; 1 if a contender failed, or with --check if a goal is missed."""
    given = _arguments()
    chosen = [one for one in CONTENDERS if _is_wanted(one, given.only, given.partitions)]
    load = machine.load()
    if load > machine.QUIET:
        print(f"warning: others use this machine (load {load:.1f}): the figures will say little", file=sys.stderr)
    with kafka(given.bootstrap) as (bootstrap, broker), registry_for(chosen) as registry:
        place = Place(bootstrap=bootstrap, registry="" if registry is None else registry.url, records=given.records)
        _fill(place, sorted({one.source for one in chosen}), registry)
        # The broker's code is cold at first, and the first reader alone would pay for it.
        _run(chosen[0], place)
        rounds, failures = _rounds(chosen, given.rounds, place)
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
    parser.add_argument("--only", action="append", help="only contenders whose module:function contains this, or this")
    parser.add_argument("--partitions", type=int, help="only those that read a topic of so many partitions")
    parser.add_argument("--bootstrap", help="host:port of a Kafka that runs already (default: start one)")
    parser.add_argument("--check", action="store_true", help="fail if a performance goal is missed")
    parser.add_argument("--no-write", dest="write", action="store_false", help="leave benchmarks/results.md alone")
    return parser.parse_args()


def _is_wanted(contender: Contender, names: Sequence[str] | None, partitions: int | None) -> bool:
    is_named = names is None or any(name in contender.run for name in names)
    return is_named and partitions in (None, contender.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the records are: so many in each of the topics."""

    bootstrap: str
    registry: str
    records: int
    topics: dict[Source, str] = field(default_factory=dict)


def _fill(place: Place, sources: Sequence[Source], registry: RegistryServer | None) -> None:
    """Make a topic of each of *sources*."""
    for source in sources:
        count, values = source
        name = place.topics[source] = f"bench-{values.lower()}-{count}-{uuid.uuid4().hex[:8]}"
        value: Callable[[int], bytes] = topic.numbered if values == "plain" else orders.as_json
        if values == "Avro" and registry is not None:
            value = orders.as_avro(registry.add(f"{name}-value", orders.SCHEMA))
        began = time.monotonic()
        asyncio.run(topic.fill(place.bootstrap, name, place.records, value, partitions=count))
        took = time.monotonic() - began
        print(f"{place.records:,} {values} records written to {count:,} partitions in {took:.1f} s", flush=True)


@contextlib.contextmanager
def registry_for(chosen: Sequence[Contender]) -> Iterator[RegistryServer | None]:
    """The schema registry of our tests, if anybody needs one."""
    if not any(one.values == "Avro" for one in chosen):
        yield None
        return
    from tests.schemas.server import registry_server

    with registry_server() as registry:
        yield registry


@contextlib.contextmanager
def kafka(bootstrap: str | None) -> Iterator[tuple[str, str]]:
    """A broker's address and what to call it."""
    if bootstrap:
        yield bootstrap, f"the broker at {bootstrap}"
        return
    from reactive_kafka.broker.jars import KAFKA_VERSION
    from reactive_kafka.broker.local import local_kafka

    with local_kafka() as address:
        yield address, f"Apache Kafka {KAFKA_VERSION}, one node on this machine"


def _rounds(contenders: Sequence[Contender], count: int, place: Place) -> tuple[list[dict[str, Result]], list[str]]:
    """Run everybody *count* times, every other round backwards; the results and what failed."""
    rounds: list[dict[str, Result]] = []
    failures: list[str] = []
    for number in range(count):
        results: dict[str, Result] = {}
        # Neighbours stay neighbours, so that what is compared ran within seconds of each other.
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            try:
                result = _run(contender, place)
            except RunFailedError as error:
                failures.append(f"round {number + 1}: {contender.name}: {error}")
                print(failures[-1], file=sys.stderr, flush=True)
                continue
            results[contender.name] = result
            print(f"round {number + 1}: {contender.name}: {report.rate(result):,.0f} records/s", flush=True)
        rounds.append(results)
    return rounds, failures


def _run(contender: Contender, place: Place) -> Result:
    """One run in a process of its own.

    Raises:
        RunFailedError: It ended with an error, took too long, or committed less than it should have.
    """
    bootstrap, records, name = place.bootstrap, place.records, place.topics[contender.source]
    group = f"{contender.run.replace(':', '-')}-{uuid.uuid4().hex[:8]}"
    wanted = min(contender.records or records, records)
    python = ROOT / (".venv-bench" if contender.peer else ".venv") / "bin" / "python"
    command = [str(python), "-m", "benchmarks.contenders", contender.run]
    command += ["--bootstrap", bootstrap, "--topic", name, "--group", group, "--records", str(wanted)]
    command += ["--wait", str(WAIT_S if contender.series == "10 ms" else 0.0)]
    if contender.values == "Avro":
        command += ["--registry", place.registry]
    target = f"{group}-out" if contender.series == "sending" else None
    if target is not None:
        asyncio.run(topic.create(bootstrap, target, partitions=contender.partitions))
        command += ["--target", target]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"not done after {RUN_TIMEOUT_S:g} s: {_tail(error.stderr)}") from error
    if done.returncode or not done.stdout.strip():
        raise RunFailedError(f"exit code {done.returncode}: {_tail(done.stderr)}")
    if target is not None:
        written = asyncio.run(topic.length(bootstrap, target, partitions=contender.partitions))
        if written < wanted or (written > wanted and not (contender.reads or contender.marks)):
            raise RunFailedError(f"{written:,} records stand in its topic, and it was to write {wanted:,}")
    if contender.reads:
        stored = asyncio.run(topic.committed(bootstrap, name, group, partitions=contender.partitions))
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
        "every other round backwards. Ratios carry over to other machines, absolute figures do not.",
        "",
        *(f"- {line}" for line in machine.describe()),
        f"- Load of the machine in the minute before: {load:.1f}",
        f"- {broker}; {records:,} records of {topic.VALUE_BYTES} bytes, uncompressed, in {topic.PARTITIONS} "
        f"partitions where the table names no other number; orders are {len(orders.as_json(1_000_000))} bytes of JSON, "
        f"or {len(orders.as_avro(1)(1_000_000))} of Avro with their schema in a registry",
        "- All contenders deliver at least once: nothing is committed before it is handled. Ours runs with metrics, "
        "poison watch and health over HTTP on, and had committed the end of the topic when it ended.",
        "- Measured from the first handler call to the end of the last one, each in a process of its own with a fresh "
        "group. CPU is what the process used in that span, RSS its peak since it started.",
        "- Ratios are medians of the ratios in each round.",
        "",
        *(line for series in BASELINES if (table := report.table(rounds, series)) for line in (table, "")),
        *(f"- {sentence}" for _, sentence in report.verdicts(rounds)),
    ]
    return report.wrapped("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())
