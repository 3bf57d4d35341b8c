"""``produce``: every line becomes a record, or is named; on an in-memory broker."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.cli.records.confirmations import MOST_RECORDS
from reactive_kafka.cli.records.stdin_lines import CHUNK_BYTES, InputLines
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.testing import MemoryBroker
from tests.cli.inside import cli_on, make_broker
from tests.schemas.server import RegistryServer

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}],
}


@pytest.fixture
def broker() -> MemoryBroker:
    return make_broker(2, "orders")


def values(broker: MemoryBroker, topic: str = "orders") -> list[bytes | None]:
    return [
        record.value
        for partition in range(broker.topics()[topic])
        for record in broker.log(TopicPartition(topic, partition))
    ]


def test_each_line_is_a_record_and_an_empty_line_is_an_empty_one(broker: MemoryBroker) -> None:
    ended = cli_on(broker, "produce", "orders", "--key", "ada", stdin=b"one\n\n \xff\r\nlast")
    assert (ended.code, ended.out) == (0, "4 records written to orders\n")
    assert values(broker) == [b"one", b"", b" \xff\r", b"last"]


def test_no_input_is_no_record(broker: MemoryBroker) -> None:
    ended = cli_on(broker, "produce", "orders", stdin=b"")
    assert (ended.code, ended.out) == (0, "0 records written to orders\n")


def test_key_headers_and_partition_are_those_of_every_record(broker: MemoryBroker) -> None:
    cli_on(
        broker,
        *("produce", "orders", "--key", "ädä", "--partition", "1"),
        *("--header", "a=1", "--header", "b=x=y", "--header", "a="),
        stdin=b"one\ntwo\n",
    )
    records = broker.log(TopicPartition("orders", 1))
    assert [record.key for record in records] == ["ädä".encode()] * 2
    assert [list(record.headers) for record in records] == [
        [("a", b"1"), ("b", b"x=y"), ("a", b"")]
    ] * 2


@pytest.mark.parametrize(
    ("format_name", "line", "value"),
    [
        ("json", b' {"a": 1.10}', b' {"a": 1.10}'),
        ("string", "grüße".encode(), "grüße".encode()),
        ("bytes", b"\xff", b"\xff"),
        ("int", b"-1", b"\xff" * 8),
        ("int32", b" 7 ", b"\0\0\0\7"),
        ("float", b"1", b"\x3f\xf0\0\0\0\0\0\0"),
        ("builtins:str.encode", b"text", b"text"),
    ],
)
def test_a_format_writes_what_a_channel_would(
    broker: MemoryBroker, format_name: str, line: bytes, value: bytes
) -> None:
    ended = cli_on(broker, "produce", "orders", "--format", format_name, stdin=line + b"\n")
    assert ended.code == 0, ended.err
    assert values(broker) == [value]


@pytest.mark.parametrize(
    ("format_name", "line", "said"),
    [
        ("json", b"", "line 2: not JSON"),
        ("json", b"NaN", "line 2: not JSON: it has no NaN"),
        ("string", b"\xff", "line 2: not UTF-8"),
        ("int", b"1.5", "line 2: expected a number"),
        ("int32", b"9999999999", "line 2: the number does not fit the 4 bytes"),
    ],
)
def test_a_line_that_does_not_fit_is_named_and_ends_the_command(
    broker: MemoryBroker, format_name: str, line: bytes, said: str
) -> None:
    ended = cli_on(broker, "produce", "orders", "--format", format_name, stdin=b"1\n%s\n3" % line)
    assert ended.code == 1
    assert said in ended.err
    assert "1 record written to orders, all other lines up to 2" in ended.err
    assert "nothing after line 2 was sent" in ended.err
    assert len(values(broker)) == 1


def test_a_record_that_the_broker_refuses_is_named(broker: MemoryBroker) -> None:
    ended = cli_on(
        broker,
        *("produce", "orders", "--json"),
        stdin=b'{"value": "one"}\n{"value": "two", "partition": 7}\n',
    )
    assert ended.code == 1
    assert "line 2: orders-7 does not exist" in ended.err
    assert "1 record written to orders" in ended.err
    assert values(broker) == [b"one"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nope",), 1, "unknown topic nope; the cluster has orders"),
        (("no/pe",), 2, "no topic can be called 'no/pe'"),
        (("orders", "--header", "x"), 2, "'x': expected NAME=VALUE"),
        (("orders", "--format", "jsn"), 2, "did you mean 'json'?"),
        (("orders", "--format", "cloudevents"), 2, "use --json"),
        (("orders", "--format", "avro"), 2, "needs a schema registry"),
        (("orders", "--json", "--key", "a"), 2, "each object has its own"),
    ],
)
def test_wrong_usage_writes_nothing(
    broker: MemoryBroker, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = cli_on(broker, "produce", *arguments, stdin=b"1\n")
    assert ended.code == code
    assert said in ended.err
    assert values(broker) == []


def test_more_records_than_may_be_in_flight_are_all_written(broker: MemoryBroker) -> None:
    count = 2 * MOST_RECORDS + 1
    lines = b"\n".join(b"%d" % number for number in range(count))
    ended = cli_on(broker, "produce", "orders", "--partition", "0", stdin=lines)
    assert ended.out == f"{count} records written to orders\n"
    assert values(broker) == [b"%d" % number for number in range(count)]


def test_avro_is_written_with_the_newest_schema_of_the_subject(
    broker: MemoryBroker, registry: RegistryServer, tmp_path: Path
) -> None:
    registry.add("orders-value", json.dumps(AVRO))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"schema_registry": {"url": registry.url}}))
    arguments = ("produce", "orders", "--format", "avro", "--config", str(config))
    ended = cli_on(broker, *arguments, stdin=b'{"id": 7}\n{"di": 8}\n', servers=False)
    assert ended.code == 1
    assert "line 2:" in ended.err
    [value] = values(broker)
    assert value is not None
    assert (value[:1], value[5:]) == (b"\0", b"\x0e")
    arguments = ("tail", "orders", "--format", "avro", "--config", str(config))
    assert cli_on(broker, *arguments, servers=False).out == '{"id":7}\n'


# -- the input


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"a", b"a\n", b"a\n\nb", b"x" * (3 * CHUNK_BYTES) + b"\ny", b"\n" * CHUNK_BYTES],
)
def test_lines_of_a_file_are_those_of_python(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)

    async def read() -> list[bytes]:
        found: list[bytes] = []
        with path.open("rb") as stream:
            lines = InputLines(stream)
            while some := await lines.some():
                found += some
        return found

    with path.open("rb") as expected:
        assert asyncio.run(read()) == [line.removesuffix(b"\n") for line in expected]


def test_a_line_of_a_pipe_is_there_as_soon_as_it_was_written() -> None:
    reader, writer = os.pipe()

    def write_the_rest() -> None:
        os.write(writer, b"o\n")
        os.close(writer)

    async def read() -> list[bytes]:
        with os.fdopen(reader, "rb") as stream:
            lines = InputLines(stream)
            os.write(writer, b"one\ntw")
            first = await lines.some()
            threading.Thread(target=write_the_rest).start()
            return [*first, *await lines.some(), *await lines.some()]

    assert asyncio.run(asyncio.wait_for(read(), 10.0)) == [b"one", b"two"]


# -- a topic that does not exist


def test_a_topic_is_created_on_demand_as_it_is_declared(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    created = cli_on(broker, "produce", "new", "--create", stdin=b"1\n")
    assert (created.code, created.out) == (0, "1 record written to new\n"), created.err
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"topics": {"wide": {"partitions": 7}}}))
    for _ in range(2):
        arguments = ("produce", "wide", "--create", "--config", str(config))
        assert cli_on(broker, *arguments, servers=False, stdin=b"1\n").code == 0
    assert broker.topics() == {"orders": 2, "new": 1, "wide": 7}


def test_a_topic_that_cannot_be_created_says_why(broker: MemoryBroker) -> None:
    broker.fail_next("create_topic", FatalBrokerError("the right CREATE is missing"))
    ended = cli_on(broker, "produce", "new", "--create", stdin=b"1\n")
    assert ended.code == 1
    assert "the right CREATE is missing" in ended.err
    assert broker.topics() == {"orders": 2}
