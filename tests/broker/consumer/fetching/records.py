"""Records that hold what they are given."""

from __future__ import annotations

from dataclasses import dataclass

from reactive_kafka.records import HeaderPairs


@dataclass(frozen=True)
class PlainRecord:
    """A record with a value."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: HeaderPairs = ()
