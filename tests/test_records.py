"""A :class:`Record` says what is wrong with it where it is made, and not where it is sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reactive_kafka import Headers, Record
from reactive_kafka.records import EPOCH, epoch_ms

AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        ({"headers": {"trace": b"1"}}, TypeError, "of a dict: list(headers.items())"),
        ({"headers": {}}, TypeError, "of a dict: list(headers.items())"),
        (
            {"headers": [("trace", "1")]},
            TypeError,
            "('trace', '1') is no pair of a str and bytes or None: encode the text",
        ),
        (
            {"headers": [("trace", 1)]},
            TypeError,
            "('trace', 1) is no pair of a str and bytes or None",
        ),
        ({"headers": [("trace",)]}, TypeError, "is no pair"),
        ({"headers": [(b"trace", b"1")]}, TypeError, "is no pair"),
        ({"headers": [("\ud800", b"1")]}, TypeError, "is no pair"),
        ({"headers": iter([("trace", 1)])}, TypeError, "is no pair"),
        ({"headers": b"trace"}, TypeError, "expected a sequence of pairs"),
        ({"headers": "trace"}, TypeError, "expected a sequence of pairs"),
        ({"headers": None}, TypeError, "headers=None"),
        ({"headers": 7}, TypeError, "headers=7"),
        ({"partition": "1"}, TypeError, "partition='1'"),
        ({"partition": True}, TypeError, "partition=True"),
        ({"partition": 1.0}, TypeError, "partition=1.0"),
        ({"partition": -1}, ValueError, "partition=-1"),
        ({"partition": 2**31}, ValueError, "numbers from 0 on"),
        (
            {"timestamp": 1700000000000},
            TypeError,
            "Record(timestamp=1700000000000): expected a datetime with a time zone",
        ),
        ({"timestamp": 1.5}, TypeError, "datetime.fromtimestamp(milliseconds / 1000, UTC)"),
        ({"timestamp": "2026-01-02"}, TypeError, "expected a datetime"),
        ({"timestamp": AT.date()}, TypeError, "expected a datetime"),
        ({"timestamp": AT.replace(tzinfo=None)}, ValueError, "has no time zone"),
        ({"topic": b"orders"}, TypeError, "expected the name of a topic"),
        ({"channel": 5}, TypeError, "expected the name of an outgoing channel"),
    ],
)
def test_a_field_that_cannot_be_is_an_error_where_the_record_is_made(
    fields: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind) as caught:
        Record(b"value", **fields)
    assert said in str(caught.value)


def test_a_changed_copy_is_checked_too() -> None:
    with pytest.raises(TypeError):
        replace(Record(b"value"), timestamp=1700000000000)


@pytest.mark.parametrize(
    "headers",
    [[], (), [("a", b"1"), ("b", None)], (("a", b""),), Headers([("a", b"1")]), [["a", b"1"]]],
)
def test_headers_that_can_be_written_are_kept(headers: Any) -> None:
    assert list(Record(b"value", headers=headers).headers) == list(headers)


def test_headers_of_an_iterator_are_read_once_and_kept() -> None:
    record = Record(b"value", headers=iter([("a", b"1")]))
    assert [tuple(record.headers), tuple(record.headers)] == [(("a", b"1"),)] * 2


def test_all_other_fields_are_as_before() -> None:
    record = Record(
        {"a": 1}, key="k", partition=0, timestamp=AT, topic="elsewhere", channel="invoices"
    )
    assert (record.key, record.partition, record.timestamp) == ("k", 0, AT)
    assert hash(Record(b"value")) == hash(Record(b"value"))


@given(st.integers(0, 253_402_300_799_999), st.integers(0, 999))
@example(1_090_469_273_610, 0)
def test_a_time_becomes_the_timestamp_that_it_was_made_of(timestamp_ms: int, more_us: int) -> None:
    moment = EPOCH + timedelta(milliseconds=timestamp_ms, microseconds=more_us)
    assert epoch_ms(moment) == timestamp_ms
