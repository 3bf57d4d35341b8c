"""Which lines the broker has confirmed, and which it has refused."""

from __future__ import annotations

import asyncio

from reactive_kafka.broker.client import Written
from reactive_kafka.cli.console_text import counted
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.tasks import Flag

MOST_RECORDS = 10_000
MOST_BYTES = 32 * 2**20
"""The most records, and their bytes, that are sent and not confirmed. This bounds the memory."""
MOST_NAMED = 10


class Confirmations:
    """Counts the answers to the records that were sent, by the numbers of their lines.

    Attributes:
        lines: The number of the last line that was read.
        confirmed: How many records the broker has confirmed.
        failed: Line -> why its record was refused, or is not confirmed.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.confirmed = 0
        self.failed: dict[int, str] = {}
        self._bytes = 0
        self._sent: dict[int, asyncio.Future[Written]] = {}
        self._changed = Flag()

    @property
    def in_flight(self) -> int:
        """How many records have no answer yet."""
        return len(self._sent)

    def sent(self, line: int, size: int, answer: asyncio.Future[Written]) -> None:
        """Note that the record of a line was handed to the client."""
        self._bytes += size
        self._sent[line] = answer

        def settle(done: asyncio.Future[Written]) -> None:
            self._bytes -= size
            del self._sent[line]
            self._changed.set()
            if done.cancelled():
                self.refused(line, "it was cancelled and may have been written all the same")
            elif (error := done.exception()) is not None:
                self.refused(line, str(error))
            else:
                self.confirmed += 1

        answer.add_done_callback(settle)

    def refused(self, line: int, why: str) -> None:
        """Note that the record of a line was not written."""
        self.failed[line] = why
        self._changed.set()

    async def room(self) -> None:
        """Wait until another record may be sent, or one has failed."""
        while not self.failed and (len(self._sent) >= MOST_RECORDS or self._bytes >= MOST_BYTES):
            await self._change()

    async def failure(self) -> None:
        """Wait until a record has failed."""
        while not self.failed:
            await self._change()

    async def all_answered(self) -> None:
        """Wait until the broker has answered for each record."""
        while self._sent:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def report(self, topic: str) -> str:
        """Return what has happened to the lines, as text."""
        text = f"{counted(self.confirmed, 'record')} written to {topic}"
        if self._sent:
            text += (
                f"; {counted(len(self._sent), 'record')} not confirmed, which may have been "
                f"written all the same: from line {min(self._sent)} on"
            )
        if not self.failed:
            return text
        named = sorted(self.failed)[:MOST_NAMED]
        lines = [f"line {line}: {one_line(self.failed[line])}" for line in named]
        more = len(self.failed) - len(named)
        if more:
            lines.append(f"and {counted(more, 'more line')}, up to line {max(self.failed)}")
        if self.confirmed:
            text += f", all other lines up to {self.lines}"
        return "\n".join([*lines, f"{text}; nothing after line {self.lines} was sent"])
