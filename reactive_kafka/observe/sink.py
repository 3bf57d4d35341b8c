"""A log handler that never waits for the reader of a process's log lines."""

from __future__ import annotations

import io
import logging
import os
import select
import threading
import time
from contextlib import suppress
from math import inf
from typing import TextIO

MOST_HELD = 1 << 20
"""Bytes of lines that wait for the reader. Lines beyond that are dropped and counted.

A longer line is held if no other one is.
"""
WRITE_SIZE = getattr(select, "PIPE_BUF", 512)
"""Bytes that a pipe takes without blocking if poll() reports it as writable."""
POLL_INTERVAL_S = 0.1
# How long the end of a process waits for the reader.
FLUSH_TIMEOUT_S = 1.0


class Sink(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, and holds back what its reader does not take.

    Otherwise a full pipe would block the event loop. While lines are held, a thread writes them as
    the reader takes them. A stream without a file descriptor is written to directly.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._held = bytearray()
        self._dropped = 0
        # The thread that writes held lines is running.
        self._has_writer = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or hold it back."""
        descriptor = self._descriptor()
        if descriptor is None:
            super().emit(record)
            return
        try:
            self._hold(record)
            self._write_held(descriptor)
            if self._held and not self._has_writer:
                self._has_writer = True
                threading.Thread(
                    target=self._write_until_empty, name="log lines held back", daemon=True
                ).start()
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait a moment for the reader of held lines, because the process may be about to end."""
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        with suppress(OSError):
            while self._held:
                descriptor = self._descriptor()
                if descriptor is None or time.monotonic() >= deadline:
                    break
                self.acquire()
                try:
                    self._write_held(descriptor, POLL_INTERVAL_S, deadline)
                finally:
                    self.release()
        super().flush()

    def _descriptor(self) -> int | None:
        if not isinstance(self.stream, io.TextIOWrapper) or not hasattr(select, "poll"):
            # Something else has been put in place of the stream, to see each line.
            return None
        try:
            return self.stream.fileno()
        except (OSError, ValueError):
            # The stream is in memory, or closed.
            return None

    def _hold(self, record: logging.LogRecord) -> None:
        line = self._encoded(record)
        if self._held and len(self._held) + len(line) > MOST_HELD:
            self._dropped += 1
            return
        self._hold_report_of_dropped()
        self._held += line

    def _hold_report_of_dropped(self) -> None:
        if self._dropped:
            text = "%d log lines were dropped: they were not read"
            if self._dropped == 1:
                text = "%d log line was dropped: it was not read"
            report = logging.LogRecord(
                "reactive_kafka", logging.WARNING, __file__, 0, text, (self._dropped,), None
            )
            self._dropped = 0
            self._held += self._encoded(report)

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + self.terminator).encode(
            self.stream.encoding or "utf-8", "backslashreplace"
        )

    def _write_held(self, descriptor: int, wait_s: float = 0.0, deadline: float = inf) -> None:
        """Write held lines while the reader takes them. Without a reader they are dropped.

        Args:
            wait_s: How long the reader may take for each piece.
            deadline: When to stop, by the monotonic clock: a slow reader takes piece after piece.
        """
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        while self._held and time.monotonic() < deadline and poll.poll(wait_s * 1000):
            try:
                written = os.write(descriptor, self._held[:WRITE_SIZE])
            except BlockingIOError:
                return
            except OSError:
                self._held.clear()
                raise
            del self._held[:written]
            if not self._held:
                self._hold_report_of_dropped()

    def _write_until_empty(self) -> None:
        """Write held lines as the reader takes them, until none is left."""
        while True:
            time.sleep(POLL_INTERVAL_S)
            self.acquire()
            try:
                descriptor = self._descriptor()
                if descriptor is not None:
                    self._write_held(descriptor)
                if not self._held or descriptor is None:
                    self._has_writer = False
                    return
            except OSError:
                # The reader has closed its end.
                self._has_writer = False
                return
            finally:
                self.release()
