"""Who is measured, over how many records, and what we promise about the outcome. Values only."""

from __future__ import annotations

from dataclasses import dataclass

MASTER = "local[2]"
CONF = {"spark.driver.memory": "1g"}

PARTITIONS = 4
VALUE_BYTES = 200
# Groups of the job.
PAGES = 100

# Before the clocks run: Java compiles what is hot.
WARM_BATCHES = 4
BATCHES = 8
# Behind the last one that is measured: whoever reads ahead goes on doing so.
SPARE_BATCHES = 2
BATCH_RECORDS = 50_000

OVERHEADS = ((BATCH_RECORDS, 60), (500, 60))
"""Records of a batch, and how many of them are measured: with 16 the answer was between -0.3 and
6.8 %.
"""
OVERHEAD_WARM = 6

TICKS_PER_S = 1_000
MAX_POLL_INTERVAL_S = 8.0
LONG_JOB_S = 12.0
ALONE_S = 10.0
BESIDE_BATCHES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of the table of throughputs.

    Args:
        name: What the table calls it.
        run: Its word on the command line of ``benchmarks.spark.run``.
        keeps: Where it keeps how far it came, for the table.
    """

    name: str
    run: str
    keeps: str


RECORDS = Contender(
    name="reactive_kafka, `records`",
    run="records",
    keeps="plan before, position after, in the group",
)
RANGES = Contender(
    name="reactive_kafka, `ranges`", run="ranges", keeps="plan before, position after, in the group"
)
BY_HAND = Contender(name='`spark.read.format("kafka")` by hand', run="by-hand", keeps="nowhere")
STREAMING = Contender(
    name="Structured Streaming, `foreachBatch`", run="streaming", keeps="checkpoint directory"
)

CONTENDERS = (RECORDS, BY_HAND, RANGES, STREAMING)
OURS = (RECORDS, RANGES)

LEAST_RATIO = 0.8
"""Of our throughput to that by hand, in either mode."""

MOST_OVERHEAD = 0.05
"""Of a batch of 50,000 records over ``createDataFrame`` and the job by hand."""

LIGHT_RECORDS = Contender(
    name="reactive_kafka, `records`", run="light-records", keeps=RECORDS.keeps
)
LIGHT_RANGES = Contender(name="reactive_kafka, `ranges`", run="light-ranges", keeps=RANGES.keeps)
LIGHT_KAFKA = Contender(
    name='`spark.read.format("kafka")` by hand', run="light-kafka", keeps="nowhere"
)
LIGHT_GETMANY = Contender(
    name="`getmany` and `createDataFrame` by hand",
    run="light-getmany",
    keeps="position after, in the group",
)
LIGHT = (LIGHT_RECORDS, LIGHT_GETMANY, LIGHT_RANGES, LIGHT_KAFKA)
LIGHT_BY_HAND = (LIGHT_GETMANY, LIGHT_KAFKA)
LIGHT_BATCHES = 24

MOST_LIGHT = 1.05
"""Of the time from the start of a light job to the start of the next one, to that of the better one
by hand.
"""

FEW_RECORDS = 500
MOST_OVER_MS = 20.0
"""How much longer a batch of few records may take than by hand."""

GROWTH_BATCHES = 4
GROWTH_VALUE_BYTES = 450
MOST_GROWTH_MB = 100.0
"""A backlog, whose batches are columns of 25 MB, and what it may add to the memory of our
process.
"""


def of_growth(number: int) -> bytes:
    """A value of that backlog."""
    return (b"%08d" % number).ljust(GROWTH_VALUE_BYTES, b".")


TRICKLE_WAIT = "100ms"
TRICKLE_BATCHES = 60
MOST_TRICKLE_MS = 200.0
"""``batch_max_wait``, batches that are measured, and the median from send to call."""
