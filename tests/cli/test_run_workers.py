"""``run --workers`` on a real Kafka: processes that die, signals, and what HTTP says of all."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.process import COMMAND, Running, cli, environment, running
from tests.harness.kafka import clients_of

PARTITIONS = 4
SERVICE = """\
import asyncio
import os

from reactive_kafka import App

app = App()


@app.incoming("orders")
async def order(value: str) -> None:
    if value == "slow":
        print("begun slow", flush=True)
        await asyncio.sleep(1)
    if value == "bad":
        raise ValueError("no such order")
    print("handled", os.getpid(), value, flush=True)
"""
CONFIG = """\
[kafka]
bootstrap_servers = "{servers}"
auto_offset_reset = "earliest"
commit_interval = "200ms"

[incoming.orders]
topic = "{topic}"
group_id = "{topic}"
session_timeout_ms = 6000
heartbeat_interval_ms = 500
{more}

[http]
port = {port}
"""


@dataclass
class WorkerStage:
    """A topic, an application that reads it, and its supervisor."""

    servers: str
    topic: str
    folder: Path
    port: int

    async def send(self, *values: str) -> None:
        """Send each value to every partition."""
        producer = clients_of(self.servers).producer(name="test", properties={})
        await producer.start()
        for value in values:
            for partition in range(PARTITIONS):
                text = value if value in ("slow", "bad") else f"{value}{partition}"
                await (await producer.send(self.topic, text.encode(), partition=partition))
        await producer.stop()

    async def committed(self) -> int:
        """How many records the group has committed."""
        inspector = clients_of(self.servers).inspector(properties={})
        await inspector.start()
        partitions = (await inspector.topics())[self.topic]
        found = await inspector.committed(self.topic, partitions)
        await inspector.stop()
        return sum(position.offset for position in found.values())

    def run(self, *options: str, workers: int = 2) -> tuple[str, ...]:
        return (*COMMAND, "run", "service:app", "--workers", str(workers), *options)

    def get(self, path: str) -> tuple[int, str]:
        """The status and the body of a path; 0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as found:
                return found.status, found.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def is_up(self) -> bool:
        """Whether all is well, and each worker has partitions. One without any is ready, too."""
        if self.get("/health")[0] != 200:
            return False
        members = json.loads(self.get("/api/members")[1])["members"]
        return all(one["channels"][0]["partition_count"] for one in members)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics")[1])
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@pytest.fixture
async def stage(kafka: str, tmp_path: Path) -> WorkerStage:
    topic = f"workers-{uuid4().hex[:8]}"
    inspector = clients_of(kafka).inspector(properties={})
    await inspector.start()
    await inspector.create_topic(topic, PARTITIONS)
    await inspector.stop()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "service.py").write_text(SERVICE)
    config = CONFIG.format(servers=kafka, topic=topic, port=port, more="")
    (tmp_path / "reactive-kafka.toml").write_text(config)
    return WorkerStage(kafka, topic, tmp_path, port)


def pids(run: Running) -> dict[int, int]:
    """Worker -> its last process, as the supervisor has logged it."""
    found = {}
    for line in run.err.splitlines():
        if "has loaded (pid " in line:
            worker, pid = line.split(": worker ")[1].split(" has loaded (pid ")
            found[int(worker)] = int(pid.rstrip(")"))
    return found


def handlers(run: Running, kind: str) -> set[int]:
    """The processes that have handled records of a kind."""
    lines = [line.split() for line in run.out.splitlines() if line.startswith("handled")]
    return {int(pid) for _, pid, value in lines if value.startswith(kind)}


def handled(run: Running, kind: str) -> int:
    return len({line for line in run.out.splitlines() if f" {kind}" in line})


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with suppress(FileNotFoundError):
        # A process that has ended, and whose parent has not asked for its code.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for_the_end(left: set[int], deadline: float) -> None:
    while left := {pid for pid in left if exists(pid)}:
        assert time.monotonic() < deadline, f"{left} are still there"
        time.sleep(0.05)


@pytest.mark.kafka
async def test_both_handle_records_http_has_the_sum_and_a_signal_drains_all(
    stage: WorkerStage,
) -> None:
    with running(*stage.run(), cwd=stage.folder) as run:
        run.wait_for(stage.is_up, "both have partitions")
        await stage.send("a", "b")
        run.wait_for(lambda: handled(run, "a") + handled(run, "b") == 8, "all are handled")
        assert handlers(run, "a") == set(pids(run).values())

        checks = json.loads(stage.get("/health")[1])["checks"]
        assert [check["data"]["worker"] for check in checks] == [1, 2]
        acked = "reactive_kafka_records_acked_total"
        run.wait_for(lambda: stage.metric(acked, channel="orders") == 8, "the sum counts all")
        assert stage.metric("reactive_kafka_worker_up") == 2
        assert stage.metric("reactive_kafka_channel_up", worker="2") == 1
        assert stage.get("/")[0] == stage.get("/workers/2/")[0] == 200
        assert "orders" in stage.get("/api/channels")[1]
        assert stage.get("/workers/3/")[0] == 404
        first_screen = stage.get("/")[1]
        assert "The channels below are those of worker 1. All 2 workers together" in first_screen
        assert all(f">worker {number}</a>" in first_screen for number in (1, 2))
        assert "of worker 2. All 2 workers" in stage.get("/workers/2/channels/orders")[1]
        members = json.loads(stage.get("/api/members")[1])["members"]
        assert [(one["worker"], one["pid"]) for one in members] == sorted(pids(run).items())
        assert sum(one["channels"][0]["partition_count"] for one in members) == PARTITIONS
        for partition in range(PARTITIONS):
            where = f"/api/record?topic={stage.topic}&partition={partition}&offset=0"
            (channel,) = json.loads(stage.get(where)[1])["channels"]
            assert channel["place"] in ("settled", "committed"), "the worker that has it is found"

        await stage.send("slow")
        run.wait_for(lambda: "begun slow" in run.out, "a handler runs")
        run.process.send_signal(signal.SIGTERM)
        ended = run.end()
    assert ended.code == 0, run.said
    assert not [pid for pid in pids(run).values() if exists(pid)]
    # Those that had begun were finished, and every finished one is committed.
    finished = ended.out.count("handled")
    assert finished >= 9, run.said
    assert await stage.committed() == finished
    assert " worker 1 reactive_kafka: " in ended.err
    assert " worker 2 reactive_kafka: " in ended.err


@pytest.mark.kafka
async def test_a_killed_worker_is_back_within_5_s_and_the_other_one_keeps_working(
    stage: WorkerStage,
) -> None:
    with running(*stage.run(), cwd=stage.folder) as run:
        run.wait_for(stage.is_up, "both have partitions")
        await stage.send("a")
        run.wait_for(lambda: handled(run, "a") == 4, "all are handled")
        acked = "reactive_kafka_records_acked_total"
        run.wait_for(lambda: stage.metric(acked, channel="orders") == 4, "the sum counts all")

        first, second = pids(run)[1], pids(run)[2]
        killed_at = time.monotonic()
        os.kill(second, signal.SIGKILL)
        run.wait_for(lambda: stage.get("/health")[0] == 503, "health says that one is missing")
        assert stage.get("/health/live")[0] == 200
        run.wait_for(lambda: pids(run)[2] != second, "another process takes its place")
        assert time.monotonic() - killed_at < 5.0
        await stage.send("b")
        run.wait_for(lambda: first in handlers(run, "b"), "the other one works meanwhile")
        run.wait_for(lambda: handled(run, "b") == 4, "all partitions have a member again", 60.0)
        run.wait_for(stage.is_up, "health is fine again", 60.0)

        # What the killed process had counted is still in the sum.
        def is_complete() -> bool:
            return stage.metric(acked, channel="orders") == run.out.count("handled")

        run.wait_for(is_complete, "the sum has all, those of the killed process too")
        assert stage.metric("reactive_kafka_worker_restarts_total", worker="2") == 1
        run.process.send_signal(signal.SIGINT)
        assert run.end().code == 0, run.said


@pytest.mark.kafka
async def test_the_workers_of_a_killed_supervisor_end_within_10_s(stage: WorkerStage) -> None:
    with running(*stage.run(), cwd=stage.folder) as run:
        run.wait_for(stage.is_up, "both have partitions")
        left = set(pids(run).values())
        killed_at = time.monotonic()
        run.process.kill()
        run.process.wait(10.0)
        wait_for_the_end(left, killed_at + 10.0)


@pytest.mark.kafka
async def test_until_end_ends_all_with_0(stage: WorkerStage) -> None:
    await stage.send("a", "b")
    with running(*stage.run("--until-end"), cwd=stage.folder) as run:
        ended = run.end(60.0)
    assert ended.code == 0, run.said
    assert await stage.committed() == 8
    assert "is started again" not in ended.err


@pytest.mark.kafka
async def test_exit_on_failure_ends_all_with_1(stage: WorkerStage) -> None:
    with running(*stage.run("--exit-on-failure"), cwd=stage.folder) as run:
        run.wait_for(stage.is_up, "both have partitions")
        os.kill(pids(run)[2], signal.SIGKILL)
        ended = run.end()
    assert ended.code == 1, run.said
    assert "worker 2 has ended (SIGKILL), and all end for it" in ended.err
    assert not exists(pids(run)[1])


@pytest.mark.kafka
async def test_each_worker_is_a_static_member_of_its_own(stage: WorkerStage) -> None:
    config = CONFIG.format(
        servers=stage.servers,
        topic=stage.topic,
        port=stage.port,
        more='group_instance_id = "shop"',
    )
    (stage.folder / "reactive-kafka.toml").write_text(config)
    with running(*stage.run(), cwd=stage.folder) as run:
        run.wait_for(stage.is_up, "both have partitions")
        await stage.send("a")
        run.wait_for(lambda: handled(run, "a") == 4, "all are handled")
        assert len(handlers(run, "a")) == 2
        run.process.send_signal(signal.SIGTERM)
        assert run.end().code == 0, run.said


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An application whose broker is away."""
    (tmp_path / "service.py").write_text(SERVICE)
    config = CONFIG.format(servers="localhost:1", topic="orders", port=0, more="")
    (tmp_path / "reactive-kafka.toml").write_text(config)
    yield tmp_path


def test_a_second_signal_ends_all_at_once_with_1(folder: Path) -> None:
    service = (
        SERVICE + "\n\n@app.before_stop\nasync def wait() -> None:\n    await asyncio.sleep(60)\n"
    )
    (folder / "service.py").write_text(service)
    with running(*COMMAND, "run", "service:app", "--workers", "2", cwd=folder) as run:
        run.wait_for(lambda: run.err.count(" started: ") == 2, "both have started")
        run.process.send_signal(signal.SIGTERM)
        run.wait_for(lambda: run.err.count("stopping, was") == 2, "both drain")
        run.process.send_signal(signal.SIGTERM)
        ended = run.end(10.0)
    assert ended.code == 1, run.said
    assert not [pid for pid in pids(run).values() if exists(pid)]


def test_a_mistake_is_reported_once_and_ends_with_2(folder: Path) -> None:
    (folder / "service.py").write_text("import no_such_module\n")
    ended = cli("run", "service:app", "--workers", "3", cwd=folder)
    assert ended.code == 2
    assert ended.err.count("no_such_module") == 1


def test_a_port_in_use_is_reported_and_ends_with_2(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = cli("run", "service:app", "--workers", "2", "--port", port, cwd=folder)
    assert ended.code == 2, ended.err
    assert f"[http] 127.0.0.1:{port} cannot be bound" in ended.err


@pytest.mark.parametrize("number", ["0", "-1", "1001", "two"])
def test_a_wrong_number_of_workers_is_refused(folder: Path, number: str) -> None:
    ended = cli("run", "service:app", "--workers", number, cwd=folder)
    assert ended.code == 2
    assert "'--workers'" in ended.err


def test_json_logs_have_the_number_of_the_worker(folder: Path) -> None:
    options = ("--workers", "1", "--log-format", "json")
    with running(*COMMAND, "run", "service:app", *options, cwd=folder) as run:
        run.wait_for(lambda: "started: " in run.err, "it has started")
        run.process.send_signal(signal.SIGTERM)
        ended = run.end()
    assert ended.code == 0, run.said
    lines = [json.loads(line) for line in ended.err.splitlines()]
    (started,) = [line for line in lines if "started: " in line["message"]]
    assert started["worker_number"] == 1
    assert "worker_number" not in lines[0]


def test_workers_end_when_the_reader_of_their_log_has_gone_with_the_supervisor(
    folder: Path,
) -> None:
    command = [*COMMAND, "run", "service:app", "--workers", "2"]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    left = set()
    assert process.stderr is not None
    with process.stderr as log:
        for line in log:
            if "has loaded (pid " in line:
                left.add(int(line.split("(pid ")[1].split(")")[0]))
            if "worker 2 reactive_kafka: started: " in line:
                break
        process.kill()
    process.wait(10.0)
    assert len(left) == 2
    wait_for_the_end(left, time.monotonic() + 10.0)


def test_a_worker_that_hangs_is_not_live_and_the_others_still_answer(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    stage = WorkerStage("", "", folder, port)
    with running(*stage.run("--port", str(port)), cwd=folder) as run:
        run.wait_for(lambda: run.err.count(" started: ") == 2, "both have started")
        run.wait_for(lambda: stage.get("/health/live")[0] == 200, "both are live")
        os.kill(pids(run)[2], signal.SIGSTOP)
        try:
            status, body = stage.get("/health/live")
            assert status == 503
            checks = {check["name"]: check for check in json.loads(body)["checks"]}
            assert checks["orders (worker 1)"]["status"] == "UP"
            assert checks["worker 2"]["data"]["state"] == "unreachable"
            assert stage.get("/")[0] == 200
        finally:
            os.kill(pids(run)[2], signal.SIGCONT)
        run.wait_for(lambda: stage.get("/health/live")[0] == 200, "it is live again")
        os.kill(pids(run)[1], signal.SIGSTOP)
        try:
            status, html = stage.get("/")
            assert status == 200
            assert "those of worker 2. The 1 of 2 workers that can be reached" in html
            assert "it has not answered within 3 s" in html
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/stream", timeout=10) as facts:
                data = next(line for line in facts if line.startswith(b"data: "))
            application = json.loads(data.removeprefix(b"data: "))["application"]
            assert application["pid"] == pids(run)[2]
        finally:
            os.kill(pids(run)[1], signal.SIGCONT)
        run.process.send_signal(signal.SIGTERM)
        assert run.end().code == 0, run.said


LOG_CONFIG = """\
[formatters.own]
"()" = "log_format.Own"

[handlers.stderr]
class = "logging.StreamHandler"
formatter = "own"

[root]
level = "INFO"
handlers = ["stderr"]
"""
LOG_FORMAT = """\
import logging


class Own(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"own {getattr(record, 'worker_number', 'supervisor')} {record.getMessage()}"
"""


def test_a_logging_file_counts_for_the_supervisor_and_its_workers(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "log_format.py").write_text(LOG_FORMAT)
    (elsewhere / "logs.toml").write_text(LOG_CONFIG)
    options = ("--app-dir", str(folder), "--config", str(folder / "reactive-kafka.toml"))
    options += ("--log-config", "logs.toml", "--workers", "1")
    with running(*COMMAND, "run", "service:app", *options, cwd=elsewhere) as run:
        run.wait_for(lambda: "own 1 started: " in run.err, "the worker has started")
        run.process.send_signal(signal.SIGTERM)
        ended = run.end()
    assert ended.code == 0, run.said
    assert "own supervisor worker 1 has loaded" in ended.err
