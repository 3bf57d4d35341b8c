"""Who is measured, with how many records, and what each of them promises. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal["ours", "faststream", "faust", "quix", "arroyo", "smallrye", "parallel-consumer"]
"""Where a contender runs: our environment, one of its own, or the JVM with a peer's jars."""

JVM: tuple[Family, ...] = ("smallrye", "parallel-consumer")
OWN: dict[Family, tuple[str, ...]] = {
    "faststream": ("faststream", "kstreams"),
    "faust": ("faust-streaming",),
    "quix": ("quixstreams",),
    "arroyo": ("sentry-arroyo",),
}
"""Families with an environment of their own, and the peers in it: they ask for other versions of
the same clients.
"""

Series = Literal["no-op", "10 ms"]

ALO = "at least once"
CRASHES = "at least once on crashes only"
"""It loses nothing when a process is killed, and passes over a record whose handler failed."""
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A row of a table of speeds.

    Args:
        name: What the table calls it.
        run: What runs: ``module:function`` below ``benchmarks``, or ``Class:mode`` of the JVM's
            sources.
        family: Where it runs.
        series: The handler.
        guarantee: What it promises about a record in this mode.
        records: How many are measured.
        warm: How many are handled before, in the same JVM.
    """

    name: str
    run: str
    family: Family
    series: Series
    guarantee: str
    records: int
    warm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """A row of the table of what is lost and repeated.

    Args:
        name: What the table calls it.
        run: What runs.
        family: Where it runs.
        guarantee: What it promises.
        commits: When it commits.
        wait_s: What a handler waits on average; 0 for one that only writes its journal.
        per_second: The load: fewer records for who commits each of them.
    """

    name: str
    run: str
    family: Family
    guarantee: str
    commits: str = "each second"
    wait_s: float = 0.0
    per_second: int = 1_000


RAW = "aiokafka `getmany(500)`"
GATHER = "aiokafka, `gather` over 1,000"
WAIT_S = 0.010
MEMBER_WAIT_S = 0.25
"""Of the handlers of members with many records under way: from 0 to twice as much."""
TOPIC_RECORDS = 2_000_000

SPEEDS = (
    Speed(
        name=RAW,
        run="contenders.raw:getmany",
        family="ours",
        series="no-op",
        guarantee=ALO,
        records=2_000_000,
    ),
    Speed(
        name="reactive_kafka, `Message`",
        run="contenders.ours:on_message",
        family="ours",
        series="no-op",
        guarantee=ALO,
        records=2_000_000,
    ),
    Speed(
        name="reactive_kafka, `bytes`",
        run="contenders.ours:on_bytes",
        family="ours",
        series="no-op",
        guarantee=ALO,
        records=2_000_000,
    ),
    Speed(
        name="reactive_kafka, `Batch[bytes]`",
        run="peers.contenders.ours_modes:batch",
        family="ours",
        series="no-op",
        guarantee=ALO,
        records=2_000_000,
    ),
    Speed(
        name="aiokafka `async for`",
        run="contenders.raw:async_for",
        family="ours",
        series="no-op",
        guarantee=ALO,
        records=600_000,
    ),
    Speed(
        name="confluent-kafka `consume(500)`",
        run="peers.contenders.confluent_peer:consume",
        family="ours",
        series="no-op",
        guarantee=ALO,
        records=2_000_000,
    ),
    Speed(
        name="kstreams `GetMany(500)`",
        run="contenders.kstreams_peer:getmany",
        family="faststream",
        series="no-op",
        guarantee=ALO,
        records=1_000_000,
    ),
    Speed(
        name="kstreams, default",
        run="peers.contenders.kstreams_modes:default",
        family="faststream",
        series="no-op",
        guarantee=NONE,
        records=300_000,
    ),
    Speed(
        name="FastStream `batch=True`, `ACK`",
        run="contenders.faststream_peer:batch",
        family="faststream",
        series="no-op",
        guarantee=CRASHES,
        records=1_000_000,
    ),
    Speed(
        name="FastStream, `ACK`",
        run="contenders.faststream_peer:each",
        family="faststream",
        series="no-op",
        guarantee=CRASHES,
        records=400,
    ),
    Speed(
        name="FastStream, default",
        run="peers.contenders.faststream_modes:default",
        family="faststream",
        series="no-op",
        guarantee=NONE,
        records=60_000,
    ),
    Speed(
        name="Faust",
        run="peers.contenders.faust_peer:each",
        family="faust",
        series="no-op",
        guarantee=CRASHES,
        records=40_000,
    ),
    Speed(
        name="Quix Streams",
        run="peers.contenders.quix_peer:each",
        family="quix",
        series="no-op",
        guarantee=ALO,
        records=400_000,
    ),
    Speed(
        name="Arroyo `RunTask`",
        run="peers.contenders.arroyo_peer:each",
        family="arroyo",
        series="no-op",
        guarantee=ALO,
        records=300_000,
    ),
    Speed(
        name="SmallRye, throttled",
        run="SmallRye:sequential",
        family="smallrye",
        series="no-op",
        guarantee=ALO,
        records=1_000_000,
        warm=1_000_000,
    ),
    Speed(
        name="parallel-consumer, unordered",
        run="ParallelConsumer:unordered",
        family="parallel-consumer",
        series="no-op",
        guarantee=ALO,
        records=500_000,
        warm=500_000,
    ),
    Speed(
        name=GATHER,
        run="peers.contenders.raw_peer:gather",
        family="ours",
        series="10 ms",
        guarantee=ALO,
        records=100_000,
    ),
    Speed(
        name="reactive_kafka, `concurrency = 1000`",
        run="peers.contenders.ours_modes:many",
        family="ours",
        series="10 ms",
        guarantee=ALO,
        records=100_000,
    ),
    Speed(
        name="aiokafka, a task per record, auto commit",
        run="peers.contenders.raw_peer:tasks",
        family="ours",
        series="10 ms",
        guarantee=NONE,
        records=100_000,
    ),
    Speed(
        name="FastStream `batch=True`, `ACK`, `gather`",
        run="peers.contenders.faststream_modes:gather",
        family="faststream",
        series="10 ms",
        guarantee=CRASHES,
        records=100_000,
    ),
    Speed(
        name="FastStream, 1,000 workers",
        run="peers.contenders.faststream_modes:workers",
        family="faststream",
        series="10 ms",
        guarantee=NONE,
        records=20_000,
    ),
    Speed(
        name="Faust, `concurrency=1000`",
        run="peers.contenders.faust_peer:many",
        family="faust",
        series="10 ms",
        guarantee=CRASHES,
        records=30_000,
    ),
    Speed(
        name="Arroyo `RunTaskInThreads`, 1,000",
        run="peers.contenders.arroyo_peer:threads",
        family="arroyo",
        series="10 ms",
        guarantee=ALO,
        records=50_000,
    ),
    Speed(
        name="SmallRye, throttled, `merge(1000)`",
        run="SmallRye:merge",
        family="smallrye",
        series="10 ms",
        guarantee=ALO,
        records=100_000,
        warm=100_000,
    ),
    Speed(
        name="parallel-consumer, unordered, 1,000",
        run="ParallelConsumer:unordered",
        family="parallel-consumer",
        series="10 ms",
        guarantee=ALO,
        records=100_000,
        warm=100_000,
    ),
)

BASELINES: dict[Series, str] = {"no-op": RAW, "10 ms": GATHER}
"""The raw client in each table, to which the others are compared."""

ONE_AT_A_TIME = "kstreams and Quix Streams"
"""Who cannot have more than one record under way."""

SAFETIES = (
    Safety(
        name="reactive_kafka", run="peers.contenders.ours_modes:each", family="ours", guarantee=ALO
    ),
    Safety(
        name="reactive_kafka, `Batch[bytes]`",
        run="peers.contenders.ours_modes:batch",
        family="ours",
        guarantee=ALO,
    ),
    Safety(
        name="reactive_kafka, `concurrency = 1000`",
        run="peers.contenders.ours_modes:many",
        family="ours",
        guarantee=ALO,
        wait_s=MEMBER_WAIT_S,
    ),
    Safety(name=RAW, run="peers.contenders.raw_peer:getmany", family="ours", guarantee=ALO),
    Safety(
        name="aiokafka, a record at a time",
        run="peers.contenders.raw_peer:getone",
        family="ours",
        guarantee=ALO,
    ),
    Safety(
        name="aiokafka, a task per record, auto commit",
        run="peers.contenders.raw_peer:tasks",
        family="ours",
        guarantee=NONE,
        wait_s=MEMBER_WAIT_S,
    ),
    Safety(
        name="confluent-kafka `consume(500)`",
        run="peers.contenders.confluent_peer:consume",
        family="ours",
        guarantee=ALO,
    ),
    Safety(
        name="kstreams `GetMany(500)`, own commit",
        run="peers.contenders.kstreams_modes:committed",
        family="faststream",
        guarantee=ALO,
    ),
    Safety(
        name="FastStream `batch=True`, `ACK`",
        run="peers.contenders.faststream_modes:batch",
        family="faststream",
        guarantee=CRASHES,
        commits="each batch",
    ),
    Safety(
        name="FastStream, `ACK`",
        run="peers.contenders.faststream_modes:ack",
        family="faststream",
        guarantee=CRASHES,
        commits="each record",
        per_second=150,
    ),
    Safety(
        name="FastStream, default",
        run="peers.contenders.faststream_modes:default",
        family="faststream",
        guarantee=NONE,
        commits="every 5 s",
    ),
    Safety(
        name="FastStream, 1,000 workers",
        run="peers.contenders.faststream_modes:workers",
        family="faststream",
        guarantee=NONE,
        commits="every 5 s",
        wait_s=MEMBER_WAIT_S,
    ),
    Safety(name="Faust", run="peers.contenders.faust_peer:each", family="faust", guarantee=CRASHES),
    Safety(
        name="Faust, `concurrency=1000`",
        run="peers.contenders.faust_peer:many",
        family="faust",
        guarantee=CRASHES,
        wait_s=MEMBER_WAIT_S,
    ),
    Safety(
        name="Quix Streams", run="peers.contenders.quix_peer:each", family="quix", guarantee=ALO
    ),
    Safety(
        name="Arroyo `RunTask`",
        run="peers.contenders.arroyo_peer:each",
        family="arroyo",
        guarantee=ALO,
    ),
    Safety(
        name="Arroyo `RunTaskInThreads`, 1,000",
        run="peers.contenders.arroyo_peer:threads",
        family="arroyo",
        guarantee=ALO,
        wait_s=MEMBER_WAIT_S,
    ),
    Safety(name="SmallRye, throttled", run="SmallRye:sequential", family="smallrye", guarantee=ALO),
    Safety(
        name="SmallRye, throttled, `merge(1000)`",
        run="SmallRye:merge",
        family="smallrye",
        guarantee=ALO,
        wait_s=MEMBER_WAIT_S,
    ),
    Safety(
        name="parallel-consumer, unordered, 1,000",
        run="ParallelConsumer:unordered",
        family="parallel-consumer",
        guarantee=ALO,
        wait_s=MEMBER_WAIT_S,
    ),
)
