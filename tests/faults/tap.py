"""Reads the commits off the wire, as they pass a proxy on their way to the broker: who asked for
which, and when.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from tests.faults.owners import Asked

OFFSET_COMMIT = 8
# With a member and a retention time, and without compact fields.
VERSIONS = range(2, 5)


class CommitTap:
    """Sees what clients send, and keeps the commits.

    Attributes:
        asked: In the order in which they came by.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    def connection(self) -> Callable[[bytes], None]:
        """Takes the pieces of one connection as they come."""
        waiting = bytearray()

        def take(piece: bytes) -> None:
            waiting.extend(piece)
            while len(waiting) >= 4 and len(waiting) >= (
                end := 4 + int.from_bytes(waiting[:4], "big")
            ):
                self._request(bytes(waiting[4:end]))
                del waiting[:end]

        return take

    def _request(self, request: bytes) -> None:
        """Source: RequestHeader.json (version 1) and OffsetCommitRequest.json of Kafka."""
        key, version = struct.unpack_from(">hh", request)
        if key != OFFSET_COMMIT:
            return
        assert version in VERSIONS, f"a commit of version {version} was never read here"
        t, words = time.time(), Words(request, 8)
        client, _ = words.text(), words.text()
        generation, _, _ = words.number(">i"), words.text(), words.number(">q")
        for _ in range(words.number(">i")):
            topic = words.text()
            for _ in range(words.number(">i")):
                partition, offset, _ = words.number(">i"), words.number(">q"), words.text()
                self.asked.append(Asked(t, client, generation, (topic, partition), offset))


class Words:
    """Reads Kafka's plain types out of bytes, one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def number(self, format: str) -> int:
        (number,) = struct.unpack_from(format, self._data, self._at)
        self._at += struct.calcsize(format)
        return int(number)

    def text(self) -> str:
        """A string; empty where there is none."""
        return self._take(self.number(">h")).decode()

    def raw(self) -> bytes:
        """Bytes; empty where there are none."""
        return self._take(self.number(">i"))

    def _take(self, length: int) -> bytes:
        begin = self._at
        self._at += max(length, 0)
        return self._data[begin : self._at]
