"""Encodes a fetch request. No I/O.

The codec of ``broker.wire`` needs milliseconds for a fetch of 1,000 partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from reactive_kafka.broker.consumer.fetching.fetch_session import PartitionFetch, SessionFetch

WAIT_AT = 4
"""The position of the longest wait, in ms, in the bytes of a fetch."""
EPOCH_AT = 21
"""The position of the session epoch in a fetch of version 7 or newer."""
FIRST_WITH_SESSIONS = 7
FIRST_WITH_EPOCHS = 9
FIRST_WITH_RACKS = 11

_BEFORE_TOPICS = Struct(">iiiib")
_SESSION = Struct(">ii")
_OF_PARTITION = {
    4: Struct(">iqi"),
    **dict.fromkeys(range(5, 9), Struct(">iqqi")),
    **dict.fromkeys(range(9, 12), Struct(">iiqqi")),
}
_COUNT = Struct(">i")
_TEXT_LENGTH = Struct(">h")
_NO_REPLICA = -1
_NO_LEADER_EPOCH = -1
# Only followers name the start of their log.
_NO_LOG_START = -1

VERSIONS = frozenset(_OF_PARTITION)
"""The versions that this module encodes. The next one has another encoding, and 13 needs topic
ids.
"""


class FetchLimits(NamedTuple):
    """The fields of a fetch that do not name partitions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    # A number of Kafka's.
    isolation_level: int
    rack: str


def encode_fetch(
    version: int, limits: FetchLimits, session: SessionFetch, named: Iterable[PartitionFetch]
) -> bytes:
    """Encode a fetch of the partitions in *named*, in their order.

    Source: FetchRequest.json of Kafka.
    """
    max_wait_ms, min_bytes, max_bytes, isolation_level, rack = limits
    parts = [
        _BEFORE_TOPICS.pack(_NO_REPLICA, max_wait_ms, min_bytes, max_bytes, isolation_level),
    ]
    if version >= FIRST_WITH_SESSIONS:
        parts.append(_SESSION.pack(session.session_id, session.epoch))
    of_partition = _OF_PARTITION[version].pack
    topics: dict[str, list[bytes]] = {}
    for topic, number, offset, most_bytes in named:
        if version >= FIRST_WITH_EPOCHS:
            row = of_partition(number, _NO_LEADER_EPOCH, offset, _NO_LOG_START, most_bytes)
        elif version > 4:
            row = of_partition(number, offset, _NO_LOG_START, most_bytes)
        else:
            row = of_partition(number, offset, most_bytes)
        topics.setdefault(topic, []).append(row)
    parts.append(_COUNT.pack(len(topics)))
    for topic, rows in topics.items():
        parts += (_text(topic), _COUNT.pack(len(rows)), *rows)
    if version >= FIRST_WITH_SESSIONS:
        forgotten: dict[str, list[bytes]] = {}
        for topic, number in session.forgotten:
            forgotten.setdefault(topic, []).append(_COUNT.pack(number))
        parts.append(_COUNT.pack(len(forgotten)))
        for topic, numbers in forgotten.items():
            parts += (_text(topic), _COUNT.pack(len(numbers)), *numbers)
    if version >= FIRST_WITH_RACKS:
        parts.append(_text(rack))
    return b"".join(parts)


def _text(text: str) -> bytes:
    content = text.encode()
    return _TEXT_LENGTH.pack(len(content)) + content
