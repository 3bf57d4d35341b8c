"""Splits the bytes of a connection into answers, each in its own buffer. No I/O."""

from __future__ import annotations

from struct import Struct

SMALL_BYTES = 4 << 10
"""Size of the buffer for short answers. Most answers fit into it, also those to fetches if few
records come at a time, and are read in one piece. A longer answer gets its own buffer and needs
another turn of the loop.
"""

AT_ONCE_BYTES = 8 << 20
"""The size at which the buffer for a longer answer starts. It grows as bytes arrive, because a
server that is not Kafka may announce any length.
"""

LENGTH_BYTES = 4
_LENGTH = Struct(">i")


class Frames:
    """Cuts a stream of bytes into frames, each of which begins with its length. No I/O.

    The transport writes bytes into :meth:`room`, then :meth:`advance` is called.
    """

    def __init__(self) -> None:
        # The frames that nobody has taken yet, the oldest first. There is seldom more than one. An
        # empty list takes a tenth of the memory of an empty deque.
        self.whole: list[bytes | bytearray] = []
        # Set if the stream cannot be Kafka's. Then nothing more is cut.
        self.error: ValueError | None = None
        # Only while something is read: most connections wait nearly all the time, and a channel has
        # two at least.
        self._small: bytearray | None = None
        # How many bytes of ``_large`` have arrived, or of ``_small`` while there is no ``_large``.
        self._filled_bytes = 0
        self._large: bytearray | None = None
        # The length of the frame that ``_large`` is for.
        self._large_length = 0

    @property
    def partial_bytes(self) -> int:
        """How many bytes of an incomplete frame have come."""
        return self._filled_bytes

    def room(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        large = self._large
        if large is None:
            if self._small is None:
                self._small = bytearray(SMALL_BYTES)
            return memoryview(self._small)[self._filled_bytes :]
        if self._filled_bytes == len(large):
            large.extend(bytes(min(self._filled_bytes, self._large_length - self._filled_bytes)))
        return memoryview(large)[self._filled_bytes :]

    def advance(self, count: int) -> None:
        """Take note that *count* bytes were written into the room."""
        self._filled_bytes += count
        if self._small is not None:
            self._cut(self._small)
        elif self._large is not None and self._filled_bytes == self._large_length:
            self.whole.append(self._large)
            self._large = None
            self._filled_bytes = 0

    def _cut(self, small: bytearray) -> None:
        """Move complete frames out of the small buffer, and start a large one for a long frame."""
        pos = 0
        while self._filled_bytes - pos >= LENGTH_BYTES and self.error is None:
            (length,) = _LENGTH.unpack_from(small, pos)
            if length < 0:
                self.error = ValueError(f"an answer of {length} bytes")
            elif pos + LENGTH_BYTES + length <= self._filled_bytes:
                pos += LENGTH_BYTES + length
                self.whole.append(bytes(memoryview(small)[pos - length : pos]))
            elif length + LENGTH_BYTES <= len(small):
                break
            else:
                first_part = memoryview(small)[pos + LENGTH_BYTES : self._filled_bytes]
                self._large = bytearray(min(length, AT_ONCE_BYTES))
                self._large_length = length
                pos = self._filled_bytes
                self._large[: len(first_part)] = first_part
                self._filled_bytes = len(first_part)
                self._small = None
                return
        rest = self._filled_bytes - pos if self.error is None else 0
        self._filled_bytes = rest
        if rest:
            small[:rest] = small[pos : pos + rest]
        else:
            self._small = None
