"""``make bench-rebalance``: ours and its peers in a rolling restart on a real Kafka, one after the
other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks import machine, report
from benchmarks.peers.homes import version
from benchmarks.peers.processes import FailedError
from benchmarks.rebalances import front_page, homes, page, scene
from benchmarks.rebalances.judge import RestartVerdict
from benchmarks.rebalances.plan import (
    MEMBERS,
    PARTITIONS,
    PER_PARTITION,
    ROWS,
    SECONDS,
    SESSION_S,
    Restarted,
)
from reactive_kafka.broker.jars import KAFKA_VERSION

BROKER = {"group.consumer.session.timeout.ms": str(int(SESSION_S * 1e3))}
"""Kafka's own default, which our local broker shortens."""


def main() -> int:
    """Measure what is wanted and write the page; 1 if a contender failed."""
    given = _arguments()
    rows = [row for row in ROWS if _is_wanted(row, given.only)]
    size = scene.Size(
        members=given.members,
        partitions=given.partitions,
        per_partition=given.per_partition,
        seconds=given.seconds,
    )
    missing = homes.made(rows)
    verdicts: dict[str, RestartVerdict] = {}
    failures = {row.name: missing[row.family] for row in rows if row.family in missing}
    loads: list[float] = []
    with _kafka(given.bootstrap) as bootstrap:
        for row in rows:
            if row.name in failures:
                continue
            loads.append(machine.load())
            try:
                verdicts[row.name] = asyncio.run(scene.played(row, size, bootstrap))
            except FailedError as error:
                failures[row.name] = str(error)
                print(f"{row.name}: {error}", file=sys.stderr, flush=True)
            else:
                print(f"{row.name}: {verdicts[row.name]}", flush=True)
    text = report.wrapped(
        page.page(
            verdicts, failures, size=size, circumstances=_circumstances(given.bootstrap, loads)
        )
    )
    print("\n" + text)
    is_whole = len(rows) == len(ROWS) and size == scene.Size()
    if given.write and is_whole:
        front_page.RESULTS.write_text(text)
        front_page.main()
    elif given.write:
        print(
            f"{front_page.RESULTS.name} is as before: only a whole run of the default size writes it"
        )
    return 1 if failures else 0


@contextlib.contextmanager
def _kafka(bootstrap: str | None) -> Iterator[str]:
    if bootstrap:
        yield bootstrap
        return
    from tests.harness.kafka import KafkaCluster

    with KafkaCluster(properties=BROKER) as cluster:
        yield cluster.bootstrap_servers


def _circumstances(bootstrap: str | None, loads: Sequence[float]) -> list[str]:
    broker = f"Apache Kafka {KAFKA_VERSION}, one node on this machine"
    load = f"{min(loads):.1f} to {max(loads):.1f}" if loads else "not measured"
    return [
        f"{time.strftime('%Y-%m-%d', time.gmtime())}; {machine.describe()[0]}",
        machine.describe()[-1],
        f"confluent-kafka {_confluent()}, {version('faststream')}, Java's client {KAFKA_VERSION}",
        f"the broker at {bootstrap}" if bootstrap else broker,
        f"Load of the machine in the minute before each row: {load}",
    ]


def _confluent() -> str:
    from confluent_kafka import libversion
    from confluent_kafka import version as confluent_version

    # Some versions of it return a tuple.
    client = confluent_version()
    library = libversion()[0]
    return f"{client if isinstance(client, str) else client[0]} (librdkafka {library})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rebalances", description=__doc__)
    parser.add_argument(
        "--only", action="append", help="only contenders whose name or run contains this, or this"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="of load before the first restart and after each one (default: %(default)g)",
    )
    parser.add_argument("--members", type=int, default=MEMBERS, help="default: %(default)s")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="default: %(default)s")
    parser.add_argument(
        "--per-partition",
        type=int,
        default=PER_PARTITION,
        help="records a second in each partition (default: %(default)s)",
    )
    parser.add_argument(
        "--bootstrap", help="host:port of a Kafka that runs already (default: start one)"
    )
    parser.add_argument(
        "--no-write",
        dest="write",
        action="store_false",
        help=f"leave {front_page.RESULTS.name} alone",
    )
    return parser.parse_args()


def _is_wanted(row: Restarted, words: Sequence[str] | None) -> bool:
    return words is None or any(word in row.name or word in row.run for word in words)


if __name__ == "__main__":
    sys.exit(main())
