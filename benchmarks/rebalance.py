"""What a rebalance of many partitions costs a member that stays: ``python -m benchmarks.rebalance``.

Two members of one group read a topic to which a third process writes slowly. The other member joins, leaves, joins
again and leaves again; what is measured is the one that stays. Each process is one of its own, so nothing but the
member itself holds up its loop.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaProducer

from benchmarks.machine import describe
from benchmarks.spark.gauges import Gauges
from benchmarks.topic import fill, numbered
from reactive_kafka import App, TopicPartition
from reactive_kafka.broker.local import local_kafka
from reactive_kafka.events import Event, Rebalanced

TOPIC, GROUP = "rebalanced", "rebalance"
FIRST_RECORD_S, LAG_P99_MS = 2.0, 50.0
"""What is to be reached: from the revocation to the first record, and how late the loop turns meanwhile."""
RECORDS_A_SECOND = 1_000
WAIT_S = 60.0
AFTER_S, STEADY_S = 1.0, 2.0
STEADY = "no rebalance"
ROUNDS = ("joins", "leaves", "joins again", "leaves again")


def make_app(bootstrap: str) -> App:
    """An application with the one channel ``bench``; all that is not said is at its default."""
    channel = {"topic": TOPIC, "group_id": GROUP, "auto_offset_reset": "earliest"}
    return App(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "http": {"enabled": False},
            "incoming": {"bench": channel},
        }
    )


class Watched:
    """The member that stays: when it was revoked, assigned, and handled its first record after that."""

    def __init__(self, app: App) -> None:
        self.gauges = Gauges()
        self.handled = 0
        self.revoked_at = self.assigned_at = self.first_at = 0.0
        self.share = 0
        self.is_over = asyncio.Event()
        self.cpu_s = 0.0
        self.next_phase = ""
        self.is_missed = False  # a goal

        @app.on_revoked("bench")
        async def revoked(partitions: frozenset[TopicPartition]) -> None:
            self.revoked_at, self.cpu_s = time.perf_counter(), time.process_time()
            self.gauges.phase = self.next_phase

        @app.incoming("bench")
        async def handle(payload: bytes) -> None:
            self.handled += 1
            if self.assigned_at > self.first_at:
                self.first_at = time.perf_counter()
                self.is_over.set()

    def on(self, event: Event) -> None:
        """Told of every event."""
        if isinstance(event, Rebalanced) and event.kind == "assigned":
            self.assigned_at, self.share = time.perf_counter(), len(event.partitions)

    async def until_over(self, phase: str) -> None:
        """Wait until records have come for a second after a rebalance; samples count for *phase* until then."""
        self.next_phase = phase
        async with asyncio.timeout(WAIT_S):
            await self.is_over.wait()
        await asyncio.sleep(AFTER_S)
        self.cpu_s = time.process_time() - self.cpu_s
        self.gauges.phase = STEADY
        self.is_over.clear()

    def line(self, phase: str) -> str:
        """What the rebalance has come to."""
        lag = self.gauges.lag_ms(phase)
        silent_s, brought_s = self.first_at - self.revoked_at, self.first_at - self.assigned_at
        self.is_missed = self.is_missed or silent_s > FIRST_RECORD_S or lag.p99 > LAG_P99_MS
        return (
            f"| {phase} | {self.share:,} | {silent_s:.2f} | {brought_s:.2f} | {self.cpu_s:.2f} "
            f"| {lag.p50:.1f} | {lag.p99:.1f} | {lag.max:.1f} |"
        )


async def measure(bootstrap: str, partitions: int) -> bool:
    """Have the other member come and go, and print what each rebalance cost; whether all were within the goals."""
    app = make_app(bootstrap)
    watched = Watched(app)
    app.observe(watched)
    print("| the other | partitions | first record after, s | after the assignment | CPU s | lag p50, ms | p99 | max |")
    print("|---|---|---|---|---|---|---|---|")
    async with watched.gauges, app:
        await watched.until_over("start")
        for joins, leaves in (ROUNDS[:2], ROUNDS[2:]):
            async with _process("--other", bootstrap, partitions):
                await watched.until_over(joins)
                print(watched.line(joins), flush=True)
                await asyncio.sleep(STEADY_S)
            await watched.until_over(leaves)
            print(watched.line(leaves), flush=True)
            await asyncio.sleep(STEADY_S)
        steady = watched.gauges.lag_ms(STEADY)
        rest = f"lag p50 {steady.p50:.1f} ms, p99 {steady.p99:.1f} ms"
        print(f"\nbetween them, at {RECORDS_A_SECOND:,} records/s: {rest}")
        print(f"goals: {FIRST_RECORD_S:g} s, p99 {LAG_P99_MS:g} ms: {'missed' if watched.is_missed else 'met'}")
        return not watched.is_missed


@contextlib.asynccontextmanager
async def _process(what: str, bootstrap: str, partitions: int) -> AsyncIterator[None]:
    """Another process of this module, until the context ends; it ends with its input."""
    command = [sys.executable, "-m", "benchmarks.rebalance", what, bootstrap, "--partitions", str(partitions)]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    try:
        yield
        if process.returncode is not None:
            raise RuntimeError(f"{what} ended by itself, with {process.returncode}")
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _until_input_ends() -> None:
    await asyncio.to_thread(sys.stdin.buffer.read)


async def other(bootstrap: str) -> None:
    """The member that comes and goes."""
    app = make_app(bootstrap)

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        pass

    async with app:
        await _until_input_ends()


async def feed(bootstrap: str, partitions: int) -> None:
    """Write to one partition after the other, evenly, until the input ends."""
    over = asyncio.create_task(_until_input_ends())
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    began, sent = time.perf_counter(), 0
    while not over.done():
        due = int((time.perf_counter() - began) * RECORDS_A_SECOND)
        for number in range(sent, due):
            await producer.send(TOPIC, numbered(number), partition=number % partitions)
        sent = due
        await asyncio.sleep(0.01)
    await producer.stop()


async def _all(bootstrap: str, partitions: int) -> bool:
    await fill(bootstrap, TOPIC, partitions, partitions=partitions)  # and every partition has its leader
    async with _process("--feed", bootstrap, partitions):
        return await measure(bootstrap, partitions)


def main() -> None:
    """Measure on a Kafka of its own; or be one of the other processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--check", action="store_true", help="end with 1 if a goal is missed")
    parser.add_argument("--other", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--feed", metavar="ADDRESS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells of every rebalance
    if given.other:
        asyncio.run(other(given.other))
    elif given.feed:
        asyncio.run(feed(given.feed, given.partitions))
    else:
        print("\n".join(describe()), flush=True)
        with local_kafka() as bootstrap:
            is_met = asyncio.run(_all(bootstrap, given.partitions))
        sys.exit(given.check and not is_met)


if __name__ == "__main__":
    main()
