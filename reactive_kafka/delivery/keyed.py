"""The queued records of one partition, of which no two of the same key run at once. No I/O, no
clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Protocol

from reactive_kafka.delivery.lane import UNKEYED, KeyOf, Lane
from reactive_kafka.delivery.states import OPEN
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker


class Untold:
    """The key of a record whose key cannot be told, and why: like no other, so the record stands
    alone.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Sole(Protocol):
    """A worker that has a lane to itself, and reads a piece of it."""

    key: Hashable
    index: int
    record: RawRecord | None
    piece: Sequence[RawRecord]
    first: int


class KeyedLane(Lane):
    """The queued records of one partition, of which no two of the same key run at once.

    A key is *busy* while one of its records runs. Records that workers find behind that wait with
    their key. When the key is *freed*, its next record goes before all that arrived later than
    those.

    A worker that is alone in the lane takes one record after the other: the order of arrival is
    that of each key. Only when another one looks for work, while a handler waits, does it matter
    which key the first one has.
    """

    __slots__ = ("_is_total", "busy", "freed", "in_keys", "key_of", "sole")

    def __init__(self, tracker: OffsetTracker, key_of: KeyOf, *, is_total: bool = False) -> None:
        super().__init__(tracker)
        tracker.in_order = False
        # Every record has a key: ``key_of`` raises nothing, nor do its keys.
        self._is_total = is_total
        # What a function of users sets in its context is not for handlers to see.
        self.key_of: KeyOf = key_of if is_total else partial(copy_context().run, key_of)  # type: ignore[call-arg]
        # Key -> what waits with it; workers write.
        self.busy: dict[Hashable, deque[tuple[int, RawRecord]] | None] = {}
        # Keys of which none runs, though some wait.
        self.freed: deque[Hashable] = deque()
        # Records that wait with their keys.
        self.in_keys = 0
        # The worker that has it to itself.
        self.sole: Sole | None = None

    def begin_alone(self, worker: Sole) -> bool:
        """Give the lane to a worker alone, which takes records in their order; False if keys
        matter.
        """
        if not self._is_total or self.workers > 1 or self.busy:
            return False
        self.sole = worker
        self.reading = None
        return True

    def add(self, records: Sequence[RawRecord], first: int, now: float) -> None:
        """As of any lane; who had it to itself has its record in a piece that may be replaced by
        that.
        """
        if self.sole is not None and self.cursor >= len(self.records):
            self.cut()
        super().add(records, first, now)

    def cut(self) -> None:
        """As of any lane; of a worker that had it to itself the key is busy from here on."""
        sole = self.sole
        self.sole = None
        if sole is not None:
            self.tracker.catch_up()
            sole.index = self.taken
            sole.record = sole.piece[self.taken - sole.first]
            sole.key = self.key_of(sole.record)
            self.busy[sole.key] = None
        super().cut()

    def leave(self) -> None:
        super().leave()
        if not self.workers:
            self.sole = None

    @property
    def on_offer(self) -> int:
        return super().waiting + len(self.freed)

    @property
    def waiting(self) -> int:
        return super().waiting + self.in_keys

    def find(self) -> bool:
        """Whether a record may run; those in front of it whose keys are busy are put behind
        these.
        """
        if self.sole is not None:
            self.cut()
        if self.freed and self.state is OPEN:
            return True
        if not self.busy:
            return self.advance()
        found = self.next_record()
        if found is None:
            return False
        key, index, record = found
        self.put_back(record, index, key)
        self.freed.appendleft(key)
        return True

    def next_record(self) -> tuple[Hashable, int, RawRecord] | None:
        """Take the next record that may run: its key, which is busy from here on, and its arrival
        number with it.
        """
        busy = self.busy
        key_of = self.key_of
        if self.freed and self.state is OPEN:
            key = self.freed.popleft()
            queue = busy[key]
            # For the type checker.
            assert queue is not None  # noqa: S101
            self.in_keys -= 1
            return key, *queue.popleft()
        while self.advance():
            for index, record in self.read():
                self.taken = index
                try:
                    key = key_of(record)
                    if key in busy:
                        self._wait(key, index, record)
                        continue
                    busy[key] = None
                except BaseException as error:
                    # The function and its keys are the application's.
                    key = Untold(error)
                    busy[key] = None
                return key, index, record
        return None

    def _wait(self, key: Hashable, index: int, record: RawRecord) -> None:
        queue = self.busy[key]
        if queue is None:
            queue = self.busy[key] = deque()
        queue.append((index, record))
        self.in_keys += 1

    def free(self, key: Hashable) -> None:
        """No record of a key runs any more."""
        queue = self.busy.pop(key, None)
        if queue:
            self.busy[key] = queue
            self.freed.append(key)

    def put_back(self, record: RawRecord, index: int, key: Hashable = UNKEYED) -> None:
        """Return a record: the next of its key, once that is freed; with ``UNKEYED`` the next of
        all.
        """
        if key is UNKEYED:
            super().put_back(record, index)
            return
        queue = self.busy.get(key)
        if queue is None:
            queue = self.busy[key] = deque()
        queue.appendleft((index, record))
        self.in_keys += 1

    def clear(self) -> None:
        super().clear()
        self.sole = None
        self.busy.clear()
        self.freed.clear()
        self.in_keys = 0
