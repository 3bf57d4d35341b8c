"""``python -m benchmarks.tracing``: what OpenTelemetry's spans and metrics cost for each record.

An application on the broker in memory handles records one after the other. Each way runs in
processes of its own, which take turns. The least processor time of a record counts, with that of
the SDK's threads. Exporters drop what they get.

The first table is of a handler that does nothing, and says from which duration of a handler on the
cost is under the goal of 3 %. The second one is of handlers that work: they read an order of a
hundred lines, add it up and write it again, some times over. Measure on a machine that does nothing
else: 3 % are less than what a busy one varies by.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.machine import ROOT

RECORDS = 5_000
WORKING_RECORDS = 1_000
WORKS = (25, 100)
"""How often the handlers of the second table do their work. Once takes about 0.1 ms."""
WORKING_WAYS = ("spans, not sampled", "spans", "spans and metrics")
ORDER = json.dumps(
    {"lines": [{"article": f"a-{line}", "pieces": line, "price": 1.25} for line in range(100)]}
).encode()
ROUNDS = 3
GOAL_PERCENT = 3.0
PRODUCER = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
UNSAMPLED = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")


def with_nothing() -> None:
    """Set no provider."""


def with_spans() -> None:
    """Set a tracer provider that exports in batches, as applications do."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    class Dropping(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    trace.set_tracer_provider(provider)


def with_metrics() -> None:
    """Set a meter provider."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))


def with_both() -> None:
    """Set both providers."""
    with_spans()
    with_metrics()


WAYS: dict[str, tuple[Callable[[], None], tuple[str, bytes]]] = {
    "nothing": (with_nothing, PRODUCER),
    "metrics": (with_metrics, PRODUCER),
    "spans, not sampled": (with_spans, UNSAMPLED),
    "spans": (with_spans, PRODUCER),
    "spans and metrics": (with_both, PRODUCER),
}
"""Name -> what sets the providers, and the header that each record has."""


def work(value: bytes, times: int) -> None:
    """Read an order, add it up, and write it, some times over."""
    for _ in range(times):
        order = json.loads(value)
        order["sum"] = sum(line["pieces"] * line["price"] for line in order["lines"])
        json.dumps(order)


async def cpu_us(header: tuple[str, bytes], records: int, works: int) -> float:
    """Return the processor time of one record, in microseconds."""
    from reactive_kafka import App, Message
    from reactive_kafka.testing import MemoryBroker, TestApp

    broker = MemoryBroker()
    app = App({"incoming": {"orders": {"group_id": "g", "auto_offset_reset": "earliest"}}})
    left = records
    done = asyncio.Event()

    @app.incoming("orders")
    async def handler(message: Message[bytes]) -> None:
        nonlocal left
        work(message.payload, works)
        left -= 1
        if left == 0:
            done.set()

    async with TestApp(app, broker=broker):
        # Records that are there before it would be handled in part while it starts.
        for _ in range(records):
            broker.produce("orders", ORDER, partition=0, headers=[header])
        began = time.process_time()
        await done.wait()
        spent = time.process_time() - began
    await broker.close()
    return spent / records * 1e6


def measured(way: str, records: int, works: int = 0) -> float:
    """Return what a process of its own measures for one way, in microseconds."""
    command = [sys.executable, "-m", "benchmarks.tracing", "--way", way]
    command += ["--records", str(records), "--works", str(works)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, env=machine.environment()
    )
    return float(done.stdout)


def table(costs: dict[str, float]) -> list[str]:
    """Return the lines of a table.

    Args:
        costs: Way -> microseconds of a record.
    """
    lines = [
        f"| set up | µs more | of 1 ms | of 10 ms | under {GOAL_PERCENT:g} % from |",
        "|---|---|---|---|---|",
    ]
    for way, cost in costs.items():
        more_us = cost - costs["nothing"]
        from_ms = more_us / GOAL_PERCENT / 10
        lines.append(
            f"| {way} | {more_us:.1f} | {more_us / 10:.1f} % | {more_us / 100:.1f} % "
            f"| {from_ms:.1f} ms |"
        )
    return lines


class WorkingCost(NamedTuple):
    """What one way costs a handler that works."""

    way: str
    # The processor time of a record without and with it, in microseconds.
    without_us: float
    with_us: float

    @property
    def more_percent(self) -> float:
        """How much more a record costs with it."""
        return (self.with_us / self.without_us - 1) * 100


def working_table(costs: Sequence[WorkingCost]) -> list[str]:
    """Return the lines of the table of handlers that work."""
    lines = [
        f"| set up | a record without it | with it | more | under {GOAL_PERCENT:g} % |",
        "|---|---|---|---|---|",
    ]
    for cost in costs:
        is_met = "yes" if cost.more_percent < GOAL_PERCENT else "no"
        lines.append(
            f"| {cost.way} | {cost.without_us / 1000:.2f} ms | {cost.with_us / 1000:.2f} ms "
            f"| {cost.more_percent:.1f} % | {is_met} |"
        )
    return lines


def working_costs(rounds: int, records: int) -> list[WorkingCost]:
    """Measure the ways with handlers that work."""
    found = []
    for works in WORKS:
        times = [
            {way: measured(way, records, works) for way in ("nothing", *WORKING_WAYS)}
            for _ in range(rounds)
        ]
        least = {way: min(each[way] for each in times) for way in times[0]}
        found += [WorkingCost(way, least["nothing"], least[way]) for way in WORKING_WAYS]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each way, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracing", description=__doc__)
    parser.add_argument("--way", choices=WAYS, help="measure one way, and print microseconds")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--working-records", type=int, default=WORKING_RECORDS)
    parser.add_argument("--works", type=int, default=0, help="with --way: how often to work")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given: Any = parser.parse_args(arguments)
    if given.way is not None:
        set_up, header = WAYS[given.way]
        set_up()
        print(asyncio.run(cpu_us(header, given.records, given.works)))
        return
    count = max(1, given.rounds)
    rounds = [{way: measured(way, given.records) for way in WAYS} for _ in range(count)]
    costs = {way: min(each[way] for each in rounds) for way in WAYS}
    print("\n".join(f"- {line}" for line in machine.describe()))
    print("\n".join(["", *table(costs)]))
    print("\n".join(["", *working_table(working_costs(count, given.working_records))]))


if __name__ == "__main__":
    main()
