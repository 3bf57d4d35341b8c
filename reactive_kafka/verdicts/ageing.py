"""Records do not age while their handler waits for us: for a write, for room, for a store or for a
registry.

The age of a record is the time that its handler or the application has it. A record that waits for
a broker would otherwise become poison in each outage that is longer than
``unprocessed_record_max_age``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol

from reactive_kafka.tracking.tracker import OffsetTracker

Held = tuple[OffsetTracker, Sequence[int]]
"""Records of one partition, by arrival number."""


class Holder(Protocol):
    """Who has records: the worker of a handler, or an application that iterates over a channel."""

    def held(self, *, briefly: bool) -> Iterable[Held]:
        """The records that do not age while the code in this context waits, by partition.

        Args:
            briefly: The wait is over already, and was short: only what the caller itself has.
        """


class Origin:
    """A record of which a handler has made values that other handlers of the application get, in
    memory channels.

    While its own handler runs it ages as any record does. After that it ages while one of those
    handlers has a value.

    Args:
        tracker: The tracker of its partition.
        index: Its arrival number there.
    """

    __slots__ = ("_at_handlers", "_index", "_is_handler_done", "_stands", "_tracker", "values")

    def __init__(self, tracker: OffsetTracker, index: int) -> None:
        self._tracker = tracker
        self._index = index
        self._at_handlers = 0
        self._is_handler_done = False
        self._stands = False
        # How many values that were made of it have no verdict.
        self.values = 0

    @property
    def place(self) -> tuple[OffsetTracker, int]:
        """Its tracker, and its arrival number there."""
        return self._tracker, self._index

    def begin(self, now: float) -> None:
        """A handler gets one of its values."""
        self._at_handlers += 1
        self._look(now)

    def end(self, now: float) -> None:
        """That handler has returned, or has raised."""
        self._at_handlers -= 1
        self._look(now)

    def handler_done(self, now: float) -> None:
        """Its own handler has returned."""
        self._is_handler_done = True
        self._look(now)

    def handler_back(self, now: float) -> None:
        """Its own handler, or the next one that it is for, has the record again."""
        self._is_handler_done = False
        self._look(now)

    def _look(self, now: float) -> None:
        stands = self._is_handler_done and not self._at_handlers
        if stands == self._stands:
            return
        self._stands = stands
        if stands:
            self._tracker.stop_clock((self._index,), now)
        else:
            self._tracker.start_clock((self._index,), now)


HOLDER: ContextVar[Holder | None] = ContextVar("reactive_kafka holder", default=None)

NOTICED_S = 0.05
"""A wait that is longer stops the clocks while it lasts. A shorter one is taken off when it
ends.
"""


class not_ageing:
    """A context manager: the records that its caller has do not age while the block runs.

    It may be entered inside of another one, and by several tasks of a handler at once. Outside of
    handlers it does nothing. It is for the loop of the application only.
    """

    __slots__ = ("_holder", "_loop", "_since", "_stopped", "_timer")

    def __enter__(self) -> None:
        self._holder = HOLDER.get()
        if self._holder is None:
            return
        self._loop = asyncio.get_running_loop()
        # The loop's time is the monotonic time of the application's clock.
        self._since = self._loop.time()
        self._stopped: list[Held] | None = None
        self._timer = self._loop.call_later(NOTICED_S, self._stop)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._holder is None:
            return
        self._timer.cancel()
        now = self._loop.time()
        if self._stopped is None and now > self._since:
            self._stop(briefly=True)
        for tracker, indexes in self._stopped or ():
            tracker.start_clock(indexes, now)

    def _stop(self, *, briefly: bool = False) -> None:
        # For the type checker.
        assert self._holder is not None  # noqa: S101
        self._stopped = list(self._holder.held(briefly=briefly))
        for tracker, indexes in self._stopped:
            tracker.stop_clock(indexes, self._since)
