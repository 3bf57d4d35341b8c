"""Services are killed between the write of a Spark batch and its commit; sinks that go by ranges
hold all once.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow.parquet
import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka.spark.session.kafka_source import connector_jars, fetch_connector
from tests.examples.delta import delta_conf
from tests.faults.driver import Life, Member, create_topic, free_port, until
from tests.faults.history import Partition
from tests.faults.observer import Observer, read_log_ends
from tests.faults.spark_service import postgres_rows
from tests.harness.postgres import Postgres, running_postgres

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.postgres]

PARTITIONS = 4
# For each kill of both members. Five batches at least: more than lives end before they are killed.
RECORDS_EACH = 800
# Of two members.
KILLS_EACH = [1, pytest.param(2, marks=pytest.mark.long_faults)]
# A driver starts, and writes its first batch, with the machine busy.
WRITES_S = 240.0

CONFIG = """
[kafka]
bootstrap_servers = "{kafka}"

[incoming.clicks]
topic = "{topic}"
group_id = "{topic}"
auto_offset_reset = "earliest"
commit_interval = "300ms"
"session.timeout.ms" = 3000
"heartbeat.interval.ms" = 500

[incoming.clicks.spark]
mode = "{mode}"
batch_max_records = 150
batch_max_wait = "300ms"

[spark]
master = "local[2]"

[spark.conf]
{conf}

[http]
port = {port}
"""
QUICK = {
    "spark.driver.memory": "600m",
    # Starts sooner.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
}

# Partition, offset -> how often it is there.
Places = Counter[tuple[int, int]]


@pytest.mark.parametrize("kills_each", KILLS_EACH)
async def test_kills_between_write_and_commit_leave_every_row_once_in_the_sinks_that_go_by_ranges(
    kafka: str, tmp_path: Path, kills_each: int
) -> None:
    """Row I1 of the faults."""
    fetch_connector()
    topic = f"clicks-{uuid4().hex[:8]}"
    partitions = await create_topic(kafka, topic, PARTITIONS)
    produced = await produce(kafka, partitions, RECORDS_EACH * kills_each)
    sinks = tmp_path / "sinks"
    sinks.mkdir()
    hold = sinks / "hold"
    hold.touch()
    with running_postgres() as postgres:
        make_tables(postgres)
        members = [
            member(kafka, topic, name, mode, tmp_path, postgres)
            for name, mode in (("left", "records"), ("right", "ranges"))
        ]
        try:
            async with asyncio.TaskGroup() as kills:
                for one in members:
                    kills.create_task(killed(one, kills_each))
            hold.unlink()
            await finish(kafka, topic, partitions, members)
        finally:
            for one in members:
                for life in one.lives:
                    life.end()
        rows = {
            "directories": in_parquet(sinks / "directories"),
            "delta": in_delta(sinks / "delta"),
            "postgres": in_postgres(postgres),
        }

    once = Counter(produced)
    assert {name: wrong(found, once) for name, found in rows.items() if found != once} == {}
    repeated = ids_written_again(members)
    assert len(repeated) == 2 * kills_each
    assert all(repeated.values()), (
        "a batch that was written when its process was killed came with other ids"
    )
    appended = in_parquet(sinks / "appended")
    assert appended.keys() == once.keys()
    assert appended.total() > len(produced), "nothing was repeated"


async def produce(kafka: str, partitions: list[Partition], records: int) -> list[tuple[int, int]]:
    """Fill the topic; where each record went."""
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        topic = partitions[0][0]
        sends = [
            await producer.send(topic, b"click %d" % number, partition=number % PARTITIONS)
            for number in range(records)
        ]
        written = await asyncio.gather(*sends)
    return [(one.partition, one.offset) for one in written]


def make_tables(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute(postgres_rows.PROGRESS)
        connection.execute('CREATE TABLE clicks ("partition" INT, "offset" BIGINT)')


def member(
    kafka: str, topic: str, name: str, mode: str, folder: Path, postgres: Postgres
) -> Member:
    """A member of the group, not started yet. What one of them leaves the other one takes up,
    whatever their modes.
    """
    conf = {**delta_conf(), **QUICK, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if mode == "ranges":
        conf["spark.jars"] = ",".join([conf["spark.jars"], *map(str, connector_jars())])
    text = "\n".join(f'"{key}" = "{value}"' for key, value in conf.items())
    port = free_port()
    config = CONFIG.format(kafka=kafka, topic=topic, mode=mode, conf=text, port=port)
    options = ("--sinks", str(folder / "sinks"), "--postgres", postgres.dsn)
    return Member(name, folder, config, port, "tests.faults.spark_service", options)


async def killed(one: Member, times: int) -> None:
    """Start a member, kill it when it has written a batch and not committed it, so many times; the
    next life stays.
    """
    for _ in range(times):
        life = one.start()
        await until(
            lambda life=life: waits(life), WRITES_S, f"{life.name} has written a batch", life.tail
        )  # type: ignore[misc]
        life.send(signal.SIGKILL)
        assert await life.exited(5) == -signal.SIGKILL
    one.start()


def waits(life: Life) -> bool:
    """Whether its latest batch is written, and held before its commit."""
    assert life.exit_code is None, f"{life.name} exited with {life.exit_code}: {life.tail()}"
    return bool(life.events) and life.events[-1].kind == "waiting"


async def finish(
    kafka: str, topic: str, partitions: list[Partition], members: list[Member]
) -> None:
    """Let the group commit everything, and stop its members."""
    ends = await read_log_ends(kafka, partitions)
    observer = Observer(kafka, topic, partitions)
    async with observer.watching():
        await until(
            lambda: all(observer.committed(tp) >= end for tp, end in ends.items()),
            WRITES_S,
            f"all is committed up to {ends}",
            lambda: f"{observer.latest}: {members[0].life.tail()}",
        )
    for one in members:
        one.life.send(signal.SIGTERM)
    for one in members:
        assert await one.life.exited(30) == 0, one.life.tail()


def ids_written_again(members: Iterable[Member]) -> Mapping[str, set[str]]:
    """killed process -> the others that have written all ranges of its last batch, each under the
    same id.
    """
    lives = [life for one in members for life in one.lives]
    written = {
        life.name: {
            id for event in life.events if event.kind == "written" for id in event.id.split("-")
        }
        for life in lives
    }
    found = {}
    for life in lives:
        if life.exit_code == -signal.SIGKILL:
            last = set(life.events[-1].id.split("-"))
            others = {name for name, ids in written.items() if name != life.name and ids & last}
            again = set().union(*(written[name] for name in others))
            found[life.name] = others if last <= again else set()
    return found


def wrong(found: Places, right: Places) -> dict[tuple[int, int], int]:
    """Which records are not there as often as they should be, and how often they are."""
    return {
        place: found[place] for place in found.keys() | right.keys() if found[place] != right[place]
    }


def in_parquet(folder: Path) -> Places:
    """What a reader of all files sees: those that Spark has finished."""
    return _of_files(
        path
        for path in folder.rglob("*.parquet")
        if not any(p[0] in "._" for p in path.relative_to(folder).parts)
    )


def in_delta(table: Path) -> Places:
    """What a reader of the table's latest version sees."""
    files: set[str] = set()
    for version in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, version.read_text().splitlines()):
            if "add" in action:
                files.add(action["add"]["path"])
            if "remove" in action:
                files.discard(action["remove"]["path"])
    return _of_files(table / path for path in files)


def _of_files(paths: Iterable[Path]) -> Places:
    places: Places = Counter()
    for path in paths:
        table = pyarrow.parquet.ParquetFile(path).read(columns=["partition", "offset"])
        places.update(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    return places


def in_postgres(postgres: Postgres) -> Places:
    with psycopg.connect(postgres.dsn) as connection:
        return Counter(connection.execute('SELECT "partition", "offset" FROM clicks').fetchall())
