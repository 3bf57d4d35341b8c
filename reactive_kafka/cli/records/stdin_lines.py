"""Reads standard input line by line, without blocking the event loop."""

from __future__ import annotations

import asyncio
import io
import os
from typing import BinaryIO

CHUNK_BYTES = 65_536
MOST_LINE_BYTES = 128 * 2**20
"""A longer line is refused. It would be kept in memory, and no broker takes such a record."""


class LineTooLongError(ValueError):
    """A line is longer than ``MOST_LINE_BYTES``."""


class InputLines:
    """The lines of a stream, without their line breaks. The last line need not have one."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._pending = bytearray()
        self._is_at_end = False

    async def some(self) -> list[bytes]:
        """Return the next lines; an empty list at the end.

        A line of a pipe or a terminal is returned as soon as it has come.

        Raises:
            LineTooLongError: A line is too long.
        """
        while not self._is_at_end:
            chunk = await self._chunk()
            if not chunk:
                self._is_at_end = True
                return [bytes(self._pending)] if self._pending else []
            if b"\n" not in chunk:
                self._pending += chunk
                if len(self._pending) > MOST_LINE_BYTES:
                    raise LineTooLongError(f"longer than {MOST_LINE_BYTES // 2**20} MiB")
                continue
            first, *others = chunk.split(b"\n")
            lines = [bytes(self._pending) + first, *others]
            self._pending = bytearray(lines.pop())
            return lines
        return []

    async def _chunk(self) -> bytes:
        """Return what the stream has next; empty at its end.

        A thread would not do: it could not be interrupted while it waits for a terminal.
        """
        try:
            number = self._stream.fileno()
        except (io.UnsupportedOperation, AttributeError):
            # Not a file: a stream in memory.
            return self._stream.read(CHUNK_BYTES)
        loop = asyncio.get_running_loop()
        readable = loop.create_future()

        def has_input() -> None:
            if not readable.done():
                readable.set_result(None)

        try:
            loop.add_reader(number, has_input)
        except PermissionError:
            # A regular file. It can always be read, and the system cannot watch it.
            return os.read(number, CHUNK_BYTES)
        try:
            await readable
        finally:
            loop.remove_reader(number)
        return os.read(number, CHUNK_BYTES)
