"""The pipeline of examples/clickstream counts every click once, in both modes, and leaves out what
is no click.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psycopg
import pyarrow.parquet
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Place

from reactive_kafka import TopicPartition
from reactive_kafka.broker.client import Inspector
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.spark.session.kafka_source import fetch_connector
from tests.cli.process import COMMAND, cli, environment, running
from tests.examples.spark import EXAMPLES
from tests.examples.typed_page import shown
from tests.faults.driver import create_topic
from tests.harness.postgres import Postgres

FOLDER = EXAMPLES / "clickstream"
CLICKS, BROKEN = 3000, 0.01
# A driver starts and runs its first jobs, with the machine busy.
DONE_S = 240.0

# Hour, page -> clicks, seconds.
Counts = dict[tuple[datetime, str], tuple[int, float]]


class Sent(NamedTuple):
    """A record of the log."""

    at: datetime
    value: bytes


class Pipeline(NamedTuple):
    """What one run of the service has left, and what ``report.py`` prints of it."""

    parquet: Counts
    postgres: Counts
    letters: Counter[bytes]
    report: str


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.postgres
async def test_every_click_is_counted_once_in_both_modes_and_what_is_no_click_is_a_dead_letter(
    kafka: str, postgres: Postgres, tmp_path: Path
) -> None:
    fetch_connector()
    topic = f"clicks-{uuid4().hex[:8]}"
    await create_topic(kafka, topic, 3)
    await generate(kafka, topic)
    sent = await everything(kafka, topic)
    good, broken = told_apart(sent)
    assert len(sent) == CLICKS
    assert broken.total() > CLICKS * BROKEN / 2

    for mode in ("records", "ranges"):
        left = await run_service(kafka, topic, mode, postgres, tmp_path / mode)
        assert left == Pipeline(good, good, broken, shown("examples/clickstream/README.md")), mode


async def generate(kafka: str, topic: str) -> None:
    """Send the clicks, as a user would."""
    options = ["--count", str(CLICKS), "--broken", str(BROKEN), "--topic", topic]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "generate.py",
        *options,
        cwd=FOLDER,
        env=environment({"CLICKSTREAM_KAFKA": kafka}),
    )
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def everything(kafka: str, topic: str) -> list[Sent]:
    """All records of a topic; none where there is no such topic."""
    places = await partitions(kafka, topic)
    found: list[Sent] = []
    if not places:
        return found
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([Place(*place) for place in places])
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [
                    Sent(datetime.fromtimestamp(one.timestamp / 1000, UTC), one.value)
                    for one in records
                ]
    return found


def told_apart(sent: list[Sent]) -> tuple[Counts, Counter[bytes]]:
    """What is to be counted, and the values that are to be dead letters."""
    clicks: Counter[tuple[datetime, str]] = Counter()
    seconds: Counter[tuple[datetime, str]] = Counter()
    broken: Counter[bytes] = Counter()
    for one in sent:
        try:
            click = json.loads(one.value)
            at = datetime.fromisoformat(click["at"])
        except (ValueError, KeyError):
            broken[one.value] += 1
            continue
        # The generator's are two days ahead.
        if at > one.at:
            broken[one.value] += 1
            continue
        hour = at.replace(minute=0, second=0), click["page"]
        clicks[hour] += 1
        seconds[hour] += click["seconds"]
    return {hour: (clicks[hour], seconds[hour]) for hour in clicks}, broken


async def run_service(
    kafka: str, topic: str, mode: str, postgres: Postgres, folder: Path
) -> Pipeline:
    """Run the example until its group has committed everything."""
    group = f"{topic}-{mode}"
    dsn = database(postgres)
    env = {
        "CLICKSTREAM_KAFKA": kafka,
        "CLICKSTREAM_MODE": mode,
        "CLICKSTREAM_MASTER": "local[2]",
        "CLICKSTREAM_FOLDER": str(folder),
        "CLICKSTREAM_POSTGRES": dsn,
        "CLICKSTREAM_PORT": "0",
        "REACTIVE_KAFKA__INCOMING__CLICKS__TOPIC": topic,
        "REACTIVE_KAFKA__INCOMING__CLICKS__GROUP_ID": group,
        "REACTIVE_KAFKA__INCOMING__CLICKS__DEAD_LETTER_QUEUE__TOPIC": f"{group}-dead",
        "REACTIVE_KAFKA__INCOMING__CLICKS__COMMIT_INTERVAL": "300ms",
        "REACTIVE_KAFKA__INCOMING__CLICKS__SPARK__BATCH_MAX_RECORDS": "1000",
        "REACTIVE_KAFKA__INCOMING__CLICKS__SPARK__BATCH_MAX_WAIT": "500ms",
    }
    with running(*COMMAND, "run", "clickstream:app", cwd=FOLDER, env=env) as service:
        async with looking(kafka) as inspector:
            give_up = time.monotonic() + DONE_S
            while not await all_is_committed(inspector, group, await partitions(kafka, topic)):
                assert service.process.poll() is None, service.said
                assert time.monotonic() < give_up, (
                    f"not all is committed within {DONE_S} s: {service.said}"
                )
                await asyncio.sleep(0.3)
        service.process.send_signal(signal.SIGTERM)
        ended = await asyncio.to_thread(service.end)
    assert ended.code == 0, service.said
    dead = await everything(kafka, f"{group}-dead")
    report = await asyncio.to_thread(
        subprocess.check_output,
        [sys.executable, "report.py"],
        cwd=FOLDER,
        env=environment(env),
        text=True,
    )
    letters = Counter(one.value for one in dead)
    return Pipeline(in_parquet(folder), in_postgres(dsn), letters, report)


def database(postgres: Postgres) -> str:
    """A schema of its own with the example's tables; how to connect to it."""
    schema = f"run_{uuid4().hex}"
    dsn = f"{postgres.dsn}?options=-csearch_path%3D{schema}"
    with psycopg.connect(dsn) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute((FOLDER / "tables.sql").read_text())
    return dsn


@asynccontextmanager
async def looking(kafka: str) -> AsyncIterator[Inspector]:
    inspector = KafkaConnector(kafka).inspector(properties={})
    await inspector.start()
    try:
        yield inspector
    finally:
        await inspector.stop()


async def partitions(kafka: str, topic: str) -> list[TopicPartition]:
    async with looking(kafka) as inspector:
        return (await inspector.topics()).get(topic, [])


async def all_is_committed(inspector: Inspector, group: str, places: list[TopicPartition]) -> bool:
    ends = await inspector.end_offsets(places)
    committed = await inspector.committed(group, places)
    return all(
        place in committed and committed[place].offset == end for place, end in ends.items() if end
    )


def in_parquet(folder: Path) -> Counts:
    """Added up over the ranges, as readers do."""
    counts: Counts = {}
    for row in pyarrow.parquet.read_table(folder).to_pylist():
        hour = row["hour"].astimezone(UTC), row["page"]
        clicks, seconds = counts.get(hour, (0, 0.0))
        counts[hour] = clicks + row["clicks"], seconds + row["seconds"]
    return counts


def in_postgres(dsn: str) -> Counts:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT hour, page, clicks, seconds FROM hourly").fetchall()
    return {(hour.astimezone(UTC), page): (clicks, seconds) for hour, page, clicks, seconds in rows}


@pytest.mark.parametrize("mode", ["records", "ranges"])
def test_the_example_passes_its_check(mode: str) -> None:
    if mode == "ranges":
        fetch_connector()
    ended = cli("check", "clickstream:app", cwd=FOLDER, env={"CLICKSTREAM_MODE": mode})
    assert ended.code == 0, ended.err
