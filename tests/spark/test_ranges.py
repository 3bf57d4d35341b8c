"""Spark's executors read ranges of a real Kafka's log by themselves: right rows, whatever else the
log holds.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from reactive_kafka import IncomingSettings, TopicPartition
from reactive_kafka.errors import BadDataError, ClusterError, OffloadError
from reactive_kafka.records import RawRecord
from reactive_kafka.spark.batches.columns import record_batch
from reactive_kafka.spark.batches.spark_batch import BatchPart, spark_range
from reactive_kafka.spark.channel.refetch import records_of
from reactive_kafka.spark.session.kafka_source import KafkaSource
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.config.values import secret_of
from tests.harness.kafka import KafkaCluster, clients_of
from tests.spark.records import SPARK

pytestmark = [*SPARK, pytest.mark.kafka]

COMMITTED = {"isolation_level": "read_committed"}


def channel(**client: Any) -> IncomingSettings:
    return IncomingSettings(name="clicks", topics=("clicks",), group_id="g", client=client)


def source(servers: str, **client: Any) -> KafkaSource:
    return KafkaSource(channel(**client), lambda: servers)


def part(partition: TopicPartition, *pieces: Any) -> BatchPart:
    covered = spark_range("g", partition, 0, 1_000)
    return BatchPart(covered, pieces, sum(map(len, pieces)))


async def rows(engine: SparkEngine, made: KafkaSource, *parts: BatchPart) -> list[Any]:
    """The rows of a job over *parts*, by partition and offset."""

    def job(spark: Any) -> list[Any]:
        found: list[Any] = made(spark, parts).collect()
        return found

    found = await engine.run(job, timeout_s=90, description="read ranges")
    return sorted(found, key=lambda row: (row.partition, row.offset))


async def offsets(engine: SparkEngine, made: KafkaSource, *parts: BatchPart) -> list[int]:
    return [row.offset for row in await rows(engine, made, *parts)]


@asynccontextmanager
async def producing(servers: str, **more: Any) -> AsyncIterator[aiokafka.AIOKafkaProducer]:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, **more) as producer:
        yield producer


class Topic(NamedTuple):
    """A topic whose first partition holds plain records, and the second what transactions leave
    behind.

    plain: offsets 0 to 9. mixed: 0 and 1, marker 2; 3 and 4 aborted, marker 5; 6 and 7, marker 8,
    the log's last.
    """

    servers: str
    plain: TopicPartition
    mixed: TopicPartition


@pytest.fixture(scope="module")
def topic(kafka: str) -> Topic:
    name = f"clicks-{uuid4().hex[:8]}"
    asyncio.run(_fill(kafka, name))
    return Topic(kafka, TopicPartition(name, 0), TopicPartition(name, 1))


async def _fill(servers: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 2, 1)])
        async with producing(servers) as producer:
            at = int(time.time() * 1000)
            for number in range(10):
                headers = [("a", b"1"), ("a", b"")] if number % 2 else []
                key = None if number == 3 else b"key"
                value = None if number == 4 else str(number).encode()
                await producer.send_and_wait(
                    topic, value, key=key, partition=0, headers=headers, timestamp_ms=at + number
                )
        async with producing(servers, transactional_id=topic) as producer:
            for is_good in (True, False, True):
                await producer.begin_transaction()
                for _ in range(2):
                    await producer.send_and_wait(topic, b"x", partition=1)
                await (producer.commit_transaction() if is_good else producer.abort_transaction())
    finally:
        await admin.close()


async def shipped(topic: Topic, partition: TopicPartition, wanted: range) -> Any:
    """The records as this process would ship them."""
    found: list[RawRecord] = []
    async with aclosing(
        records_of(clients_of(topic.servers), channel(), partition, wanted)
    ) as pieces:
        async for records in pieces:
            found += records
    return record_batch(partition, found)


async def test_executors_read_the_very_rows_and_columns_that_this_process_would_ship(
    engine: SparkEngine, topic: Topic
) -> None:
    piece = await shipped(topic, topic.plain, range(10))
    made = source(topic.servers)

    def job(spark: Any) -> tuple[list[Any], list[Any], Any, Any]:
        read, sent = (
            made(spark, [part(topic.plain, range(10))]),
            made(spark, [part(topic.plain, piece)]),
        )
        return read.collect(), sent.collect(), read.schema, sent.schema

    read, sent, read_schema, sent_schema = await engine.run(
        job, timeout_s=90, description="compare"
    )
    assert read_schema == sent_schema
    assert read == sent
    assert len(read) == 10


async def test_pieces_of_both_kinds_and_with_gaps_are_one_data_frame(
    engine: SparkEngine, topic: Topic
) -> None:
    piece = await shipped(topic, topic.plain, range(3, 5))
    found = await rows(
        engine,
        source(topic.servers, **COMMITTED),
        part(topic.plain, range(1), range(1, 2), range(6, 6), range(8, 10)),
        part(topic.plain, piece),
        part(topic.mixed, range(1, 7)),
    )
    assert [(row.partition, row.offset) for row in found] == [
        *((0, offset) for offset in (0, 1, 3, 4, 8, 9)),
        *((1, offset) for offset in (1, 6)),
    ]


async def test_markers_and_aborted_records_are_no_rows_and_an_end_that_is_a_marker_does_not_hang(
    engine: SparkEngine, topic: Topic
) -> None:
    committed = source(topic.servers, **COMMITTED)
    began = time.monotonic()
    assert await offsets(engine, committed, part(topic.mixed, range(9))) == [0, 1, 6, 7]
    assert await offsets(engine, committed, part(topic.mixed, range(8, 9))) == []
    assert await offsets(engine, committed, part(topic.mixed, range(2, 6))) == []
    assert await offsets(engine, committed, part(topic.mixed, range(5, 5))) == []
    # Spark waits 120 s for a record that does not come.
    assert time.monotonic() - began < 110.0


async def test_the_channel_s_isolation_level_is_that_of_the_executors(
    engine: SparkEngine, topic: Topic
) -> None:
    assert await offsets(engine, source(topic.servers), part(topic.mixed, range(9))) == [
        0,
        1,
        3,
        4,
        6,
        7,
    ]


async def test_a_start_that_was_deleted_fails_the_job_and_names_the_range(
    engine: SparkEngine, kafka: str
) -> None:
    name = f"deleted-{uuid4().hex[:8]}"
    await _fill(kafka, name)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.delete_records({aiokafka.TopicPartition(name, 0): RecordsToDelete(4)})
    finally:
        await admin.close()
    partition = TopicPartition(name, 0)
    with pytest.raises(OffloadError) as failed:
        await rows(engine, source(kafka), part(partition, range(2, 9)))
    assert f"[2, 9) for topic partition {partition}" in str(failed.value)
    # Smaller ranges, or another run, would not help.
    assert not isinstance(failed.value, BadDataError | ClusterError)
    assert await offsets(engine, source(kafka), part(partition, range(4, 9))) == [4, 5, 6, 7, 8]


async def test_executors_leave_no_group_and_no_position_on_the_broker(
    engine: SparkEngine, topic: Topic
) -> None:
    await rows(engine, source(topic.servers), part(topic.plain, range(10)))
    admin = AIOKafkaAdminClient(bootstrap_servers=topic.servers)
    await admin.start()
    try:
        groups = [group for group, _ in await admin.list_consumer_groups()]
    finally:
        await admin.close()
    assert [group for group in groups if "spark" in group or group == "g"] == []


# -- a broker that wants a certificate, a name and a password

USER, PASSWORD = 'bill "the cat"', "ca\\nary\"6d1f'; x"
WRONG = "canary-wrong-82aa"


@dataclass(frozen=True)
class Guarded:
    """A Kafka that speaks SASL over TLS with those who show a certificate."""

    servers: str
    admin: str
    folder: Path

    def client(self, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": USER,
            "sasl_plain_password": secret_of(password),
            "ssl_cafile": str(self.folder / "ca.crt"),
            "ssl_certfile": str(self.folder / "client.crt"),
            "ssl_keyfile": str(self.folder / "client.key"),
            "ssl_password": secret_of("opensesame"),
        }


def _openssl(folder: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def _certificates(folder: Path) -> None:
    """An authority, a server of this machine, and a client whose key is encrypted."""
    _openssl(
        folder, "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt"
    )
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        _openssl(
            folder,
            f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.plain -out {name}.csr",
        )
        signed = f"-in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out {name}.crt"
        _openssl(folder, f"x509 -req {signed}")
    encrypted = "-v1 PBE-SHA1-3DES -in client.plain -out client.key -passout pass:opensesame"
    _openssl(folder, f"pkcs8 -topk8 {encrypted}")
    (folder / "server.pem").write_text(
        (folder / "server.plain").read_text() + (folder / "server.crt").read_text()
    )


def _in_jaas(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tls")
    _certificates(folder)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    # The listener that is otherwise the brokers' own: with one node, they can use the clients'.
    properties = {
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        # In a properties file a backslash stands for itself only when it is doubled once more.
        "listener.name.internal.plain.sasl.jaas.config": (
            f'{login} required "user_{_in_jaas(USER)}"="{_in_jaas(PASSWORD)}";'.replace(
                "\\", "\\\\"
            )
        ),
        "listener.name.internal.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.crt"),
        "log.cleaner.backoff.ms": "100",
    }
    with KafkaCluster(properties=properties) as cluster:
        yield Guarded(cluster.internal[1], cluster.bootstrap_servers, folder)


async def _compacted(servers: str) -> tuple[TopicPartition, list[int]]:
    """A partition with holes where records of the same key were, and the offsets that it has
    left.
    """
    topic = "compacted"
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=config)])
    finally:
        await admin.close()
    partition = TopicPartition(topic, 0)
    async with producing(servers) as producer:
        for number in range(12):
            await producer.send_and_wait(topic, b"x", key=str(number % 3).encode(), partition=0)
        deadline = time.monotonic() + 60.0
        while True:
            # Older than a segment may get.
            await asyncio.sleep(0.2)
            end = (await producer.send_and_wait(topic, b"x", key=b"last", partition=0)).offset + 1
            left = await _left(servers, partition, end)
            if not {0, 1, 2} & set(left):
                return partition, left
            assert time.monotonic() < deadline, f"not compacted: {left}"


async def _left(servers: str, partition: TopicPartition, end: int) -> list[int]:
    found: list[int] = []
    async with aclosing(
        records_of(clients_of(servers), channel(), partition, range(end))
    ) as pieces:
        async for records in pieces:
            found += [record.offset for record in records]
    return found


async def test_holes_of_compaction_are_no_rows_and_certificate_name_and_password_open_the_door_and_are_told_nobody(
    engine: SparkEngine, guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    partition, left = await _compacted(guarded.admin)
    made = source(guarded.servers, **guarded.client())

    def job(spark: Any) -> tuple[list[int], str]:
        df = made(spark, [part(partition, range(left[-1] + 1))])
        jvm: Any = df._sc._jvm
        plan: str = jvm.PythonSQLUtils.explainString(df._jdf.queryExecution(), "extended")
        return sorted(row.offset for row in df.select("offset").collect()), plan

    found, plan = await engine.run(job, timeout_s=90, description="read with a password")
    # It goes on meanwhile.
    assert set(await _left(guarded.admin, partition, left[-1] + 1)) <= set(found) <= set(left)
    assert found[0] > 2
    with pytest.raises(OffloadError) as refused:
        await rows(
            engine, source(guarded.servers, **guarded.client(WRONG)), part(partition, range(1))
        )
    assert "Authentication" in str(refused.value.__cause__)
    key = (guarded.folder / "client.key").read_text().splitlines()[1]
    for text in (plan, caplog.text, str(refused.value), str(refused.value.__cause__), repr(made)):
        for secret in ("6d1f", WRONG, "opensesame", key):
            assert secret not in text
