"""``tail``: what it prints, and where it ends; on an in-memory broker."""

from __future__ import annotations

import json
import struct
from math import inf, nan

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.testing import MemoryBroker
from tests.cli.inside import cli_on, fill, make_broker


@pytest.fixture
def broker() -> MemoryBroker:
    """orders has 0 to 3 in partition 0 and 0 to 1 in partition 1, a record a second in each."""
    broker = make_broker(2, "orders", "copy")
    fill(broker, "orders", (4, 2))
    return broker


def tail(broker: MemoryBroker, *arguments: str) -> list[str]:
    ended = cli_on(broker, "tail", "orders", *arguments)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    return ended.out.splitlines()


def test_it_prints_every_record_from_the_beginning_to_the_end(broker: MemoryBroker) -> None:
    assert tail(broker) == ["0", "0", "1", "1", "2", "3"]
    assert tail(make_broker(2, "orders")) == []


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("--partition", "1"), ["0", "1"]),
        (("--limit", "3"), ["0", "0", "1"]),
        (("--limit", "99"), ["0", "0", "1", "1", "2", "3"]),
        (("--from", "1", "--until", "3"), ["1", "1", "2"]),
        (("--from", "by:-1"), ["1", "3"]),
        (("--from", "latest"), []),
        (("--from", "1970-01-01T00:16:41Z"), ["1", "1", "2", "3"]),
        (("--until", "1970-01-01T00:16:41Z"), ["0", "0"]),
        (("--from", "1h"), []),
        (("--until", "1h", "--partition", "1"), ["0", "1"]),
    ],
)
def test_it_reads_a_part_of_the_log(
    broker: MemoryBroker, arguments: tuple[str, ...], lines: list[str]
) -> None:
    assert tail(broker, *arguments) == lines


def test_keys_and_headers_are_printed_on_demand() -> None:
    broker = make_broker(1, "orders")
    broker.produce("orders", None, key=b"a", headers=[("x", b"1"), ("y", None)])
    broker.produce("orders", b"\xff", headers=[])
    ended = cli_on(broker, "tail", "orders", "--keys", "--headers", "--limit", "1")
    assert ended.out == "a\tx=1,y=null\tnull\n"


def test_json_has_one_object_a_line(broker: MemoryBroker) -> None:
    broker.produce(
        "orders", b"\xff\n", key=b"k", headers=[("x", None)], partition=1, timestamp_ms=2_000_000
    )
    lines = tail(broker, "--json", "--partition", "1")
    assert [json.loads(line) for line in lines][1:] == [
        {
            "topic": "orders",
            "partition": 1,
            "offset": 1,
            "timestamp": 1001_000,
            "key": None,
            "headers": [],
            "value": "1",
        },
        {
            "topic": "orders",
            "partition": 1,
            "offset": 2,
            "timestamp": 2_000_000,
            "key": "k",
            "headers": [["x", None]],
            "value": {"base64": "/wo="},
        },
    ]


def test_a_topic_is_copied_byte_for_byte(broker: MemoryBroker) -> None:
    broker.produce("orders", None, key=b"\xff", headers=[("x", b"\x00"), ("x", None)], partition=0)
    broker.produce("orders", "ä\n\u2028".encode(), key=b"", headers=[], partition=1)
    read = cli_on(broker, "tail", "orders", "--json")
    written = cli_on(broker, "produce", "copy", "--json", stdin=read.out.encode())
    assert (written.code, written.out) == (0, "8 records written to copy\n")
    for number in range(2):
        copies = [
            (record.key, record.value, list(record.headers), record.timestamp)
            for record in broker.log(TopicPartition("copy", number))
        ]
        originals = [
            (record.key, record.value, list(record.headers), record.timestamp)
            for record in broker.log(TopicPartition("orders", number))
        ]
        assert copies == originals


def test_a_value_that_cannot_be_decoded_is_named_and_the_others_are_printed() -> None:
    broker = make_broker(1, "orders")
    for value in (b'{"a":  1}', b"{", None):
        broker.produce("orders", value)
    ended = cli_on(broker, "tail", "orders", "--format", "json")
    assert ended.code == 1
    assert ended.out == '{"a":1}\nnull\n'
    assert ended.err.startswith("orders-0 offset 1: ")
    assert "1 value could not be decoded" in ended.err
    decoded = cli_on(broker, "tail", "orders", "--format", "json", "--json", "--limit", "1")
    assert json.loads(decoded.out)["value"] == {"a": 1}


def with_bytes(value: bytes) -> dict[str, object]:
    """What a format with schemas may yield."""
    return {"hash": value, "share": nan}


@pytest.mark.parametrize(
    ("format_name", "value", "line", "in_json"),
    [
        ("float", struct.pack(">d", nan), "NaN", "NaN"),
        ("float", struct.pack(">d", -inf), "-Infinity", "-Infinity"),
        ("json", b'{"a": [NaN, 1]}', '{"a":["NaN",1]}', {"a": ["NaN", 1]}),
        (
            f"{__name__}:with_bytes",
            b"\xff",
            '{"hash":{"base64":"/w=="},"share":"NaN"}',
            {"hash": {"base64": "/w=="}, "share": "NaN"},
        ),
    ],
)
def test_a_decoded_value_that_json_does_not_have_is_printed(
    format_name: str, value: bytes, line: str, in_json: object
) -> None:
    broker = make_broker(1, "orders")
    broker.produce("orders", value)
    assert tail(broker, "--format", format_name) == [line]
    (printed,) = tail(broker, "--format", format_name, "--json")
    assert json.loads(printed)["value"] == in_json


def not_utf_8(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def test_text_that_has_no_utf_8_is_escaped_and_ends_nothing() -> None:
    broker = make_broker(1, "orders")
    for value in (b"\xff", b"b"):
        broker.produce("orders", value)
    ended = cli_on(broker, "tail", "orders", "--json", "--format", f"{__name__}:not_utf_8")
    assert ended.code == 0, ended.err
    assert [json.loads(line)["value"] for line in ended.out.splitlines()] == ["\udcff", "b"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nope",), 1, "unknown topic nope; the cluster has orders, copy"),
        (("orders", "--partition", "7"), 1, "topic orders has no partition 7; it has 2"),
        (("orders", "--from", "soon"), 2, "or a duration: so long ago"),
        (("orders", "--follow", "--until", "1"), 2, "exclude each other"),
        (("orders", "--format", "nope"), 2, "the format 'nope' does not exist"),
    ],
)
def test_wrong_usage_is_named(
    broker: MemoryBroker, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = cli_on(broker, "tail", *arguments)
    assert ended.code == code
    assert said in ended.err
    assert ended.out == ""
