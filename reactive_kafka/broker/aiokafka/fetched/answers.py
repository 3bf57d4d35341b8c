"""The answer to a fetch out of its bytes. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Any

HEADER_BYTES = 4
"""The number of the request."""

_LENGTH = Struct(">i")
_SESSION = Struct(">hi")
_TOPIC_LENGTH = Struct(">h")
_ABORTED = Struct(">qq")
_BEFORE_ABORTED = {4: Struct(">ihqq"), **dict.fromkeys(range(5, 12), Struct(">ihqqq"))}
"""Version of a fetch -> what an answer says of a partition before its aborted transactions."""

VERSIONS = frozenset(_BEFORE_ABORTED)
"""The versions that can be read here."""


def fetched(kind: Any, frame: memoryview) -> Any:
    """The answer to a fetch, as the client's own ``decode`` makes it. That one reads field by field
    out of a stream.

    Source: the schemas of ``aiokafka.protocol.fetch``.

    Raises:
        ValueError: It is cut short.
    """
    try:
        return kind(*_fields(kind.API_VERSION, frame))
    except error as cut_short:
        raise ValueError("the answer to a fetch is cut short") from cut_short


def _fields(version: int, frame: memoryview) -> Iterator[Any]:
    (throttled_ms,) = _LENGTH.unpack_from(frame, HEADER_BYTES)
    at = HEADER_BYTES + 4
    yield throttled_ms
    if version >= 7:
        yield from _SESSION.unpack_from(frame, at)
        at += _SESSION.size
    topics: list[tuple[str, list[tuple[Any, ...]]]] = []
    (count,) = _LENGTH.unpack_from(frame, at)
    at += 4
    for _ in range(count):
        (length,) = _TOPIC_LENGTH.unpack_from(frame, at)
        at += 2
        partitions: list[tuple[Any, ...]] = []
        topics.append((str(frame[at : at + length], "utf-8"), partitions))
        at = _partitions(version, frame, at + length, partitions)
    yield topics


def _partitions(version: int, frame: memoryview, at: int, found: list[tuple[Any, ...]]) -> int:
    before_aborted = _BEFORE_ABORTED[version]
    length_of = _LENGTH.unpack_from
    (count,) = length_of(frame, at)
    at += 4
    for _ in range(count):
        said = before_aborted.unpack_from(frame, at)
        at = at + before_aborted.size
        (length,) = length_of(frame, at)
        at += 4
        aborted = None
        if length >= 0:
            end = at + length * _ABORTED.size
            aborted = list(_ABORTED.iter_unpack(frame[at:end]))
            at = end
        if version >= 11:
            replica = length_of(frame, at)
            at = at + 4
        else:
            replica = ()
        (length,) = length_of(frame, at)
        at += 4
        records = None
        if length >= 0:
            records = bytes(frame[at : at + length])
            at = at + length
        if at > len(frame):
            raise ValueError("the answer to a fetch is cut short")
        found.append((*said, aborted, *replica, records))
    return at
