"""The records that values in memory channels were made of, and when these records age."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.ageing import Held


class ValueWatcher(Protocol):
    """A memory channel that has values which were made of a record."""

    def values_called_off(self) -> None:
        """Values are not wanted any more: a record that they were made of was called off."""

    def partition_gone(self) -> None:
        """Values were made of records whose partition is not ours any more."""


class ValueOrigin:
    """A record of which a handler has made values for other handlers, in memory channels.

    While its own handler runs it ages as any record does. After that it ages while one of those
    handlers has a value.

    Attributes:
        values: How many values that were made of it have no verdict.
        watchers: The memory channels that have one of these values.
        is_called_off: It is poison, or was skipped: no handler is to have its values any more.

    Args:
        tracker: The tracker of its partition.
        index: Its arrival number there.
    """

    __slots__ = (
        "_at_handlers",
        "_clock_stands",
        "_index",
        "_is_handler_done",
        "_tracker",
        "is_called_off",
        "values",
        "watchers",
    )

    def __init__(self, tracker: OffsetTracker, index: int) -> None:
        self._tracker = tracker
        self._index = index
        # How many handlers have one of its values.
        self._at_handlers = 0
        self._is_handler_done = False
        self._clock_stands = False
        self.values = 0
        self.watchers: set[ValueWatcher] = set()
        self.is_called_off = False

    @property
    def place(self) -> tuple[OffsetTracker, int]:
        """Its tracker, and its arrival number there."""
        return self._tracker, self._index

    @property
    def is_gone(self) -> bool:
        """Whether it is called off, or its partition is not ours any more."""
        return self.is_called_off or self._tracker.is_closed

    def call_off(self) -> None:
        """Have the handlers cancelled that have only values of it and of other such records."""
        self.is_called_off = True
        for watcher in tuple(self.watchers):
            watcher.values_called_off()

    def begin(self, now: float) -> None:
        """A handler gets one of its values."""
        self._at_handlers += 1
        self._update_clock(now)

    def end(self, now: float) -> None:
        """That handler has returned, or has raised."""
        self._at_handlers -= 1
        self._update_clock(now)

    def handler_done(self, now: float) -> None:
        """Its own handler has returned."""
        self._is_handler_done = True
        self._update_clock(now)

    def handler_back(self, now: float) -> None:
        """Its own handler, or the next one that it is for, has the record again."""
        self._is_handler_done = False
        self._update_clock(now)

    def _update_clock(self, now: float) -> None:
        stands = self._is_handler_done and not self._at_handlers
        if stands == self._clock_stands:
            return
        self._clock_stands = stands
        if stands:
            self._tracker.stop_clock((self._index,), now)
        else:
            self._tracker.start_clock((self._index,), now)


def origins_of(held: Iterable[Held]) -> list[ValueOrigin]:
    """Return the origins of a value that is made of these records."""
    found: list[ValueOrigin] = []
    for tracker, indexes in held:
        known = verdicts_of(tracker).origins
        for index in indexes:
            origin = known.get(index)
            if origin is None:
                origin = ValueOrigin(tracker, index)
                known[index] = origin
            found.append(origin)
    return found


def call_off_values(tracker: OffsetTracker, index: int) -> None:
    """Call the values off that were made of a record, because it gets its verdict without them."""
    origin = verdicts_of(tracker).origins.get(index)
    if origin is not None:
        origin.call_off()


def value_settled(origin: ValueOrigin) -> None:
    """One of the values that were made of a record has its verdict."""
    origin.values -= 1
    if origin.values == 0:
        tracker, index = origin.place
        verdicts_of(tracker).origins.pop(index, None)


def handler_done(held: Iterable[Held], now: float) -> None:
    """The handler of these records has returned, and its outputs are still on their way.

    A record that values were made of ages while another handler has one of them; the others never
    age again.
    """
    for tracker, indexes in held:
        known = verdicts_of(tracker).origins
        for index in indexes:
            origin = known.get(index)
            if origin is None:
                tracker.hand_over(index)
            else:
                origin.handler_done(now)


@contextmanager
def with_other_handlers(held: Iterable[Held], time: Callable[[], float]) -> Iterator[None]:
    """Enter while the handler of these records waits for values that it has made.

    A record that values were made of ages while another handler has one of them; the others do not
    age in the block.

    Args:
        time: The monotonic clock, in seconds.
    """
    now = time()
    origins: list[ValueOrigin] = []
    without_values: list[tuple[OffsetTracker, int]] = []
    for tracker, indexes in held:
        known = verdicts_of(tracker).origins
        for index in indexes:
            if index in known:
                origins.append(known[index])
            else:
                without_values.append((tracker, index))
    for origin in origins:
        origin.handler_done(now)
    for tracker, index in without_values:
        tracker.stop_clock((index,), now)
    try:
        yield
    finally:
        now = time()
        for origin in origins:
            origin.handler_back(now)
        for tracker, index in without_values:
            tracker.start_clock((index,), now)
