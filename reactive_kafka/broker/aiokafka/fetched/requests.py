"""The bytes of a fetch. No I/O."""

from __future__ import annotations

from struct import Struct
from typing import Any

_BEFORE_TOPICS = {
    **dict.fromkeys((4, 5, 6), (Struct(">iiiib"), ())),
    **dict.fromkeys(range(7, 12), (Struct(">iiiibii"), ("session_id", "session_epoch"))),
}
_OF_PARTITION = {4: Struct(">iqi"), **dict.fromkeys(range(5, 9), Struct(">iqqi")), 9: Struct(">iiqqi")}
_OF_PARTITION |= {10: _OF_PARTITION[9], 11: _OF_PARTITION[9]}
_COUNT, _TEXT_LENGTH = Struct(">i"), Struct(">h")


def encoded(asked: Any) -> bytes:
    """A fetch, as the client's own ``encode`` writes it. That one is told of each field: 4 ms for 1,000 partitions.

    Source: the schemas of ``aiokafka.protocol.fetch``, of the versions whose answers are read here, too.
    """
    version = asked.API_VERSION
    fields, session = _BEFORE_TOPICS[version]
    first = (asked.replica_id, asked.max_wait_time, asked.min_bytes, asked.max_bytes, asked.isolation_level)
    parts = [fields.pack(*first, *(getattr(asked, name) for name in session)), _COUNT.pack(len(asked.topics))]
    of_partition = _OF_PARTITION[version].pack
    for topic, partitions in asked.topics:
        parts += (_text(topic), _COUNT.pack(len(partitions)))
        parts += [of_partition(*one) for one in partitions]
    if version >= 7:
        parts.append(_COUNT.pack(0))  # the client forgets no topics: it has no session
    if version >= 11:
        parts.append(_text(asked.rack_id))
    return b"".join(parts)


def _text(text: str) -> bytes:
    content = text.encode()
    return _TEXT_LENGTH.pack(len(content)) + content
