"""What 10,000 partitions, 100 members, 1,000 channels would cost: ``python -m benchmarks.growth``.

Nothing here needs a Kafka: rules are called as they are, applications run on the in-memory broker,
and requests are encoded and not sent. Each quantity is measured at three sizes. A constant and a
cost by piece are fitted to the first two, and say what the third should be: the error is how far
that is off. Fitted to all three, they say what the size would cost that nobody has measured. Times
are CPU of this process, the least of some runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from functools import partial

from benchmarks.growth import apps, rules
from benchmarks.growth.model import HEAD, Quantity, row
from benchmarks.machine import describe
from reactive_kafka.testing import MemoryBroker, TestApp

PARTITIONS = (250, 500, 1_000)
MEMBERS = (10, 20, 40)
CHANNELS = (25, 50, 100)
RECORDS = (1_000, 2_000, 4_000)


def _partitions(name: str, unit: str, measure: Callable[[int], float]) -> Quantity:
    return Quantity(name, unit, "partitions", PARTITIONS, 10_000, measure)


def _app_partitions(
    look: Callable[[TestApp, MemoryBroker], Awaitable[float]],
) -> Callable[[int], float]:
    return lambda count: apps.on_app(look, partitions=count)


QUANTITIES = (
    _partitions("tick: a commit of all", "ms", rules.tick_ms),
    _partitions("tick with nothing to commit", "ms", rules.idle_tick_ms),
    _partitions("look for overdue records", "ms", rules.poison_ms),
    _partitions("rebalance in which all are retained", "ms", _app_partitions(apps.rebalance)),
    _partitions("scrape: the loop reads the numbers", "ms", _app_partitions(apps.scrape_ms)),
    _partitions("scrape: a thread writes the text", "ms", _app_partitions(apps.text_ms)),
    _partitions("scrape: the text", "KB", _app_partitions(apps.text_kb)),
    _partitions("commit request", "KB", rules.commit_kb),
    _partitions(
        "the same with 4,096 of metadata each", "KB", partial(rules.commit_kb, metadata=4096)
    ),
    _partitions("memory", "KB", lambda count: apps.memory_kb(partitions=count)),
    _partitions("a leader deals them to 100 members", "ms", rules.deal_ms),
    Quantity(
        "a leader's answer for 10,000 partitions", "KB", "members", MEMBERS, 100, rules.deal_kb
    ),
    Quantity("start", "ms", "channels", CHANNELS, 1_000, apps.start_ms),
    Quantity("a second of doing nothing", "ms", "channels", CHANNELS, 1_000, apps.idle_ms),
    Quantity(
        "memory", "KB", "channels", CHANNELS, 1_000, lambda count: apps.memory_kb(channels=count)
    ),
    Quantity("memory", "KB", "records in flight", RECORDS, 100_000, apps.in_flight_kb),
)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="WORD", default="", help="only quantities whose name or pieces contain it"
    )
    given = parser.parse_args()
    print("\n".join(describe()), "\n")
    print(HEAD)
    for one in QUANTITIES:
        if given.only in f"{one.name} {one.pieces}":
            print(row(one, [one.measure(size) for size in one.sizes]), flush=True)


if __name__ == "__main__":
    main()
