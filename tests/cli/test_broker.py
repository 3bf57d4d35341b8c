"""``broker`` runs until a signal, and prints where."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.cli.process import COMMAND, Running, cli, running
from tests.harness.kafka import brokers_known_to


def address_of(broker: Running) -> tuple[str, int]:
    broker.wait_for(lambda: "\n" in broker.out, "the address is printed", timeout_s=90.0)
    host, _, port = broker.out.splitlines()[0].partition(":")
    return host, int(port)


def test_the_embedded_broker_answers_until_the_signal(tmp_path: Path) -> None:
    with running(*COMMAND, "broker", "--kind", "embedded", cwd=tmp_path) as broker:
        address = address_of(broker)
        assert len(brokers_known_to(*address)) == 1
        broker.process.send_signal(signal.SIGINT)
        ended = broker.end()
    assert ended.code == 0, broker.said
    assert len(ended.out.splitlines()) == 1
    with pytest.raises(OSError, match="refused"):
        brokers_known_to(*address)


@pytest.mark.kafka
def test_apache_kafka_listens_on_the_port_that_was_asked_for(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(*COMMAND, "broker", "--port", str(port), cwd=tmp_path) as broker:
        assert address_of(broker) == ("127.0.0.1", port)
        assert brokers_known_to("127.0.0.1", port) == {1: f"127.0.0.1:{port}"}
        broker.process.send_signal(signal.SIGTERM)
        ended = broker.end()
    assert ended.code == 0, broker.said
    with pytest.raises(OSError, match="refused"):
        brokers_known_to("127.0.0.1", port)


def test_without_java_it_says_so_and_takes_the_embedded_one(tmp_path: Path) -> None:
    # No jars, and no Maven to fetch them.
    env = {"REACTIVE_KAFKA_CACHE": str(tmp_path), "PATH": "/nonexistent"}
    with running(*COMMAND, "broker", cwd=tmp_path, env=env) as broker:
        assert len(brokers_known_to(*address_of(broker))) == 1
        assert "no Apache Kafka here:" in broker.err
        broker.process.send_signal(signal.SIGTERM)
        assert broker.end().code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--kind", "kafka"), "install Maven"),
        (("--port", "9092"), "install Maven"),
        (("--kind", "embedded", "--port", "9092"), "chooses its port itself"),
    ],
)
def test_what_cannot_be_had_exits_with_1(
    arguments: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    env = {"REACTIVE_KAFKA_CACHE": str(tmp_path), "PATH": "/nonexistent"}
    ended = cli("broker", *arguments, cwd=tmp_path, env=env)
    assert (ended.code, ended.out) == (1, "")
    assert text in ended.err


@pytest.mark.kafka
def test_a_port_in_use_exits_with_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = cli("broker", "--kind", "kafka", "--port", str(port), cwd=tmp_path)
    assert ended.code == 1
    assert f"port {port} of 127.0.0.1 cannot be had" in ended.err
