"""``python -m benchmarks.tracing``: what OpenTelemetry's spans and metrics cost for each record.

An application on the broker in memory handles records one after the other, with a handler that does
nothing. Each way runs in processes of its own, which take turns. The least processor time of a
record counts, with that of the SDK's threads. Exporters drop what they get. What that is for a
handler that does something depends on how long it takes, so the table says from which duration on
the cost is under the goal of 3 %.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.machine import ROOT

RECORDS = 5_000
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


async def cpu_us(header: tuple[str, bytes], records: int) -> float:
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
        left -= 1
        if left == 0:
            done.set()

    for _ in range(records):
        broker.produce("orders", b"x", partition=0, headers=[header])
    async with TestApp(app, broker=broker):
        began = time.process_time()
        await done.wait()
        spent = time.process_time() - began
    await broker.close()
    return spent / records * 1e6


def measured(way: str, records: int) -> float:
    """Return what a process of its own measures for one way, in microseconds."""
    command = [sys.executable, "-m", "benchmarks.tracing", "--way", way, "--records", str(records)]
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each way, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracing", description=__doc__)
    parser.add_argument("--way", choices=WAYS, help="measure one way, and print microseconds")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given: Any = parser.parse_args(arguments)
    if given.way is not None:
        set_up, header = WAYS[given.way]
        set_up()
        print(asyncio.run(cpu_us(header, given.records)))
        return
    rounds = [
        {way: measured(way, given.records) for way in WAYS} for _ in range(max(1, given.rounds))
    ]
    costs = {way: min(each[way] for each in rounds) for way in WAYS}
    print("\n".join(f"- {line}" for line in machine.describe()))
    print("\n".join(["", *table(costs)]))


if __name__ == "__main__":
    main()
