"""The five-lines example does what its page says."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from reactive_kafka.broker.embedded import EmbeddedBroker
from reactive_kafka.broker.kafka_connector import KafkaConnector
from tests.cli.process import cli, running

FOLDER = Path(__file__).parents[2] / "examples" / "hello"


async def test_it_greets_and_commits() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("greetings", 1)
        connector = KafkaConnector(broker.bootstrap_servers)
        producer = connector.producer(name="test", properties={})
        await producer.start()
        env = {
            "REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "REACTIVE_KAFKA__KAFKA__AUTO_OFFSET_RESET": "earliest",
            "REACTIVE_KAFKA__HTTP__PORT": "0",
        }
        with running(sys.executable, "hello.py", cwd=FOLDER, env=env) as hello:
            await (await producer.send("greetings", b"Ada"))
            hello.wait_for(lambda: "Hello, Ada!" in hello.out, "the greeting")
            hello.process.send_signal(signal.SIGINT)
            ended = hello.end()
        assert ended.code == 0, hello.said
        await producer.stop()
        inspector = connector.inspector(properties={})
        await inspector.start()
        committed = await inspector.committed("hello", (await inspector.topics())["greetings"])
        await inspector.stop()
        assert [position.offset for position in committed.values()] == [1]


@pytest.mark.parametrize(("folder", "target"), [("hello", "hello:app"), ("demo", "shop:app")])
def test_the_examples_pass_their_check(folder: str, target: str) -> None:
    ended = cli("check", target, cwd=FOLDER.parent / folder)
    assert ended.code == 0, ended.err


def test_the_example_is_as_short_as_it_says() -> None:
    source = (FOLDER / "hello.py").read_text().partition('\nif __name__ == "__main__"')[0]
    assert len([line for line in source.splitlines() if line.strip()]) == 5
