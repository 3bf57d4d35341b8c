"""Limits how many positions a commit has. No I/O.

A broker stores the positions of a request as one batch in the group's topic. It refuses the whole
request if that is larger than a batch may be. The error (UNKNOWN_SERVER_ERROR) does not mention the
size, and would come for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.records import Committed, TopicPartition

MOST_STORED_BYTES = 800_000
"""The size of the positions in one request. A batch has at most 1,048,588 bytes
(``message.max.bytes``).
"""

# The size of a stored position without its names and metadata.
_ROW_BYTES = 80


def split_commit(
    group_id: str, offsets: Mapping[TopicPartition, Committed]
) -> list[Mapping[TopicPartition, Committed]]:
    """Divide the positions into requests that the broker can store, longest metadata first."""
    fixed_bytes = _ROW_BYTES + len(group_id.encode())
    sizes = {
        partition: fixed_bytes + len(partition.topic) + len(position.metadata.encode())
        for partition, position in offsets.items()
    }
    if sum(sizes.values()) <= MOST_STORED_BYTES:
        return [offsets]
    # Longest metadata first: if it is too long by itself, the first request is refused, and nothing
    # is stored before that.
    by_metadata = sorted(
        offsets,
        key=lambda partition: len(offsets[partition].metadata.encode("utf-16-le")),
        reverse=True,
    )
    requests: list[dict[TopicPartition, Committed]] = []
    room = 0
    for partition in by_metadata:
        if sizes[partition] > room:
            requests.append({})
            room = MOST_STORED_BYTES
        requests[-1][partition] = offsets[partition]
        room -= sizes[partition]
    return [*requests]
