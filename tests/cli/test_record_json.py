"""A record as JSON: what ``tail --json`` prints is what ``produce --json`` reads."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.cli.records.record_json import (
    bytes_of_json,
    json_bytes,
    json_of,
    record_of_json,
)
from reactive_kafka.records import HeaderPairs, RecordBytes

maybe_bytes = st.none() | st.binary() | st.text().map(str.encode)
# As the client reads a name that is not UTF-8.
names = st.binary().map(lambda name: name.decode("utf-8", "surrogateescape"))


class ReadRecord(NamedTuple):
    """As the client returns it."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


def written_value(found: object) -> bytes | None:
    return bytes_of_json(found, "value")


@given(
    value=maybe_bytes,
    key=maybe_bytes,
    headers=st.lists(st.tuples(names, maybe_bytes)),
    partition=st.integers(0, 2**31 - 1),
    timestamp=st.none() | st.integers(0, 2**63 - 1),
)
def test_a_record_survives_the_way_through_json(
    value: bytes | None,
    key: bytes | None,
    headers: HeaderPairs,
    partition: int,
    timestamp: int | None,
) -> None:
    record = ReadRecord(7, timestamp, key, value, tuple(headers))
    line = json.dumps(json_of("orders", partition, record, json_bytes(value))).encode()
    assert b"\n" not in line
    written, to = record_of_json(line, written_value)
    assert written == RecordBytes(value, key, tuple(headers), timestamp)
    assert to == partition


def test_a_value_alone_is_enough() -> None:
    assert record_of_json(b'{"value": null}', written_value) == (RecordBytes(None), None)


def test_a_time_may_be_written_as_text() -> None:
    line = b'{"value": "a", "timestamp": "1970-01-01T00:00:01.5Z"}'
    assert record_of_json(line, written_value).record.timestamp_ms == 1500


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not JSON: Expecting value"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"value": NaN}', "it has no NaN"),
        (b"[]", "expected an object"),
        (b'{"vlaue": "a"}', "unknown field 'vlaue'; allowed are value, key, headers"),
        (b'{"key": "a"}', "the field value is missing; null writes a tombstone"),
        (b'{"value": 7}', 'value = 7: expected a string, null or {"base64": "..."}'),
        (b'{"value": {"base64": "?"}}', "value: not base64"),
        (b'{"value": "\\ud800"}', "value: a lone surrogate has no bytes"),
        (b'{"value": "a", "partition": "1"}', 'partition = "1": expected a number or null'),
        (b'{"value": "a", "partition": -1}', "partition"),
        (b'{"value": "a", "partition": true}', "partition = true"),
        (b'{"value": "a", "timestamp": "2026-11-21T08:00:00"}', "a time with its zone"),
        (b'{"value": "a", "timestamp": 1.5}', "timestamp = 1.5"),
        (b'{"value": "a", "headers": "x"}', "headers"),
        (b'{"value": "a", "headers": [["x"]]}', 'expected ["name", "value"]'),
        (b'{"value": "a", "headers": [[null, "x"]]}', "has no name"),
    ],
)
def test_anything_else_is_refused_and_says_what_is_allowed(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        record_of_json(line, written_value)
    assert said in str(caught.value)
