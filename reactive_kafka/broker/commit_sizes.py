"""How many positions a commit may have. No I/O.

A broker stores the positions of a request as one batch in the group's topic. One that is larger
than a batch may be is refused as a whole, with an error that says nothing of its size
(UNKNOWN_SERVER_ERROR), and would be for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.records import Committed, TopicPartition

MOST_STORED_BYTES = 800_000
"""Of the positions in one request: a batch has 1,048,588 at most (``message.max.bytes``)."""

# Of a stored position beside names and string.
_ROW_BYTES = 80


def split_commit(
    group_id: str, offsets: Mapping[TopicPartition, Committed]
) -> list[Mapping[TopicPartition, Committed]]:
    """The positions, divided so that the broker stores each part at once; those with the longest
    strings first.
    """
    rest = _ROW_BYTES + len(group_id.encode())
    sizes = {one: rest + len(one.topic) + len(at.metadata.encode()) for one, at in offsets.items()}
    if sum(sizes.values()) <= MOST_STORED_BYTES:
        return [offsets]
    parts: list[dict[TopicPartition, Committed]] = []
    room = 0
    # A string that is too long by itself is refused with the first request, before anything is
    # stored.
    for one in sorted(
        offsets, key=lambda one: len(offsets[one].metadata.encode("utf-16-le")), reverse=True
    ):
        if sizes[one] > room:
            parts.append({})
            room = MOST_STORED_BYTES
        parts[-1][one] = offsets[one]
        room -= sizes[one]
    return [*parts]
