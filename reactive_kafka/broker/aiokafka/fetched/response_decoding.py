"""Decodes the answer to a fetch. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Any

HEADER_BYTES = 4
"""An answer begins with the number of its request."""

_LENGTH = Struct(">i")
_SESSION = Struct(">hi")
_TOPIC_LENGTH = Struct(">h")
_ABORTED = Struct(">qq")
_BEFORE_ABORTED = {4: Struct(">ihqq"), **dict.fromkeys(range(5, 12), Struct(">ihqqq"))}
"""Version of a fetch -> the fields of a partition that precede its aborted transactions."""

VERSIONS = frozenset(_BEFORE_ABORTED)
"""The versions that this module decodes."""


def decode_fetch_response(kind: Any, frame: memoryview) -> Any:
    """Decode the answer to a fetch, with the same result as the client's own ``decode``.

    The client's own reads field by field from a stream, which takes several times as long.

    Source: the schemas of ``aiokafka.protocol.fetch``.

    Raises:
        ValueError: The answer is cut short.
    """
    try:
        return kind(*_fields(kind.API_VERSION, frame))
    except error as cut_short:
        raise ValueError("the answer to a fetch is cut short") from cut_short


def _fields(version: int, frame: memoryview) -> Iterator[Any]:
    """Yield the fields of the answer, in the order of the client's response class."""
    (throttled_ms,) = _LENGTH.unpack_from(frame, HEADER_BYTES)
    pos = HEADER_BYTES + 4
    yield throttled_ms
    if version >= 7:
        yield from _SESSION.unpack_from(frame, pos)
        pos += _SESSION.size
    topics: list[tuple[str, list[tuple[Any, ...]]]] = []
    (count,) = _LENGTH.unpack_from(frame, pos)
    pos += 4
    for _ in range(count):
        (length,) = _TOPIC_LENGTH.unpack_from(frame, pos)
        pos += 2
        partitions: list[tuple[Any, ...]] = []
        topics.append((str(frame[pos : pos + length], "utf-8"), partitions))
        pos = _partitions(version, frame, pos + length, partitions)
    yield topics


def _partitions(version: int, frame: memoryview, pos: int, found: list[tuple[Any, ...]]) -> int:
    """Append the partitions of one topic to *found*. Returns the position after them."""
    before_aborted = _BEFORE_ABORTED[version]
    length_of = _LENGTH.unpack_from
    (count,) = length_of(frame, pos)
    pos += 4
    for _ in range(count):
        fields = before_aborted.unpack_from(frame, pos)
        pos += before_aborted.size
        (length,) = length_of(frame, pos)
        pos += 4
        aborted = None
        if length >= 0:
            end = pos + length * _ABORTED.size
            aborted = list(_ABORTED.iter_unpack(frame[pos:end]))
            pos = end
        if version >= 11:
            replica = length_of(frame, pos)
            pos += 4
        else:
            replica = ()
        (length,) = length_of(frame, pos)
        pos += 4
        records = None
        if length >= 0:
            records = bytes(frame[pos : pos + length])
            pos += length
        if pos > len(frame):
            raise ValueError("the answer to a fetch is cut short")
        found.append((*fields, aborted, *replica, records))
    return pos
