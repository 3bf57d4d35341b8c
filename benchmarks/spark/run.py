"""``python -m benchmarks.spark.run WHAT``: measure one thing in this process; the last line is its
result.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from benchmarks.spark import beside, figures, growth, light, overhead, throughput, trickle
from benchmarks.spark.work import Given

MEASURES: dict[str, Callable[[Given], figures.Result]] = {
    "records": throughput.records,
    "ranges": throughput.ranges,
    "by-hand": throughput.by_hand,
    "streaming": throughput.streaming,
    "overhead": overhead.overhead,
    "beside": beside.beside,
    "light-records": light.records,
    "light-ranges": light.ranges,
    "light-kafka": light.kafka_by_hand,
    "light-getmany": light.getmany_by_hand,
    "growth": growth.growth,
    "trickle": trickle.trickle,
}


def main() -> None:
    """Read what to do from the command line, do it, print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=MEASURES)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    for number in ("--batch-records", "--warm", "--batches", "--all-batches"):
        parser.add_argument(number, required=True, type=int)
    given = vars(parser.parse_args())
    measure = MEASURES[given.pop("what")]
    print(figures.write(measure(Given(**given))), flush=True)


if __name__ == "__main__":
    main()
