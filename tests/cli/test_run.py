"""``run`` from start to exit, on the embedded broker."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import COMMAND, Running, cli, running
from tests.harness.kafka import EmbeddedBroker, clients_of

SERVICE = """\
import asyncio
import sys

from reactive_kafka import App

app = App()


@app.on_start
async def tell() -> None:
    print("port", app.http.port, flush=True)


@app.incoming("orders")
async def order(value: str) -> None:
    if value == "bad":
        raise ValueError("no such order")
    if value == "slow":
        print("begun", value, flush=True)
        await asyncio.sleep(1)
    print("got", value, flush=True)


@app.incoming("others")
async def other(value: str) -> None:
    print("other", value, flush=True)
"""
CONFIG = """\
[kafka]
bootstrap_servers = "{servers}"
auto_offset_reset = "earliest"
commit_interval = "200ms"

[incoming.orders]
group_id = "orders"

[incoming.others]
group_id = "others"

[http]
port = 1
"""


@pytest.fixture
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        for topic in ("orders", "others"):
            broker.create_topic(topic, 1)
        yield broker.bootstrap_servers


@pytest.fixture
def folder(tmp_path: Path, servers: str) -> Path:
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "reactive-kafka.toml").write_text(CONFIG.format(servers=servers))
    return tmp_path


async def send(servers: str, topic: str, *values: str) -> None:
    producer = clients_of(servers).producer(name="test", properties={})
    await producer.start()
    for value in values:
        await (await producer.send(topic, value.encode()))
    await producer.stop()


async def committed(servers: str, group: str) -> int:
    inspector = clients_of(servers).inspector(properties={})
    await inspector.start()
    found = await inspector.committed(group, (await inspector.topics())[group])
    await inspector.stop()
    return next((position.offset for position in found.values()), 0)


def status_of(run: Running, path: str) -> int:
    run.wait_for(lambda: "port" in run.out, "the port is printed")
    port = run.out.split("port ")[1].split()[0]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


RUN = (*COMMAND, "run", "service:app", "--port", "0")


async def test_a_signal_drains_commits_and_exits_with_0(folder: Path, servers: str) -> None:
    """Row D2 of the faults."""
    await send(servers, "orders", "a", "b")
    with running(*RUN, cwd=folder) as run:
        run.wait_for(lambda: "got b" in run.out, "both are handled")
        run.process.send_signal(signal.SIGTERM)
        ended = run.end()
    assert ended.code == 0, run.said
    assert await committed(servers, "orders") == 2
    (started,) = [line for line in ended.err.splitlines() if "started: " in line]
    file = "configuration reactive-kafka.toml"
    assert (
        f"{file}, brokers {servers}, 2 incoming and 0 outgoing channels, HTTP http://127.0.0.1:"
        in started
    )


async def test_a_terminal_that_goes_drains_though_it_often_says_so_twice(
    folder: Path, servers: str
) -> None:
    """Row D2 of the faults."""
    await send(servers, "orders", "slow")
    with running(*RUN, cwd=folder) as run:
        run.wait_for(lambda: "begun slow" in run.out, "its handler runs")
        run.process.send_signal(signal.SIGHUP)
        run.wait_for(lambda: "stopping" in run.err, "it stops")
        assert "got slow" not in run.out
        run.process.send_signal(signal.SIGHUP)
        ended = run.end()
    assert ended.code == 0, run.said
    assert "got slow" in ended.out
    assert await committed(servers, "orders") == 1


async def test_a_terminal_that_goes_is_nothing_to_a_process_under_nohup(
    folder: Path, servers: str
) -> None:
    """Row D2 of the faults."""
    with running("nohup", *RUN, cwd=folder) as run:
        run.wait_for(lambda: "started: " in run.err, "it has started")
        run.process.send_signal(signal.SIGHUP)
        await send(servers, "orders", "a")
        run.wait_for(lambda: "got a" in run.out, "it goes on")
        assert "stopping" not in run.err
        run.process.send_signal(signal.SIGTERM)
        assert run.end().code == 0, run.said


async def test_a_failed_channel_turns_health_red_and_the_process_stays(
    folder: Path, servers: str
) -> None:
    await send(servers, "orders", "a", "bad")
    with running(*RUN, cwd=folder) as run:
        run.wait_for(lambda: "ValueError: no such order" in run.err, "the channel has failed")
        assert status_of(run, "/health/live") == 503
        await send(servers, "others", "still here")
        run.wait_for(lambda: "other still here" in run.out, "the other channel goes on")
        run.process.send_signal(signal.SIGINT)
        assert run.end().code == 0, run.said


async def test_an_embedded_broker_says_once_where_others_can_send_to_it(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "reactive-kafka.toml").write_text(CONFIG.format(servers="embedded"))
    said = " reactive_kafka: the embedded broker listens on "
    with running(*RUN, cwd=tmp_path) as run:
        run.wait_for(lambda: said in run.err, "the address is told")
        await send(run.err.split(said)[1].split()[0], "orders", "from elsewhere")
        run.wait_for(lambda: "got from elsewhere" in run.out, "it is handled")
        run.process.send_signal(signal.SIGTERM)
        ended = run.end()
    assert ended.code == 0, run.said
    assert ended.err.count(said) == 1


async def test_with_exit_on_failure_it_ends_with_1_and_commits_what_was_done(
    folder: Path, servers: str
) -> None:
    await send(servers, "orders", "a", "bad", "c")
    with running(*RUN, "--exit-on-failure", cwd=folder) as run:
        ended = run.end()
    assert ended.code == 1, run.said
    assert "channel 'orders' has failed, and the application ends for it" in ended.err
    assert ended.err.count("Traceback") == 1, "the handler's own, and nothing of ours"
    assert "no such order" in ended.err
    assert await committed(servers, "orders") == 1


async def test_the_environment_may_ask_for_the_exit(folder: Path, servers: str) -> None:
    await send(servers, "orders", "bad")
    with running(*RUN, cwd=folder, env={"REACTIVE_KAFKA_EXIT_ON_FAILURE": "1"}) as run:
        assert run.end().code == 1, run.said


async def test_logs_may_be_json(folder: Path, servers: str) -> None:
    with running(*RUN, "--log-format", "json", cwd=folder) as run:
        run.wait_for(lambda: "running" in run.err, "a channel runs")
        run.process.send_signal(signal.SIGTERM)
        ended = run.end()
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert any(line.get("channel") == "orders" for line in lines)


def test_a_port_in_use_is_told_and_exits_with_2(folder: Path) -> None:
    with running(*RUN, cwd=folder) as run:
        run.wait_for(lambda: "port" in run.out, "the first one listens")
        port = run.out.split("port ")[1].split()[0]
        ended = cli("run", "service:app", "--port", port, cwd=folder)
    assert ended.code == 2
    assert port in ended.err
    assert "Traceback" not in ended.err


def test_an_application_that_nothing_was_declared_for_is_told_and_runs(folder: Path) -> None:
    (folder / "empty.py").write_text("from reactive_kafka import App\n\napp = App()\n")
    told = "WARNING reactive_kafka: the application has no handler, source or hook: is the module that declares them"
    with running(*COMMAND, "run", "empty:app", "--port", "0", cwd=folder) as run:
        run.wait_for(lambda: told in run.err and "started: " in run.err, "it is told, and starts")
        run.process.send_signal(signal.SIGTERM)
        assert run.end().code == 0


def test_a_wrong_configuration_exits_with_2(folder: Path) -> None:
    (folder / "reactive-kafka.toml").write_text("[incoming.orders]\nconcurency = 2\n")
    ended = cli("run", "service:app", cwd=folder)
    assert ended.code == 2
    assert "did you mean 'concurrency'?" in ended.err


FULL = """\
import asyncio
import logging
from reactive_kafka import App

app = App({"kafka": {"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}, "incoming": {"orders": {}},
           "http": {"enabled": False}})


class Full(logging.Handler):
    def emit(self, record):
        raise RuntimeError("no space left")

    def flush(self):
        raise RuntimeError("no space left")


logging.getLogger().addHandler(Full())


@app.incoming("orders")
async def handle(order: bytes) -> None: ...


@app.on_start
async def told():
    print("up", flush=True)


@app.before_stop
async def never():
    print("stopping", flush=True)
    while True:
        await asyncio.sleep(1)
"""


def test_a_log_that_takes_nothing_delays_no_exit(tmp_path: Path) -> None:
    """Row J11 of the faults."""
    (tmp_path / "full.py").write_text(FULL)
    with running(*COMMAND, "run", "full:app", cwd=tmp_path) as service:
        service.wait_for(lambda: "up" in service.out, "its start")
        service.process.send_signal(signal.SIGTERM)
        service.wait_for(lambda: "stopping" in service.out, "its stop")
        service.process.send_signal(signal.SIGTERM)
        assert service.end(10).code == 1
