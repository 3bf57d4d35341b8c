import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reactive_kafka.errors import (
    BadDataError,
    JobStuckError,
    JobTimeoutError,
    MissingExtraError,
    OffloadError,
    SessionLostError,
)
from reactive_kafka.spark.batches.ledger import JobProgress
from reactive_kafka.spark.batches.payload_schema import payload_schema
from reactive_kafka.spark.batches.spark_batch import SparkBatch
from reactive_kafka.spark.batches.spark_function import Payload
from reactive_kafka.spark.session.connect import ConnectMaker, seconds, shown, version_trouble
from reactive_kafka.spark.session.connect_session import ConnectSession
from reactive_kafka.spark.session.spark_engine import SparkEngine
from reactive_kafka.spark.session.supervisor import SessionLimits
from tests.config.values import spark_settings
from tests.formats.texts import channel_schemas, framed, texts_of
from tests.harness.spark_cluster import ConnectServer
from tests.spark.beats import Beats, soon
from tests.spark.records import CLICKS_0, runner_of, values_of

on_a_server = [
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="module"),
    # Spark's, whenever a server does not answer.
    pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED"),
]
DESCRIPTION = "channel 'clicks': test"


@dataclass
class Click:
    page: str


@dataclass(frozen=True)
class Connected:
    """An engine that was started before its server was.

    Attributes:
        first_reason: Why it was not ready then.
    """

    engine: SparkEngine
    server: ConnectServer
    first_reason: str

    async def run(self, job: Any, timeout_s: float = 30.0, **options: Any) -> Any:
        return await self.engine.run(job, timeout_s=timeout_s, description=DESCRIPTION, **options)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connected]:
    server = ConnectServer(
        tmp_path_factory.mktemp("connect"), conf={"spark.python.task.killTimeout": "200ms"}
    )
    settings = spark_settings(remote=server.remote, conf={"spark.sql.shuffle.partitions": 2})
    engine = SparkEngine(settings, limits=SessionLimits(cancel_s=8.0, answer_s=2.0))
    await engine.start()
    try:
        await soon(lambda: "did not start" in str(engine.reason))
        first_reason = str(engine.reason)
        async with server:
            await soon(lambda: engine.ready, 120)
            yield Connected(engine, server, first_reason)
    finally:
        await engine.stop()


@pytest.mark.parametrize("server", ["4.1.4", "4.1.9", "4.2.0", "4.10.1", "4.1.0-SNAPSHOT"])
def test_a_server_of_the_same_or_a_later_version_is_none_to_complain_about(server: str) -> None:
    assert version_trouble("4.1.4", server) is None


@pytest.mark.parametrize("server", ["4.0.1", "3.5.6", "5.0.0"])
def test_a_server_of_another_version_is_named_with_what_to_install(server: str) -> None:
    minor = server.rpartition(".")[0]
    expected = f"the server is Spark {server} and this process has PySpark 4.1.4: pip install 'pyspark=={minor}.*'"
    assert version_trouble("4.1.4", server) == expected


def test_durations_are_read_as_spark_writes_them() -> None:
    assert [seconds(text) for text in ("200ms", "2s", "1500", "1min", " 2 S ")] == [
        0.2,
        2.0,
        1.5,
        60.0,
        2.0,
    ]
    with pytest.raises(OffloadError, match="'soon' is no duration"):
        seconds("soon")


def test_a_token_in_the_address_is_not_shown() -> None:
    assert (
        shown("sc://spark.example.com:15002/;token=secret;use_ssl=true")
        == "sc://spark.example.com:15002"
    )


@pytest.mark.parametrize("package", ["grpc", "grpc_status", "google", "zstandard", "pyarrow"])
async def test_without_its_packages_starting_names_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[connect\]'"):
        await SparkEngine(spark_settings(remote="sc://localhost")).start()


async def opened_as_by_the_supervisor(maker: ConnectMaker) -> ConnectSession:
    """A session. Spark's server may refuse one, once, while it closes another that was lost."""
    try:
        return await asyncio.to_thread(maker.open)
    except OffloadError as error:
        assert "IllegalStateException" in str(error)
        return await asyncio.to_thread(maker.open)


class TestOnAServer:
    pytestmark = on_a_server

    async def test_without_a_server_it_is_not_ready_and_it_is_as_soon_as_there_is_one(
        self, connected: Connected
    ) -> None:
        assert (
            f"{connected.server.remote}: the Spark Connect server does not answer"
            in connected.first_reason
        )
        assert "Connection refused" in connected.first_reason
        assert connected.engine.ready
        assert connected.engine.reason is None
        assert connected.engine.driver_pid is None

    async def test_a_batch_of_records_runs_there_with_payload_rejects_and_progress(
        self, connected: Connected
    ) -> None:
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as F

        counts: dict[str, int] = {}

        def by_page(df: Any, batch: SparkBatch) -> None:
            assert SparkSession.active() is batch.spark
            batch.reject(df.where("page = '/bad'"), "no such page")
            for row in df.groupBy("page").agg(F.count("*").alias("n")).collect():
                counts[row["page"]] = row["n"]

        payload = Payload(payload_schema(Click, "@app.spark('clicks')"), show_corrupt=False)
        values = [b'{"page": "/%s"}' % page for page in (b"a", b"b", b"a", b"bad")]
        part = values_of(CLICKS_0, [*values, b"{", None])
        runner = runner_of(connected.engine, by_page, payload=payload, pool="clicks")
        rejected = await runner.run_batch([part], attempt=1)
        assert counts == {"/a": 2, "/b": 1, "/bad": 1}
        assert [one.offset for one in sorted(rejected, key=lambda one: one.offset)] == [3, 4, 5]
        (batch,) = runner.facts().last
        assert (batch.outcome, batch.rejected) == ("ok", 3)

    async def test_records_with_schemas_have_the_payloads_columns_there(
        self, connected: Connected
    ) -> None:
        schema = (
            '{"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}'
        )
        schemas, pages = channel_schemas({1: schema}), list[str]()
        payload = Payload(
            payload_schema(Click, "@app.spark('clicks')", base64=True),
            texts=texts_of("avro", schemas),
        )
        keep = lambda df, batch: pages.extend(row.page for row in df.collect())  # noqa: E731
        runner = runner_of(connected.engine, keep, payload=payload, schemas=schemas)
        (rejected,) = await runner.run_batch(
            [values_of(CLICKS_0, [framed(1, b"\4/a"), framed(1, b"\xff")])], attempt=1
        )
        assert pages == ["/a"]
        assert (rejected.offset, "not data of schema 1" in str(rejected.reason)) == (1, True)

    async def test_the_sessions_conf_is_the_users(self, connected: Connected) -> None:
        names = ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
        assert await connected.run(lambda spark: [spark.conf.get(name) for name in names]) == [
            "2",
            "UTC",
        ]

    async def test_errors_say_who_is_to_blame(self, connected: Connected) -> None:
        def parse(rows: Iterator[Any]) -> Iterator[Any]:
            raise LookupError("row 7 is broken")

        with pytest.raises(BadDataError, match="LookupError: row 7 is broken"):
            await connected.run(lambda spark: spark.range(1).mapInArrow(parse, "id long").collect())
        with pytest.raises(BadDataError, match="CAST_INVALID_INPUT"):
            await connected.run(lambda spark: spark.sql("SELECT CAST('x' AS INT)").collect())
        with pytest.raises(OffloadError, match="UNRESOLVED_COLUMN") as failed:
            await connected.run(lambda spark: spark.range(1).select("missing").collect())
        assert type(failed.value) is OffloadError
        assert connected.engine.ready

    async def test_progress_tells_of_stages_and_tasks(
        self, connected: Connected, tmp_path: Path
    ) -> None:
        beats, seen = Beats(tmp_path), list[JobProgress]()

        def note(progress: JobProgress) -> None:
            seen.append(progress)
            # Local[2]
            if progress.tasks_active == 2:
                beats.let_end()

        assert await connected.run(beats.job(tasks=3), on_progress=note) == 3
        assert JobProgress(stages=1, stages_done=0, tasks=3, tasks_done=0, tasks_active=2) in seen
        await soon(
            lambda: (seen[-1].stages_done, seen[-1].tasks_done, seen[-1].tasks_active) == (1, 3, 0)
        )

    async def test_a_timeout_cancels_and_comes_when_the_last_task_has_ended(
        self, connected: Connected, tmp_path: Path
    ) -> None:
        beats, caught = Beats(tmp_path), list[str]()

        def stubborn(spark: Any) -> None:
            for _ in range(3):
                try:
                    beats.job()(spark)
                except Exception as error:
                    caught.append(str(error))

        with pytest.raises(JobTimeoutError, match="cancelled, not done after 2 s"):
            await connected.run(stubborn, timeout_s=2)
        assert await beats.are_over()
        assert "OPERATION_CANCELED" in caught[0]
        assert ["no further Spark job of it starts" in text for text in caught] == [
            False,
            True,
            True,
        ]

    async def test_cancelling_one_job_leaves_the_one_beside_it_alone(
        self, connected: Connected, tmp_path: Path
    ) -> None:
        first, second = Beats(tmp_path / "a"), Beats(tmp_path / "b")
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
        tasks = [asyncio.create_task(connected.run(beats.job())) for beats in (first, second)]
        await first.begun()
        await second.begun()
        tasks[0].cancel()
        await asyncio.wait({tasks[0]}, timeout=10)
        assert tasks[0].cancelled()
        assert await first.are_over()
        assert not await second.are_over()
        second.let_end()
        assert await tasks[1] == 1

    async def test_a_function_that_is_left_behind_can_start_no_job_later(
        self, connected: Connected
    ) -> None:
        go_on, late = threading.Event(), list[str]()

        def stuck(spark: Any) -> None:
            go_on.wait(60)
            try:
                late.append(f"counted {spark.range(1).count()}")
            except Exception as error:
                late.append(str(error))

        with pytest.raises(JobStuckError):
            await connected.run(stuck, timeout_s=0.2, cancel_limit_s=0.5)
        go_on.set()
        await soon(lambda: late)
        assert late == ["this batch was cancelled: no further Spark job of it starts"]
        assert await connected.run(lambda spark: spark.range(2).count()) == 2

    async def test_tags_that_a_function_sets_are_gone_for_the_next(
        self, connected: Connected
    ) -> None:
        def tag(spark: Any) -> set[str]:
            before = set(spark.getTags())
            spark.addTag("mine")
            return before

        first, second = await connected.run(tag), await connected.run(tag)
        assert len(first) == len(second) == 1
        assert first != second

    async def test_a_job_under_a_server_that_is_killed_is_lost_and_runs_when_the_server_is_back(
        self, connected: Connected, tmp_path: Path
    ) -> None:
        beats = Beats(tmp_path)
        job = asyncio.create_task(connected.run(beats.job()))
        await beats.begun()
        began = time.monotonic()
        connected.server.process.kill()
        with pytest.raises(SessionLostError) as lost:
            await job
        assert time.monotonic() - began < 5
        assert lost.value.was_alone
        assert not connected.engine.ready
        await soon(lambda: "does not answer" in str(connected.engine.reason))

        await connected.server.start()
        await soon(lambda: connected.engine.ready, 120)
        assert await connected.run(lambda spark: spark.range(10).count()) == 10

    async def test_a_server_that_hangs_is_not_ready_until_it_goes_on(
        self, connected: Connected
    ) -> None:
        connected.server.process.freeze()
        await soon(lambda: not connected.engine.ready)
        assert "not answered" in str(connected.engine.reason)
        connected.server.process.thaw()
        await soon(lambda: connected.engine.ready)
        assert await connected.run(lambda spark: spark.range(10).count()) == 10

    async def test_the_work_of_a_session_that_was_lost_is_over_before_the_next_one_is_there(
        self, connected: Connected, tmp_path: Path
    ) -> None:
        beats = Beats(tmp_path)
        maker = ConnectMaker(spark_settings(remote=connected.server.remote))
        lost = await asyncio.to_thread(maker.open)
        job = asyncio.create_task(asyncio.to_thread(lost.group("lost", "default").run, beats.job()))
        await beats.begun()
        # As if the connection were cut: the server hears nothing.
        lost.end()
        with pytest.raises(Exception, match=r"CANCELLED|closed|NO_ACTIVE_SESSION"):
            await job
        assert not await beats.are_over()

        following = await opened_as_by_the_supervisor(maker)
        assert await beats.are_over()
        await asyncio.to_thread(following.stop)
        following.end()

    async def test_opening_is_bounded_by_an_abort_while_the_server_hangs(
        self, connected: Connected
    ) -> None:
        maker = ConnectMaker(spark_settings(remote=connected.server.remote))
        connected.server.process.freeze()
        try:
            opening = asyncio.create_task(asyncio.to_thread(maker.open))
            await asyncio.sleep(0.5)
            assert not opening.done()
            maker.abort()
            with pytest.raises(OffloadError, match="does not answer: Channel closed!"):
                await asyncio.wait_for(opening, 5)
        finally:
            connected.server.process.thaw()

    async def test_properties_that_only_a_servers_start_can_set_are_left_out_and_named_once(
        self, connected: Connected, caplog: pytest.LogCaptureFixture
    ) -> None:
        static = {
            "spark.executor.memory": "1g",
            "spark.sql.warehouse.dir": "/data",
            "spark.jars": "/a.jar",
        }
        conf = {**static, "spark.sql.shuffle.partitions": 7}
        maker = ConnectMaker(spark_settings(remote=connected.server.remote, conf=conf))
        for _ in range(2):
            session = await asyncio.to_thread(maker.open)
            assert (
                await asyncio.to_thread(session.spark.conf.get, "spark.sql.shuffle.partitions")
                == "7"
            )
            await asyncio.to_thread(session.stop)
            session.end()
        (line,) = [one.getMessage() for one in caplog.records if "[spark.conf]" in one.getMessage()]
        names = "'spark.executor.memory', 'spark.sql.warehouse.dir', 'spark.jars'"
        assert (
            line
            == f"[spark.conf] {names}: only the start of a Spark Connect server can set this; it is left out"
        )
        # For the engine, which still needs it.
        assert "SPARK_CONNECT_MODE_ENABLED" in os.environ

    async def test_another_version_of_spark_is_named_by_readiness(
        self, connected: Connected, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # As if it were another pyspark.
        monkeypatch.setattr("pyspark.__version__", "4.99.0")
        engine = SparkEngine(spark_settings(remote=connected.server.remote))
        await engine.start()
        await soon(lambda: "did not start" in str(engine.reason))
        assert not engine.ready
        assert "and this process has PySpark 4.99.0: pip install 'pyspark==" in str(engine.reason)
        await engine.stop()

    async def test_this_process_needs_no_java_and_leaves_nothing_behind(
        self, connected: Connected, tmp_path: Path
    ) -> None:
        code = (
            "import asyncio, os, threading\n"
            "from reactive_kafka.config.settings import SparkSettings\n"
            "from reactive_kafka.spark.session.spark_engine import SparkEngine\n"
            "async def main():\n"
            f"    engine = SparkEngine(SparkSettings(remote='{connected.server.remote}'))\n"
            "    await engine.start()\n"
            "    print(await engine.run(lambda spark: spark.range(7).count(), timeout_s=60, description='count'))\n"
            "    children = open(f'/proc/self/task/{os.getpid()}/children').read()\n"
            "    await engine.stop()\n"
            "    print(repr(children), 'SPARK_CONNECT_MODE_ENABLED' in os.environ)\n"
            "asyncio.run(main())\n"
        )
        environ = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code),
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, errors = await asyncio.wait_for(process.communicate(), 60)
        assert out.decode().splitlines() == ["7", "'' False"], errors.decode()
