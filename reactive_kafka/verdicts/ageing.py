"""Stops the clocks of records while their handler waits for us: for a write, a store, a registry.

The age of a record is the time that its handler or the application has it. If waits for a broker
counted, records would become poison in each outage that is longer than
``unprocessed_record_max_age``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from types import TracebackType
from typing import Protocol

from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.attempt_time import ATTEMPT
from reactive_kafka.verdicts.delivery import Delivery

Held = tuple[OffsetTracker, Sequence[int]]
"""Records of one partition, by arrival number."""


class Holder(Protocol):
    """Who has records: the worker of a handler, or an application that iterates over a channel."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the application."""

    def held(self, *, briefly: bool) -> Iterable[Held]:
        """Return the records that do not age while the code in this context waits.

        Args:
            briefly: The wait is over already, and was short: only the caller's own records.
        """

    def wait_begins(self, now: float) -> int:
        """Leave the time from now on out of the duration of the call around this.

        Returns:
            What :meth:`wait_ends` takes.
        """

    def wait_ends(self, number: int, now: float) -> None:
        """Note the end of a wait."""

    def waited_s(self) -> float:
        """Return how long calls of this holder have waited for us so far."""


HOLDER: ContextVar[Holder | None] = ContextVar("reactive_kafka holder", default=None)

NOTICED_S = 0.05
"""A wait that is longer stops the clocks while it lasts. A shorter one is subtracted at its end, so
that most waits need no second look at the records.
"""


class not_ageing:
    """A context manager: the records that its caller has do not age while the block runs.

    The time counts neither for ``attempt_timeout`` nor in the duration of the call. Blocks may be
    nested, and several tasks of a handler may be in one at once. Outside of handlers it does
    nothing. It is for the loop of the application only.
    """

    __slots__ = ("_attempt", "_holder", "_loop", "_since", "_stopped", "_timer", "_wait")

    def __enter__(self) -> None:
        self._holder = HOLDER.get()
        if self._holder is None:
            return
        self._loop = asyncio.get_running_loop()
        # The loop's time is the monotonic time of the application's clock.
        self._since = self._loop.time()
        self._wait = self._holder.wait_begins(self._since)
        self._attempt = ATTEMPT.get()
        if self._attempt is not None:
            self._attempt.wait_begins(self._since)
        # The records whose clocks were stopped; None: none yet.
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
        self._holder.wait_ends(self._wait, now)
        if self._attempt is not None:
            self._attempt.wait_ends(now)
        if self._stopped is None and now > self._since:
            self._stop(briefly=True)
        for tracker, indexes in self._stopped or ():
            tracker.start_clock(indexes, now)

    def _stop(self, *, briefly: bool = False) -> None:
        # For the type checker.
        assert self._holder is not None  # noqa: S101
        self._stopped = list(self._holder.held(briefly=briefly))
        for tracker, indexes in self._stopped:
            # As of the beginning of the wait, also if the timer came later.
            tracker.stop_clock(indexes, self._since)


@contextmanager
def not_ageing_in_thread() -> Iterator[None]:
    """Stop the clocks of a handler's records while this block runs in another thread.

    A blocking handler runs in such a thread. Outside of handlers it does nothing.
    """
    holder = HOLDER.get()
    if holder is None:
        yield
        return
    wait = not_ageing()
    context = copy_context()
    # The loop is closed if one of these raises: the application has stopped.
    with suppress(RuntimeError):
        holder.loop.call_soon_threadsafe(wait.__enter__, context=context)
    try:
        yield
    finally:
        end = partial(wait.__exit__, None, None, None)
        with suppress(RuntimeError):
            holder.loop.call_soon_threadsafe(end, context=context)


@contextmanager
def not_working() -> Iterator[None]:
    """Leave the time of this block out of the duration of the handler's call.

    Its records may age meanwhile: another handler may have what was made of them.
    """
    holder = HOLDER.get()
    if holder is None:
        yield
        return
    time = asyncio.get_running_loop().time
    wait = holder.wait_begins(time())
    try:
        yield
    finally:
        holder.wait_ends(wait, time())


@contextmanager
def clock_stopped(messages: Sequence[Delivery], monotonic: Callable[[], float]) -> Iterator[None]:
    """Have these records not age meanwhile. Blocks may be nested."""
    since = monotonic()
    for message in messages:
        message.tracker.stop_clock((message.index,), since)
    try:
        yield
    finally:
        now = monotonic()
        for message in messages:
            message.tracker.start_clock((message.index,), now)
