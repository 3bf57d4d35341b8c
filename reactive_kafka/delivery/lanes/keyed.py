"""A lane in which records of different keys may run at once. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextvars import copy_context
from functools import partial
from typing import Protocol

from reactive_kafka.delivery.lanes.lane import UNKEYED, KeyOf, Lane
from reactive_kafka.delivery.lanes.lane_states import OPEN
from reactive_kafka.records import RawRecord
from reactive_kafka.tracking.tracker import OffsetTracker


class UnknownKey:
    """The key of a record whose key function failed, with the reason.

    It is equal to no other key, so such a record waits for none and holds back none.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class SoleWorker(Protocol):
    """A worker that has a lane to itself, with the record that its handler has."""

    key: Hashable
    record: RawRecord | None


class KeyedLane(Lane):
    """The queued records of one partition, of which no two of the same key run at once.

    A key is *busy* while one of its records runs. A record whose key is busy waits with that key
    when a worker finds it. When the key is *freed*, its next record goes before all records that
    arrived later.

    A worker that is alone in the lane takes records in their order of arrival, which is also the
    order of each key. The keys need not be known then. Only when a second worker looks for work
    does it matter which key the first one has: see :meth:`cut`.
    """

    __slots__ = ("_is_total", "busy", "freed", "in_keys", "key_of", "sole")

    def __init__(self, tracker: OffsetTracker, key_of: KeyOf, *, is_total: bool = False) -> None:
        super().__init__(tracker)
        tracker.in_order = False
        # Every record has a key: neither ``key_of`` nor its keys raise anything. That is so where
        # only headers and keys are read, and no function of users.
        self._is_total = is_total
        # A function of users runs in a context of its own: handlers must not see what it sets.
        if not is_total:
            key_of = partial(copy_context().run, key_of)  # type: ignore[call-arg]
        self.key_of: KeyOf = key_of
        # Busy key -> the records that wait with it; None: no record has waited yet. Workers write.
        self.busy: dict[Hashable, deque[tuple[int, RawRecord]] | None] = {}
        # Keys of which no record runs, though some wait.
        self.freed: deque[Hashable] = deque()
        # How many records wait with their keys.
        self.in_keys = 0
        # The worker that has the lane to itself.
        self.sole: SoleWorker | None = None

    def begin_alone(self, worker: SoleWorker) -> bool:
        """Give the lane to one worker, which takes records in order; False if keys matter."""
        if not self._is_total or self.workers > 1 or self.busy:
            return False
        self.sole = worker
        self.reading = None
        return True

    def cut(self) -> None:
        """As in every lane. The key of a worker that was alone is busy from here on."""
        sole = self.sole
        self.sole = None
        if sole is not None and sole.record is not None:
            self.tracker.catch_up()
            sole.key = self.key_of(sole.record)
            self.busy[sole.key] = None
        super().cut()

    def leave(self) -> None:
        """As in every lane. The last worker that leaves is not alone in it any more."""
        super().leave()
        if not self.workers:
            self.sole = None

    @property
    def on_offer(self) -> int:
        """How many records a worker may find when it looks; some may have keys that are busy."""
        return super().waiting + len(self.freed)

    @property
    def waiting(self) -> int:
        """How many records no worker has taken, those that wait with their keys included."""
        return super().waiting + self.in_keys

    def find(self) -> bool:
        """Return whether a record may run; put records aside on the way whose keys are busy."""
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
        """Take the next record that may run: its key, its arrival number and itself.

        The key is busy from here on, until :meth:`free`.
        """
        busy = self.busy
        key_of = self.key_of
        if self.freed and self.state is OPEN:
            key = self.freed.popleft()
            queue = busy[key]
            # For the type checker.
            assert queue is not None  # noqa: S101
            self.in_keys -= 1
            index, record = queue.popleft()
            return key, index, record
        while self.advance():
            for index, record in self.read():
                self.taken = index
                # The function and the keys are the application's: anything may be raised by a call,
                # a hash or a comparison.
                try:
                    key = key_of(record)
                    if key in busy:
                        self._wait(key, index, record)
                        continue
                    busy[key] = None
                except BaseException as error:
                    key = UnknownKey(error)
                    busy[key] = None
                return key, index, record
        return None

    def _wait(self, key: Hashable, index: int, record: RawRecord) -> None:
        self._queue_of(key).append((index, record))
        self.in_keys += 1

    def _queue_of(self, key: Hashable) -> deque[tuple[int, RawRecord]]:
        """Return the records that wait with a key, which is busy by this."""
        queue = self.busy.get(key)
        if queue is None:
            queue = deque()
            self.busy[key] = queue
        return queue

    def free(self, key: Hashable) -> None:
        """Note that no record of a key runs any more: the next one that waits with it may run."""
        queue = self.busy.pop(key, None)
        if queue:
            self.busy[key] = queue
            self.freed.append(key)

    def put_back(self, record: RawRecord, index: int, key: Hashable = UNKEYED) -> None:
        """Return a record. It comes next of its key, or with ``UNKEYED`` next of all records."""
        if key is UNKEYED:
            super().put_back(record, index)
            return
        self._queue_of(key).appendleft((index, record))
        self.in_keys += 1

    def remove(self, index: int) -> RawRecord | None:
        """As in every lane; the record may also wait with its key."""
        for key, queue in self.busy.items():
            for place, (waiting, record) in enumerate(queue or ()):
                if waiting == index:
                    self._remove_from_key(key, place)
                    return record
        return super().remove(index)

    def _remove_from_key(self, key: Hashable, place: int) -> None:
        queue = self.busy[key]
        # For the type checker.
        assert queue is not None  # noqa: S101
        del queue[place]
        self.in_keys -= 1
        if not queue and key in self.freed:
            # No record of the key runs, and none waits any more.
            self.freed.remove(key)
            del self.busy[key]

    def clear(self) -> None:
        """As in every lane; also forget which keys are busy."""
        super().clear()
        self.sole = None
        self.busy.clear()
        self.freed.clear()
        self.in_keys = 0
