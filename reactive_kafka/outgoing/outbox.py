"""What waits to be written, by partition and in its order, and who is told what became of it. No
I/O, no clock.

A partition has one batch on its way at a time, and what fails is tried again before anything behind
it: so the records of a key keep their order, whatever the broker does. While a batch is on its way
the next one gathers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from reactive_kafka.errors import EncodeError, RejectedRecordError
from reactive_kafka.outgoing.waiting import Waiting
from reactive_kafka.records import RecordBytes, TopicPartition

MOST_RECORDS = 5_000
"""Most records of a batch: what the client finds too many for one it leaves to the next."""
MOST_KEYS = 10_000
"""Of so many keys of a topic the partition is remembered: to hash one costs as much as all the rest
of its way.
"""

Partitioner = Callable[[bytes | None, int], int]
"""The user's choice of a partition: from a key and how many partitions there are."""


class Outbound(NamedTuple):
    """A record in bytes, and where it is to be written."""

    topic: str
    record: RecordBytes
    # None: by its key, or any.
    partition: int | None = None


class Receipt:
    """Told once: that the broker has all of *records* records, or why it does not have one of them.

    Once it was told, or is void because nobody waits for it any more, nothing of it that waits will
    be written.
    """

    __slots__ = ("_left", "at", "is_over", "offset")

    def __init__(self, records: int = 1) -> None:
        self._left = records
        self.is_over = False
        # Where the record that was written last stands.
        self.at: TopicPartition | None = None
        self.offset = -1

    def told(self, error: BaseException | None) -> None:
        """What became of the records; called once."""
        raise NotImplementedError

    def expect(self) -> None:
        """One more record belongs to it."""
        self._left += 1

    def written(self, at: TopicPartition, offset: int) -> None:
        """The broker has one of its records."""
        self._left -= 1
        if not self._left and not self.is_over:
            self.at = at
            self.offset = offset
            self.is_over = True
            self.told(None)

    def fail(self, error: BaseException) -> None:
        """One of its records will not be written."""
        if not self.is_over:
            self.is_over = True
            self.told(error)

    def void(self) -> None:
        """Nobody waits for it any more."""
        self.is_over = True


class Gathering(Receipt):
    """The receipt of records that come one by one, until it is sealed; it calls *then*."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[BaseException | None], None]) -> None:
        # The seal counts as one.
        super().__init__()
        self._then = then

    def told(self, error: BaseException | None) -> None:
        self._then(error)

    def seal(self) -> None:
        """No more records will come."""
        self._left -= 1
        if not self._left and not self.is_over:
            self.is_over = True
            self._then(None)


class _Part(Waiting):
    """A record that has its receipt together with others."""

    __slots__ = ("receipt",)

    receipt: Receipt

    @property
    def is_over(self) -> bool:
        return self.receipt.is_over

    def written(self, at: TopicPartition, offset: int) -> None:
        self.receipt.written(at, offset)

    def fail(self, error: BaseException) -> None:
        self.receipt.fail(error)


def part_of(outbound: Outbound, receipt: Receipt) -> Waiting:
    """A record that is told of to a receipt, which expects it already."""
    part = _Part()
    part.value, part.key, part.headers, part.timestamp_ms = outbound.record
    part.receipt = receipt
    return part


class Line:
    """The records for one partition, in their order."""

    __slots__ = ("_alone", "_outbox", "_topic", "_writing", "is_worked", "to", "waiting")

    def __init__(self, to: TopicPartition, topic: _Topic, outbox: Outbox) -> None:
        self.to = to
        # Somebody writes what stands here, until nothing does.
        self.is_worked = False
        self.waiting: deque[Waiting] = deque()
        self._topic = topic
        self._outbox = outbox
        self._writing: list[Waiting] = []
        # So many records are written one by one: a batch with them was refused.
        self._alone = 0

    def batch(self) -> list[Waiting]:
        """What is to be written next, what was taken before and is not settled first. Empty:
        nothing waits.
        """
        topic = self._topic
        # What has no key goes to the next partition from now on.
        if topic.turn == self.to.partition:
            topic.turn = topic.turn + 1 if topic.turn + 1 < len(topic.lines) else 0
        before = len(self._writing)
        waiting = self.waiting
        writing = [one for one in self._writing if not one.is_over]
        dropped = before - len(writing)
        most = 1 if self._alone else MOST_RECORDS
        while waiting and len(writing) < most:
            if len(waiting) <= most - len(writing):
                taken = list(waiting)
                waiting.clear()
            else:
                taken = [waiting.popleft() for _ in range(most - len(writing))]
            before = len(writing)
            writing += [one for one in taken if not one.is_over]
            dropped += len(taken) - (len(writing) - before)
        self._writing = writing
        if dropped:
            self._alone = max(0, self._alone - dropped)
            self._outbox.leave(dropped)
        return writing[:most]

    def written(self, offset: int, count: int) -> None:
        """The broker has the first *count* of the batch, from *offset* on; -1: it does not say
        where (``acks = 0``).
        """
        taken = self._writing[:count]
        del self._writing[:count]
        self._alone = max(0, self._alone - count)
        self._outbox.leave(count)
        kinds: set[type[Waiting]] = set(map(type, taken))
        (kinds.pop() if len(kinds) == 1 else Waiting).all_written(taken, self.to, offset)

    def refused(self, error: BaseException) -> bool:
        """The broker refuses what was tried: a record alone fails (True), those of a batch are
        tried one by one.
        """
        if len(self._writing) > 1 and not self._alone:
            self._alone = len(self._writing)
            return False
        one = self._writing.pop(0)
        self._alone = max(0, self._alone - 1)
        self._outbox.leave(1)
        one.fail(error)
        return True

    def left(self) -> Iterator[Waiting]:
        """All that is not written."""
        yield from self._writing
        yield from self.waiting


class _Topic:
    """What is known of a topic, and its lines."""

    __slots__ = ("lines", "of_keys", "turn")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        # Key -> its partition.
        self.of_keys: dict[bytes, int] = {}
        # Where records without a key go: all to one partition until a batch of that is taken, as
        # Java's sticky partitioner does it. Single records in turn to all partitions would make
        # small batches, and a request costs the same for one record as for many.
        self.turn = 0


class Outbox:
    """What one outgoing channel has accepted and the broker has not confirmed: at most *most*
    records.
    """

    def __init__(
        self,
        most: int,
        key_hash: Callable[[bytes], int],
        released: Callable[[], None],
        partitioner: Partitioner | None = None,
        begin: Callable[[Line], None] = lambda line: None,
        *,
        lingers: bool = False,
    ) -> None:
        self._most = most
        self._key_hash = key_hash
        self._partitioner = partitioner
        # Called when records have left.
        self._released = released
        # Called when :meth:`accept` has put something into a line that nobody works on.
        self._begin = begin
        # It is called with each record, which may be the last that is waited for.
        self._lingers = lingers
        self._topics: dict[str, _Topic] = {}
        self._accepts = partitioner is None
        # Those of them that records are accepted for without a thought.
        self._quick: dict[str, _Topic] = {}
        # All that were ever made.
        self._lines: dict[TopicPartition, Line] = {}
        # By topic, whose partitions nobody knows yet.
        self._homeless: dict[str, list[tuple[Waiting, int | None]]] = {}
        self.in_flight = 0

    @property
    def room(self) -> int:
        """How many more records may be accepted; below 0, where some were accepted all the same."""
        return self._most - self.in_flight

    def enter(self) -> None:
        """A record is accepted; it leaves when it is written, refused, or nobody wants it any
        more.
        """
        self.in_flight += 1

    def leave(self, records: int) -> None:
        """So many are settled."""
        self.in_flight -= records
        self._released()

    def add(self, outbound: Outbound, receipt: Receipt) -> Line | None:
        """Put an accepted record of a receipt into its line. Returns as :meth:`place`."""
        return self.place(part_of(outbound, receipt), outbound.topic, outbound.partition)

    def accept(self, waiting: Waiting, name: str) -> bool:
        """Accept a record, and put it into its line, if there is room and all is known; else
        nothing is done.
        """
        # The way of most records, and all of it in one call.
        topic = self._quick.get(name)
        if topic is None or self.in_flight >= self._most:
            return False
        at = topic.turn if waiting.key is None else topic.of_keys.get(waiting.key)
        if at is None:
            return False
        line = topic.lines[at]
        line.waiting.append(waiting)
        self.in_flight += 1
        if self._lingers or not line.is_worked:
            self._begin(line)
        return True

    def accept_no_more(self) -> None:
        """:meth:`accept` does nothing from now on."""
        self._accepts = False
        self._quick.clear()

    def place(self, waiting: Waiting, name: str, partition: int | None = None) -> Line | None:
        """Put an accepted record into its line; None: it waits for :meth:`found`, or could not be
        placed.

        *partition*: where it goes; None: by its key, or to any.
        """
        topic = self._topics.get(name)
        if topic is None:
            self._homeless.setdefault(name, []).append((waiting, partition))
            return None
        try:
            line = topic.lines[self._choose(topic, waiting.key) if partition is None else partition]
        except BaseException as error:
            # The partitioner is the user's, and so is the partition of a Record.
            reason: BaseException = error
            if isinstance(error, IndexError) and partition is not None:
                count = len(topic.lines)
                reason = RejectedRecordError(
                    f"{name}-{partition} does not exist: there are 0 to {count - 1}"
                )
            elif isinstance(error, StopIteration) or not isinstance(error, Exception):
                # No future can hold it, or task.
                reason = EncodeError(f"the partitioner raised {type(error).__name__}")
                reason.__cause__ = error
            self.leave(1)
            waiting.fail(reason)
            return None
        line.waiting.append(waiting)
        return line

    def waits_for(self, topic: str) -> bool:
        """Whether records wait to hear of a topic's partitions."""
        return topic in self._homeless

    def waits(self, topic: str) -> int:
        """How many records wait to hear of a topic's partitions; those that nobody wants any more
        leave.
        """
        waiting = self._homeless.pop(topic, [])
        still = [one for one in waiting if not one[0].is_over]
        if still:
            self._homeless[topic] = still
        if len(still) < len(waiting):
            self.leave(len(waiting) - len(still))
        return len(still)

    def found(self, name: str, partitions: int) -> Iterable[Line]:
        """A topic has so many partitions; the lines of what waited to hear that."""
        topic = self._topics.setdefault(name, _Topic())
        if partitions != len(topic.lines):
            # It was deleted and made anew; what stands there the broker will refuse.
            del topic.lines[partitions:]
            for at in range(len(topic.lines), partitions):
                to = TopicPartition(name, at)
                # There is one where it has come back: two would write at the same time.
                if to not in self._lines:
                    self._lines[to] = Line(to, topic, self)
                topic.lines.append(self._lines[to])
            topic.of_keys.clear()
            topic.turn = topic.turn if topic.turn < partitions else 0
            if partitions and self._accepts:
                self._quick[name] = topic
            else:
                self._quick.pop(name, None)
        lines = [
            self.place(one, name, partition) for one, partition in self._homeless.pop(name, ())
        ]
        return [line for line in lines if line is not None]

    def unknown(self, topic: str, error: BaseException) -> None:
        """Nobody will tell the partitions of a topic: what waits for that fails."""
        waiting = self._homeless.pop(topic, ())
        self.leave(len(waiting))
        for one, _ in waiting:
            one.fail(error)

    def _choose(self, topic: _Topic, key: bytes | None) -> int:
        partitions = len(topic.lines)
        if self._partitioner is not None:
            chosen = self._partitioner(key, partitions)
            if not isinstance(chosen, int) or not 0 <= chosen < partitions:
                raise EncodeError(
                    f"the partitioner chose {chosen!r}, and there are the partitions 0 to {partitions - 1}"
                )
            return chosen
        if key is None:
            return topic.turn
        found = topic.of_keys.get(key)
        if found is None:
            if len(topic.of_keys) >= MOST_KEYS:
                topic.of_keys.clear()
            found = topic.of_keys[key] = self._key_hash(key) % partitions
        return found

    def left(self) -> Iterator[Waiting]:
        """All that is not written; the same objects for as long as they are here."""
        for line in self._lines.values():
            yield from line.left()
        for some in self._homeless.values():
            for one, _ in some:
                yield one
