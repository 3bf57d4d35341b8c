"""Runs the points of a plan on a real Kafka, each in a process of its own, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from benchmarks import machine, topic
from benchmarks.plots.figures import Figures, Measured
from benchmarks.plots.plan import Plan, Point, Source
from benchmarks.plots.stacks import folded, unfolded, without_rare
from benchmarks.plots.work import Task

ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_S = 120.0
LEAST_SHARE = 0.001
"""Of the samples, for a function to be told from its caller."""
AT_ONCE = 16
"""Partitions that are written at a time, and batches of each that are under way."""


class RunFailedError(Exception):
    """A run ended with an error, or not at all."""


@contextlib.contextmanager
def kafka(bootstrap: str | None) -> Iterator[str]:
    """A broker's address."""
    if bootstrap:
        yield bootstrap
        return
    from reactive_kafka.broker.local_kafka import local_kafka

    with local_kafka() as address:
        yield address


def circumstances() -> list[str]:
    """When and on what the figures were taken."""
    return [f"{time.strftime('%Y-%m-%d', time.gmtime())}", *machine.describe()]


def measured(
    plan: Plan,
    points: Sequence[Point],
    bootstrap: str,
    rounds: int | None,
    topics: dict[Source, str],
) -> Figures:
    """What *points* measure, some of the plan's or all; *topics* that are filled already are read
    again.
    """
    for source in dict.fromkeys(one.source for one in points):
        if source not in topics:
            topics[source] = _filled(bootstrap, source)
    found = {(one.line, one.at): Measured(line=one.line, at=one.at) for one in points}
    # The broker's code is cold at first, and the first reader alone would pay for it.
    if points[0].source.records:
        _run(points[0], bootstrap, topics[points[0].source])
    for number in range(rounds or plan.rounds):
        # Every other round backwards: neighbours stay neighbours, and none is always the first.
        for point in points if number % 2 == 0 else reversed(points):
            for _ in range(point.times):
                run = _run(point, bootstrap, topics[point.source])
                found[point.line, point.at].add(run)
                said = ", ".join(
                    f"{key} {value:,.4g}" for key, value in run.items() if isinstance(value, float)
                )
                print(f"{point.line}, {point.at}: {said}", flush=True)
    for one in found.values():
        one.stacks = folded(without_rare(unfolded(one.stacks), LEAST_SHARE))
    return Figures(circumstances=circumstances(), points=list(found.values()))


def _filled(bootstrap: str, source: Source) -> str:
    name = f"plots-{'-'.join(map(str, source))}-{uuid.uuid4().hex[:8]}"
    if source.keys:
        asyncio.run(_fill_with_keys(bootstrap, name, source))
    elif source.records:
        asyncio.run(topic.fill(bootstrap, name, source.records, partitions=source.partitions))
    else:
        asyncio.run(topic.create(bootstrap, name, partitions=source.partitions))
    return name


async def _fill_with_keys(bootstrap: str, name: str, source: Source) -> None:
    """Each key in one partition; the keys take turns."""
    await topic.create(bootstrap, name, partitions=source.partitions)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, max_batch_size=topic.BATCH_BYTES, enable_idempotence=True
    )
    async with producer:
        for partition in range(min(source.partitions, source.keys)):
            keys = range(partition, source.keys, source.partitions)
            written = 0
            count = source.records // min(source.partitions, source.keys)
            under_way: list[Any] = []
            while written < count:
                batch = producer.create_batch()
                while written < count:
                    key = b"%d" % keys[written % len(keys)]
                    if batch.append(key=key, value=topic.numbered(written), timestamp=None) is None:
                        break
                    written += 1
                under_way.append(await producer.send_batch(batch, name, partition=partition))
                if len(under_way) >= AT_ONCE:
                    await under_way.pop(0)
            for confirmation in under_way:
                await confirmation


def _run(point: Point, bootstrap: str, name: str) -> dict[str, Any]:
    """One run in a process of its own.

    Raises:
        RunFailedError: It did not end well, or not in time.
    """
    task = Task(
        who=point.who,
        bootstrap=bootstrap,
        topic=name,
        group=f"plots-{uuid.uuid4().hex[:8]}",
        records=point.records or point.source.records,
        **point.more,
    )
    command = [sys.executable, "-m", "benchmarks.plots.work", task.text()]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(
            f"{point.line}, {point.at}: not done after {RUN_TIMEOUT_S:g} s"
        ) from error
    if done.returncode or not done.stdout.strip():
        raise RunFailedError(
            f"{point.line}, {point.at}: exit code {done.returncode}: {done.stderr[-3000:]}"
        )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured
