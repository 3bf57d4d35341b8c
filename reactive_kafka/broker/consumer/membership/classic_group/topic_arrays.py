"""Partitions as Kafka's clients write them: an array of topics, each with its numbers. Pure.

Lengths of arrays and numbers have four bytes, lengths of names two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from reactive_kafka.records import TopicPartition


def encoded_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the bytes of some partitions, topic by topic."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, numbers in by_topic.items():
        parts.append(encoded_text(topic))
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


def encoded_text(text: str) -> bytes:
    content = text.encode()
    return struct.pack(">h", len(content)) + content


class ArrayReader:
    """Reads bytes from their beginning on.

    Each method raises ValueError if the bytes end too early, or a length cannot be right.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._content) - self._at

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise ValueError(f"a length of {length} at byte {self._at} of {len(self._content)}")
        self._at += length
        return self._content[self._at - length : self._at]

    def text(self) -> str:
        return self.take(self.int16()).decode()

    def optional_text(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self.take(length).decode()

    def optional_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self.take(length)

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self._checked_count(2))]

    def partitions(self) -> frozenset[TopicPartition]:
        found: set[TopicPartition] = set()
        for _ in range(self._checked_count(6)):
            topic = self.text()
            numbers = range(self._checked_count(4))
            found.update(TopicPartition(topic, self.int32()) for _ in numbers)
        return frozenset(found)

    def _checked_count(self, least_size: int) -> int:
        """Return the length of an array whose elements have at least *least_size* bytes."""
        count = self.int32()
        if not 0 <= count * least_size <= self.left:
            raise ValueError(f"an array of {count} elements in {self.left} bytes")
        return count
