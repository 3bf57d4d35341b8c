"""Where a process writes its log lines: nobody waits there for whoever reads them."""

from __future__ import annotations

import io
import logging
import os
import select
import threading
import time
from contextlib import suppress
from typing import TextIO

MOST_HELD = 1 << 20
"""Bytes of lines that wait for a reader; what comes on top is dropped, and counted."""
PIECE = getattr(select, "PIPE_BUF", 512)
"""Bytes that a pipe takes at once where it says that it takes some."""
LOOK_S = 0.1
# How long the end of a process waits for its reader.
CLOSING_S = 1.0


class Sink(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, and holds back what its reader does not take: a full pipe would
    stop the event loop.

    While some are held, a thread looks for the reader. A stream that is no file of the system is
    written to as ever.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._held = bytearray()
        self._dropped = 0
        self._is_watched = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or hold it back."""
        descriptor = self._descriptor()
        if descriptor is None:
            super().emit(record)
            return
        try:
            self._take(record)
            self._pour(descriptor)
            if self._held and not self._is_watched:
                self._is_watched = True
                threading.Thread(
                    target=self._watch, name="log lines held back", daemon=True
                ).start()
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Give the reader a moment for what is held: this may be the end of the process."""
        give_up = time.monotonic() + CLOSING_S
        with suppress(OSError):
            while (
                self._held
                and (descriptor := self._descriptor()) is not None
                and time.monotonic() < give_up
            ):
                self.acquire()
                try:
                    self._pour(descriptor, LOOK_S)
                finally:
                    self.release()
        super().flush()

    def _descriptor(self) -> int | None:
        if not isinstance(self.stream, io.TextIOWrapper) or not hasattr(select, "poll"):
            # What somebody has put in its place has to see each line.
            return None
        try:
            return self.stream.fileno()
        except (OSError, ValueError):
            # Text in memory, or closed.
            return None

    def _take(self, record: logging.LogRecord) -> None:
        line = self._encoded(record)
        if len(self._held) + len(line) > MOST_HELD:
            self._dropped += 1
            return
        self._tell_dropped()
        self._held += line

    def _tell_dropped(self) -> None:
        if self._dropped:
            text = "%d log lines were dropped: nobody read them"
            told = logging.LogRecord(
                "reactive_kafka", logging.WARNING, __file__, 0, text, (self._dropped,), None
            )
            self._dropped = 0
            self._held += self._encoded(told)

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + self.terminator).encode(
            self.stream.encoding or "utf-8", "backslashreplace"
        )

    def _pour(self, descriptor: int, wait_s: float = 0.0) -> None:
        """Write what the reader takes by now; what can be written to nobody is given up."""
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        while self._held and poll.poll(wait_s * 1000):
            try:
                written = os.write(descriptor, self._held[:PIECE])
            except BlockingIOError:
                return
            except OSError:
                self._held.clear()
                raise
            del self._held[:written]
            if not self._held:
                self._tell_dropped()

    def _watch(self) -> None:
        """Write what is held as the reader takes it, until nothing is."""
        while True:
            time.sleep(LOOK_S)
            self.acquire()
            try:
                descriptor = self._descriptor()
                if descriptor is not None:
                    self._pour(descriptor)
                if not self._held or descriptor is None:
                    self._is_watched = False
                    return
            except OSError:
                # The reader has gone.
                self._is_watched = False
                return
            finally:
                self.release()
