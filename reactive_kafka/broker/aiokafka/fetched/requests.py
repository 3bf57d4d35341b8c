"""What a fetch says, and its bytes. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from aiokafka.protocol.fetch import FetchRequest

WAIT_AT = 4
EPOCH_AT = 21
"""Where a fetch has its longest wait, in ms, and one with a session its epoch."""

_BEFORE_TOPICS = {
    **dict.fromkeys((4, 5, 6), (Struct(">iiiib"), ())),
    **dict.fromkeys(range(7, 12), (Struct(">iiiibii"), ("session_id", "session_epoch"))),
}
_OF_PARTITION = {
    4: Struct(">iqi"),
    **dict.fromkeys(range(5, 9), Struct(">iqqi")),
    9: Struct(">iiqqi"),
}
_OF_PARTITION |= {10: _OF_PARTITION[9], 11: _OF_PARTITION[9]}
_COUNT = Struct(">i")
_TEXT_LENGTH = Struct(">h")


def encoded(asked: Any) -> bytes:
    """A fetch, as the client's own ``encode`` writes it. That one is told of each field: 4 ms for
    1,000 partitions.

    Source: the schemas of ``aiokafka.protocol.fetch``, of the versions whose answers are read here,
    too.
    """
    version = asked.API_VERSION
    fields, session = _BEFORE_TOPICS[version]
    first = (
        asked.replica_id,
        asked.max_wait_time,
        asked.min_bytes,
        asked.max_bytes,
        asked.isolation_level,
    )
    parts = [
        fields.pack(*first, *(getattr(asked, name) for name in session)),
        _COUNT.pack(len(asked.topics)),
    ]
    of_partition = _OF_PARTITION[version].pack
    for topic, partitions in asked.topics:
        parts += (_text(topic), _COUNT.pack(len(partitions)))
        parts += [of_partition(*one) for one in partitions]
    if version >= 7:
        parts.append(_COUNT.pack(len(asked.forgotten_topics_data)))
        for topic, numbers in asked.forgotten_topics_data:
            parts += (_text(topic), _COUNT.pack(len(numbers)), *map(_COUNT.pack, numbers))
    if version >= 11:
        parts.append(_text(asked.rack_id))
    return b"".join(parts)


_built = FetchRequest.build


def built(request: Any, kind: Any) -> Any:
    """A fetch in one of its versions, by the session of the connection that it goes over.

    ``request.session`` is that, ``request.asks`` the partitions, and ``request.anew`` whether all
    are to be told of.
    """
    if kind.API_VERSION < 7 or not (hasattr(request, "session") and hasattr(request, "asks")):
        return _built(request, kind)
    asked = request.session.ask(request.asks, anew=request.anew)
    topics: dict[str, list[Any]] = {}
    # Of the leader.
    epoch = (-1,) if kind.API_VERSION >= 9 else ()
    for topic, number, offset, most in _all(request) if asked.named is None else asked.named:
        topics.setdefault(topic, []).append((number, *epoch, offset, -1, most))
    forgotten: dict[str, list[int]] = {}
    for topic, number in asked.forgotten:
        forgotten.setdefault(topic, []).append(number)
    limits = (
        request._max_wait_ms,
        request._min_bytes,
        request._max_bytes,
        request._isolation_level,
    )
    rack = (request._rack_id,) if kind.API_VERSION >= 11 else ()
    made = kind(
        -1, *limits, asked.session_id, asked.epoch, [*topics.items()], [*forgotten.items()], *rack
    )
    made.session = request.session
    made.asked = asked
    return made


def _all(request: Any) -> Iterator[tuple[str, int, int, int]]:
    """In the client's order, which is another one each time: without a session, the broker has none
    of its own.
    """
    return ((topic, *one) for topic, partitions in request.topics for one in partitions)


def _text(text: str) -> bytes:
    content = text.encode()
    return _TEXT_LENGTH.pack(len(content)) + content
