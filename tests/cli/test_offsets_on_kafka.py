"""``offsets`` and ``dlq`` against a real Kafka: one story, from a look at a group to dead letters
sent back.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import aiokafka
import pytest
from click.testing import CliRunner

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.cli.commands import commands
from reactive_kafka.records import RawRecord
from reactive_kafka.subscription import Topics
from tests.broker.members import Member
from tests.cli.process import COMMAND, Ended, environment
from tests.failure.samples import failed, letter_of
from tests.harness.kafka import clients_of

pytestmark = pytest.mark.kafka

QUICK = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}


class Stage:
    """A topic of two partitions with 10 and 4 records, its dead letters, and a group; all by the
    same name.
    """

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.name = f"orders-{uuid4().hex[:8]}"
        self.letters = f"letters-of-{self.name}"

    def tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self.name, partition)

    def cli(self, *arguments: str) -> Ended:
        """A command, in this process."""
        where = () if "--config" in arguments else ("--bootstrap-servers", self.servers)
        done = CliRunner().invoke(commands, [*arguments, *where])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

    def answered(self, answer: str, *arguments: str) -> Ended:
        """A command in a process of its own, at a terminal where somebody answers its question."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, f"{answer}\n".encode())
            done = subprocess.run(
                [*COMMAND, *arguments, "--bootstrap-servers", self.servers],
                stdin=theirs,
                capture_output=True,
                text=True,
                env=environment(),
                timeout=60,
                check=False,
            )
        finally:
            os.close(ours)
            os.close(theirs)
        return Ended(done.returncode, done.stdout, done.stderr)

    async def fill(self) -> None:
        connector = clients_of(self.servers)
        inspector = connector.inspector(properties={})
        producer = connector.producer(name="test", properties={})
        await inspector.start()
        await producer.start()
        try:
            for topic in (self.name, self.letters):
                await inspector.create_topic(topic, 2)
            sent = [
                await producer.send(
                    self.name, b"%d" % number, partition=partition, timestamp_ms=1_000_000 + number
                )
                for partition, count in ((0, 10), (1, 4))
                for number in range(count)
            ]
            written = letter_of(failed(partition=self.tp(1), offset=2), self.letters)
            sent.append(
                await producer.send(
                    self.letters,
                    written.value,
                    key=written.key,
                    headers=written.headers,
                    partition=0,
                    timestamp_ms=written.timestamp_ms,
                )
            )
            await asyncio.gather(*sent)
            await inspector.commit(self.name, {self.tp(0): Committed(6, "half")})
        finally:
            await producer.stop()
            await inspector.stop()
        await self._abort_a_letter()

    async def _abort_a_letter(self) -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.servers, transactional_id=self.name
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(self.letters, b"aborted", partition=0)
            await producer.abort_transaction()

    @contextmanager
    def member(self) -> Iterator[None]:
        """Somebody who is in the group meanwhile."""
        with asyncio.Runner() as runner:
            consumer = clients_of(self.servers).consumer(
                name="worker",
                subscription=Topics((self.name,)),
                group_id=self.name,
                properties=QUICK,
            )
            member = Member(consumer)
            try:
                runner.run(consumer.start(member))
                runner.run(member.until_assigned(2))
                yield
            finally:
                runner.run(consumer.stop())

    def committed(self, group: str) -> dict[TopicPartition, Committed]:
        async def ask() -> dict[TopicPartition, Committed]:
            inspector = clients_of(self.servers).inspector(properties={})
            await inspector.start()
            try:
                return await inspector.committed(group)
            finally:
                await inspector.stop()

        return asyncio.run(ask())

    def last_record(self, partition: TopicPartition) -> RawRecord:
        async def take() -> RawRecord:
            theirs = aiokafka.TopicPartition(*partition)
            async with aiokafka.AIOKafkaConsumer(bootstrap_servers=self.servers) as consumer:
                consumer.assign([theirs])
                consumer.seek(theirs, (await consumer.end_offsets([theirs]))[theirs] - 1)
                found: RawRecord = await consumer.getone()
                return found

        return asyncio.run(take())


def test_positions_are_shown_set_saved_and_restored_and_letters_sent_back_once(
    kafka: str, tmp_path: Path
) -> None:
    stage = Stage(kafka)
    asyncio.run(stage.fill())
    with stage.member():
        shown = json.loads(stage.cli("offsets", "show", stage.name, "--json").out)
        refused = stage.cli(
            "offsets", "reset", stage.name, "--topic", stage.name, "--to", "earliest", "--yes"
        )
    assert (shown["state"], len(shown["members"])) == ("Stable", 1)
    assert [
        (row["partition"], row["position"], row["lag"], row["metadata"])
        for row in shown["positions"]
    ] == [
        (0, 6, 4, "half"),
        (1, None, None, ""),
    ]
    assert refused.code == 1
    assert shown["members"][0]["member_id"] in refused.err

    file = tmp_path / "saved.json"
    file.write_text(stage.cli("offsets", "export", stage.name).out)
    to_a_time = (
        "offsets",
        "reset",
        stage.name,
        "--topic",
        stage.name,
        "--to",
        "1970-01-01T00:16:40.003Z",
    )
    assert "would set 2 positions" in stage.cli(*to_a_time, "--dry-run").out
    assert stage.committed(stage.name) == {stage.tp(0): Committed(6, "half")}
    no = stage.answered("n", *to_a_time)
    assert (no.code, stage.committed(stage.name)) == (1, {stage.tp(0): Committed(6, "half")})
    assert "Set 2 positions" in no.err
    yes = stage.answered("y", *to_a_time)
    assert yes.code == 0, yes.err
    assert stage.committed(stage.name) == {stage.tp(0): Committed(3), stage.tp(1): Committed(3)}
    assert stage.cli("offsets", "import", stage.name, str(file), "--yes").code == 0
    assert stage.committed(stage.name) == {
        stage.tp(0): Committed(6, "half"),
        stage.tp(1): Committed(3),
    }

    letters = stage.cli("dlq", "show", stage.letters)
    assert (
        f"from {stage.name}-1 2 of 2023-11-14T22:13:15.000+00:00  key ada  builtins.ValueError: no amount"
        in letters.out
    )
    # And not the one that was aborted.
    assert f"1 record in {stage.letters}" in letters.out
    by_hand = stage.cli("dlq", "replay", stage.letters, "--yes")
    assert "which no incoming channel of the configuration reads" in by_hand.out
    config = tmp_path / "app.toml"
    servers = f'[kafka]\nbootstrap_servers = "{stage.servers}"\n'
    config.write_text(
        f'{servers}[incoming.orders]\ntopic = "{stage.name}"\ngroup_id = "{stage.name}"\n'
    )
    replay = ("dlq", "replay", stage.letters, "--yes", "--config", str(config))
    replayed = stage.cli(*replay)
    assert replayed.out.endswith("replayed 1 record\n"), replayed.err
    again = stage.cli(*replay)
    assert (again.code, again.out) == (0, f"{stage.letters}: 0 records to replay\n")
    back, original = stage.last_record(stage.tp(1)), failed()
    assert (back.offset, back.key, back.value) == (4, original.key, original.value)
    assert (tuple(back.headers), back.timestamp) == (original.headers, original.timestamp_ms)
