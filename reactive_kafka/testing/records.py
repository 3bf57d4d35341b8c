"""Builders of records for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable

from reactive_kafka.broker.memory.rules import MemoryRecord
from reactive_kafka.testing.clock import NOVEMBER_2023


def record(
    value: object = b"",
    *,
    key: bytes | str | None = None,
    offset: int = 0,
    headers: Iterable[tuple[str, bytes | None]] = (),
    timestamp: int | None = int(NOVEMBER_2023 * 1000),
) -> MemoryRecord:
    """A raw record as a broker client would hand it out.

    Args:
        value: Bytes and None as they are, a string as UTF-8, anything else as JSON.
        key: Bytes, or a string as UTF-8.
        offset: Where it stands in its partition.
        headers: Pairs of name and bytes.
        timestamp: Milliseconds since the epoch.
    """
    return MemoryRecord(offset, timestamp, _bytes(key), _bytes(value), tuple(headers))


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
