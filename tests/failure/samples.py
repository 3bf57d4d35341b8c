"""Failed records for tests: a plain one to vary, and hypothesis strategies for any."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from reactive_kafka import Headers, Record, TopicPartition
from reactive_kafka.errors import DecodeError
from reactive_kafka.failure import DeadLetterQueue, FailedRecord, WriteLetter
from reactive_kafka.failure.headers import DEAD_LETTER_NAMES, DELAYED_NAMES
from reactive_kafka.records import HeaderPairs

NOW_MS = 1_700_000_000_000


def failed(**changes: Any) -> FailedRecord:
    """A record of orders that met a ValueError."""
    plain: dict[str, Any] = {
        "channel": "orders",
        "group_id": "billing",
        "partition": TopicPartition("orders", 3),
        "offset": 17,
        "key": b"ada",
        "value": b"\xff{",
        "headers": (("trace", b"1"), ("trace", b"2"), ("empty", None)),
        "timestamp_ms": NOW_MS - 5000,
        "reason": ValueError("no amount"),
        "replacement": None,
        "now_ms": NOW_MS,
    }
    return FailedRecord(**(plain | changes))


def read_again(
    write: WriteLetter, *, source: FailedRecord, topic: str | None = None, **changes: Any
) -> FailedRecord:
    """What failed again after it was read from where it was written to, or from *topic*.

    A write without a timestamp gets the time of the failure, as a broker gives it the time of
    writing.
    """
    return failed(
        partition=TopicPartition(topic or write.topic, write.partition or 0),
        offset=source.offset + 1,
        key=write.key,
        value=write.value,
        headers=write.headers,
        timestamp_ms=source.now_ms if write.timestamp_ms is None else write.timestamp_ms,
        **{"now_ms": source.now_ms + 1, **changes},
    )


def letter_of(record: FailedRecord, topic: str = "letters") -> WriteLetter:
    """The letter that a failed record becomes."""
    decision = DeadLetterQueue(topic).decide(record)
    assert isinstance(decision, WriteLetter)
    return decision


def headers_of_no_letter(pairs: HeaderPairs) -> HeaderPairs:
    """The headers that the writing of a dead letter or a delayed retry has not added."""
    return tuple(pair for pair in pairs if pair[0] not in DEAD_LETTER_NAMES | DELAYED_NAMES)


def header(write: WriteLetter, name: str) -> str | None:
    """The last header of a name as text."""
    value = Headers(write.headers).get(name)
    return None if value is None else value.decode()


class Rude(Exception):
    """An exception that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


_texts = st.text(max_size=30) | st.text(
    alphabet="aé\n\x1b\u2028\U0001f600\udc80", min_size=500, max_size=1500
)
_plain = (
    st.builds(ValueError, _texts)
    | st.builds(KeyError, _texts)
    | st.builds(DecodeError, _texts)
    | st.builds(Rude)
)
reasons = _plain | st.builds(_caused, _plain, _plain)
_names = st.sampled_from(sorted(DEAD_LETTER_NAMES | DELAYED_NAMES)) | st.text(max_size=5)
_values = (
    st.none() | st.binary(max_size=8) | st.integers(-5, 10**25).map(lambda number: b"%d" % number)
)
headers = st.lists(st.tuples(_names, _values), max_size=12).map(tuple)
_replacements = st.builds(
    Record,
    value=st.none()
    | st.binary(max_size=4)
    | st.text(max_size=4)
    | st.dictionaries(st.text(max_size=2), st.integers()),
    key=st.none() | st.binary(max_size=4) | st.text(alphabet="ab", max_size=4),
    headers=st.lists(st.tuples(_names, st.binary(max_size=4)), max_size=3).map(tuple),
    partition=st.none() | st.integers(0, 9),
    topic=st.none() | st.just("elsewhere"),
)


@st.composite
def any_failed(draw: st.DrawFn, *topics: str) -> FailedRecord:
    """Any failed record that was read from one of *topics*."""
    return failed(
        partition=TopicPartition(draw(st.sampled_from(topics)), draw(st.integers(0, 7))),
        offset=draw(st.integers(0, 2**62)),
        key=draw(st.none() | st.binary(max_size=4)),
        value=draw(st.none() | st.binary(max_size=4)),
        headers=draw(headers),
        timestamp_ms=draw(st.none() | st.integers(-1, 2 * NOW_MS)),
        reason=draw(reasons),
        replacement=draw(st.none() | _replacements),
        now_ms=draw(st.integers(0, 2 * NOW_MS)),
    )
