"""``after``: a channel starts records only while the channels before it have none waiting."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from reactive_kafka import App, Batch, Message, SparkBatch, TopicPartition
from reactive_kafka.events import RecordPoisoned
from reactive_kafka.testing import TestApp
from tests.app.helpers import (
    Recorder,
    facts,
    in_virtual_time,
    make_broker,
    now,
    running,
    settle_down,
    until,
)
from tests.app.spark_stage import Engine
from tests.app.test_until_end import run_to_its_end


class Turns:
    """Channels upload and recalc, the second after the first, and when their records start."""

    def __init__(
        self,
        recorder: Recorder | None = None,
        upload: dict[str, Any] | None = None,
        batches: bool = False,
        **recalc: Any,
    ) -> None:
        both = {"auto_offset_reset": "earliest", "commit_interval": "100ms"}
        self.app = App(
            {
                "incoming": {
                    # The first by name and place is the one that waits.
                    "recalc": {"group_id": "recalc", "after": ["upload"], **both, **recalc},
                    "upload": {"group_id": "upload", **both, **(upload or {})},
                }
            },
            observer=recorder,
        )
        self.began: list[tuple[str, float]] = []
        self.upload_s = 0.5
        self.recalc_s = 0.5
        self.fails: Exception | None = None

        self.handled: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self.running = 0
        # Records of recalc that began while a handler of upload ran.
        self.early: list[int] = []

        @self.app.incoming("upload")
        async def upload_handler(message: Message[bytes]) -> None:
            self.handled["upload"].add((message.partition, message.offset))
            self.running += 1
            try:
                await self.call("upload", self.upload_s)
            finally:
                self.running -= 1
            if self.fails is not None:
                raise self.fails

        if batches:

            @self.app.incoming("recalc")
            async def batch_handler(batch: Batch[bytes]) -> None:
                for _ in batch:
                    self.began.append(("recalc", now()))
                await asyncio.sleep(self.recalc_s)

        else:

            @self.app.incoming("recalc")
            async def recalc_handler(message: Message[bytes]) -> None:
                self.handled["recalc"].add((message.partition, message.offset))
                if self.running and self.app.channel("upload").facts().state in (
                    "running",
                    "paused",
                ):
                    self.early.append(message.offset)
                await self.call("recalc", self.recalc_s)

    async def call(self, name: str, lasts_s: float) -> None:
        self.began.append((name, now()))
        await asyncio.sleep(lasts_s)

    def count(self, name: str) -> int:
        return sum(began == name for began, _ in self.began)


async def send_to(test: TestApp, name: str, count: int) -> None:
    for _ in range(count):
        await test.send(name, b"")


@pytest.mark.parametrize(
    "recalc",
    [
        {},
        {"ordering": "unordered", "concurrency": 4},
        {"ordering": "key", "concurrency": 4},
        {"rate_limit": "100/s"},
        {"rate_limit": {"rate": "100/s", "by": "partition"}},
        {"batches": True, "batch_max_wait": "10ms"},
    ],
    ids=str,
)
@in_virtual_time
async def test_what_is_there_at_the_start_comes_first(recalc: dict[str, Any]) -> None:
    turns = Turns(**recalc)
    broker = make_broker()
    broker.create_topic("recalc", 1)
    broker.create_topic("upload", 1)
    for name in ("recalc", "upload"):
        for _ in range(6):
            broker.produce(name, b"")
    async with running(turns.app, broker=broker) as test:
        await test.settled(timeout=30)
    assert [name for name, _ in turns.began] == ["upload"] * 6 + ["recalc"] * 6
    await broker.close()


@in_virtual_time
async def test_new_records_come_before_those_that_wait() -> None:
    turns = Turns()
    async with running(turns.app) as test:
        await send_to(test, "recalc", 10)
        await until(lambda: turns.count("recalc") == 2, to_the_moment=True)
        await send_to(test, "upload", 3)
        await until(lambda: turns.count("upload") == 3)
        # The record that ran when they came, and no other.
        assert turns.count("recalc") == 2
        assert facts(test, "recalc").limited_by == "channel upload (after)"
        assert facts(test, "upload").limited_by is None
        (check,) = [one for one in test.app.health().ready.checks if one.name == "recalc"]
        assert check.status == "UP"
        assert check.data["reason"] == "records wait for channel upload (after)"
        await test.settled(timeout=30)
        assert facts(test, "recalc").limited_by is None
    assert turns.count("recalc") == 10


@in_virtual_time
async def test_what_waits_is_no_poison() -> None:
    recorder = Recorder()
    turns = Turns(recorder, unprocessed_record_max_age="5s")
    turns.upload_s = 4.0
    async with running(turns.app) as test:
        await send_to(test, "upload", 5)
        await send_to(test, "recalc", 2)
        await test.settled(timeout=60)
        assert facts(test, "recalc").handler_durations.sum_s == pytest.approx(1.0, abs=0.1)
    assert not recorder.of(RecordPoisoned)
    assert turns.began[-2][1] - turns.began[0][1] >= 20.0


@pytest.mark.parametrize("how", ["stop", "fail", "disabled"])
@in_virtual_time
async def test_a_channel_that_does_not_run_is_not_waited_for(how: str) -> None:
    turns = Turns(upload={"enabled": how != "disabled"})
    turns.upload_s = 0.1
    async with running(turns.app) as test:
        await settle_down()
        if how == "fail":
            turns.fails = ValueError("stops the channel")
        if how == "stop":
            await test.app.channel("upload").stop()
        await send_to(test, "upload", 5)
        if how == "fail":
            await until(lambda: facts(test, "upload").state == "failed")
        await send_to(test, "recalc", 3)
        await until(lambda: turns.count("recalc") == 3)
        assert turns.count("upload") == (how == "fail")
        turns.fails = None
        if how == "fail":
            await test.app.channel("upload").restart()
        else:
            await test.app.channel("upload").start()
        await send_to(test, "recalc", 2)
        await test.settled(timeout=20)
    assert [name for name, _ in turns.began[-7:]] == ["upload"] * 5 + ["recalc"] * 2


@in_virtual_time
async def test_a_pause_of_the_channel_before_is_waited_for() -> None:
    turns = Turns()
    async with running(turns.app) as test:
        test.app.channel("upload").pause()
        await asyncio.sleep(5)
        # Nothing is fetched of it, and its lag is known.
        await send_to(test, "upload", 1)
        await asyncio.sleep(5)
        assert facts(test, "upload").partitions[0].queued == 0
        await send_to(test, "recalc", 1)
        await asyncio.sleep(30)
        assert turns.began == []
        test.app.channel("upload").resume()
        await test.settled(timeout=20)
    assert [name for name, _ in turns.began] == ["upload", "recalc"]


@in_virtual_time
async def test_a_delayed_retry_holds_up_nothing_until_it_is_due() -> None:
    turns = Turns(
        upload={
            "failure_strategy": "delayed-retry-topic",
            "delayed_retry": {"topics": ["upload_retry_20000"], "max_retries": 1},
        }
    )
    turns.upload_s = 0.0
    turns.fails = ValueError("later")
    async with running(turns.app) as test:
        await send_to(test, "upload", 1)
        await until(lambda: turns.count("upload") == 1)
        turns.fails = None
        failed_at = now()
        await asyncio.sleep(1)
        await send_to(test, "recalc", 3)
        await until(lambda: turns.count("recalc") == 3)
        assert now() - failed_at < 5
        await test.settled(timeout=60)
    assert turns.began[-1][0] == "upload"
    assert turns.began[-1][1] - failed_at >= 19


@in_virtual_time
async def test_retries_that_were_revoked_hold_up_nothing_until_the_next_assignment() -> None:
    """It may be long in coming: the coordinator of the group may be away."""
    turns = Turns(
        upload={
            "failure_strategy": "delayed-retry-topic",
            "delayed_retry": {"topics": ["upload_retry_1000"], "max_retries": 1},
            "revoke_grace": "1s",
            "drain_timeout": "1s",
        }
    )
    turns.upload_s = 0.0
    turns.fails = ValueError("later")
    async with running(turns.app) as test:
        await send_to(test, "upload", 1)
        await until(lambda: turns.count("upload") == 1)
        turns.upload_s = 3600.0
        await until(lambda: turns.count("upload") == 2)
        await send_to(test, "recalc", 1)
        await asyncio.sleep(1)
        assert turns.count("recalc") == 0
        (retries,) = [
            client
            for client in turns.app.channel("upload")._lifecycle.session.clients
            if client.is_for_retries
        ]
        await retries.assignment.on_revoked(retries.table.ours)
        await until(lambda: turns.count("recalc") == 1)


@in_virtual_time
async def test_a_stop_does_not_wait_for_records_that_wait() -> None:
    turns = Turns()
    turns.upload_s = 5.0
    async with running(turns.app) as test:
        await send_to(test, "upload", 1)
        await until(lambda: turns.began)
        await send_to(test, "recalc", 5)
        await asyncio.sleep(1)
        began = now()
        await test.app.channel("recalc").stop()
        assert now() - began < 1.0
        assert turns.count("recalc") == 0


@in_virtual_time
async def test_a_run_that_ends_by_itself_ends_though_the_channel_before_gets_more_and_more() -> (
    None
):
    turns = Turns()
    turns.upload_s = 0.1
    turns.recalc_s = 0.1
    broker = make_broker()
    for name in ("recalc", "upload"):
        broker.create_topic(name, 1)
        for _ in range(5):
            broker.produce(name, b"")

    async def produce() -> None:
        while True:
            broker.produce("upload", b"")
            await asyncio.sleep(0.05)

    producing = asyncio.create_task(produce())
    try:
        assert await run_to_its_end(turns.app, broker) == 0
    finally:
        producing.cancel()
    assert turns.count("recalc") == 5
    assert [name for name, _ in turns.began[:5]] == ["upload"] * 5
    await broker.close()


@in_virtual_time
async def test_spark_batches_wait_too() -> None:
    broker = make_broker()
    both = {"group_id": "billing", "auto_offset_reset": "earliest"}
    spark = {"batch_max_wait": "100ms"}
    app = App(
        {
            "incoming": {
                "orders": {**both, "after": ["upload"], "spark": spark},
                "upload": {**both, "group_id": "upload"},
            },
            "spark": {"jars": "jars"},
        }
    )
    engine = app._spark_engine = Engine(broker)
    began: list[str] = []
    engine.inside = lambda batch: began.append("orders")

    @app.incoming("upload")
    async def upload(message: Message[bytes]) -> None:
        await asyncio.sleep(1.0)
        began.append("upload")

    @app.spark("orders")
    def function(df: Any, batch: SparkBatch) -> None:
        engine.began(df.rows, batch)

    async with running(app, broker=broker) as test:
        await send_to(test, "upload", 3)
        await send_to(test, "orders", 3)
        await test.settled(timeout=30)
    assert began[:3] == ["upload"] * 3
    assert sum(len(job.rows) for job in engine.jobs) == 3
    await broker.close()


@pytest.mark.parametrize("seed", range(25))
@in_virtual_time
async def test_whatever_happens_the_first_channel_comes_first_and_all_records_come(
    seed: int,
) -> None:
    dice = random.Random(f"after {seed}")
    ordering = dice.choice(("partition", "key", "unordered"))
    more: dict[str, Any] = {"concurrency": dice.choice((1, 4)), "ordering": ordering}
    if dice.random() < 0.3:
        more["rate_limit"] = dice.choice(("20/s", {"rate": "20/s", "by": "partition"}))
    turns = Turns(
        upload={"concurrency": 2, "ordering": "unordered", "failure_strategy": "ignore"},
        revoke_grace="1s",
        drain_timeout="1s",
        **more,
    )
    turns.upload_s = dice.choice((0.0, 0.1))
    turns.recalc_s = dice.choice((0.0, 0.1))
    async with running(turns.app, partitions=2) as test:
        for _ in range(15):
            await send_to(test, "upload", dice.choice((0, 0, 1, 4)))
            await send_to(test, "recalc", dice.choice((0, 2, 5)))
            channel = test.app.channel(dice.choice(("upload", "recalc")))
            match dice.choice(("pause", "stop", "fail", "nothing")):
                case "pause":
                    channel.pause()
                    await asyncio.sleep(dice.uniform(0, 2))
                    channel.resume()
                case "stop":
                    await channel.stop()
                    await asyncio.sleep(dice.uniform(0, 1))
                    await channel.start()
                case "fail":
                    turns.fails = ValueError("drawn")
                    await asyncio.sleep(dice.uniform(0, 1))
                    turns.fails = None
                case _:
                    await asyncio.sleep(dice.uniform(0, 1))
        await test.settled(timeout=200)
        sent = {name: sum(map(len, logs(test, name))) for name in ("upload", "recalc")}
    assert turns.early == []
    assert {name: len(turns.handled[name]) for name in sent} == sent


def logs(test: TestApp, name: str) -> list[Any]:
    return [test.broker.log(TopicPartition(name, partition)) for partition in (0, 1)]
