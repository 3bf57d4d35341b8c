"""Reads the commits off the wire, as they pass a proxy on their way to the broker: who asked for
which, and when.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from reactive_kafka.broker.wire.codec import decode, decode_first
from reactive_kafka.broker.wire.definitions import OFFSET_COMMIT, REQUEST_HEADER
from reactive_kafka.broker.wire.schema import versions_of
from tests.faults.owners import Asked


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
        key, version = struct.unpack_from(">hh", request)
        if key != OFFSET_COMMIT.key:
            return
        t = time.time()
        is_flexible = version in versions_of(OFFSET_COMMIT.request.flexible)
        header, length = decode_first(REQUEST_HEADER, 2 if is_flexible else 1, request)
        commit = decode(OFFSET_COMMIT.request, version, request[length:])
        for topic in commit["topics"]:
            for row in topic["partitions"]:
                self.asked.append(
                    Asked(
                        t,
                        header["client_id"],
                        commit["generation_id_or_member_epoch"],
                        (topic["name"], row["partition_index"]),
                        row["committed_offset"],
                    )
                )


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

    # Kafka's flexible types, of which lengths are one too many.

    def count(self) -> int:
        """How many elements, or bytes, follow; 0 also where there is null."""
        return max(0, self._varint() - 1)

    def short_text(self) -> str:
        """A compact string; empty where there is none."""
        return self._take(self.count()).decode()

    def fixed(self, length: int) -> bytes:
        """So many bytes."""
        return self._take(length)

    def tags(self) -> None:
        """Pass the tagged fields, which are nobody's business here."""
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def _take(self, length: int) -> bytes:
        begin = self._at
        self._at += max(length, 0)
        return self._data[begin : self._at]
