"""The records of a channel that wait to be written, in one queue for each partition.

No I/O, no clock. A partition has one batch on its way at a time, and a failed batch is sent again
before anything behind it. So the records of a key keep their order whatever the broker does. While
a batch is on its way, the next one collects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf

from reactive_kafka.broker.key_hashes import KeyHash
from reactive_kafka.errors import EncodeError, RejectedRecordError
from reactive_kafka.outgoing.queue.receipt import Receipt, receipted
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.records import TopicPartition

MOST_RECORDS = 5_000
"""Most records of a batch. The client leaves what does not fit to the next batch."""

MOST_KEYS = 10_000
"""For so many keys of a topic the partition is kept: hashing a key costs as much as the rest."""

MOST_LOOKED_AT = 16
"""Among so many partitions with a batch on its way, the one where the fewest records wait is near
enough to the best. A topic may have thousands.
"""

Partitioner = Callable[[bytes | None, int], int]
"""The user's choice of a partition, from a key and the number of partitions."""


class PartitionQueue:
    """The records for one partition, in order."""

    __slots__ = (
        "_batch",
        "_pinned",
        "_queue",
        "_single",
        "_topic",
        "_was_answered",
        "is_being_written",
        "is_failing",
        "partition",
        "waiting",
    )

    def __init__(self, partition: TopicPartition, topic: TopicQueues, queue: SendQueue) -> None:
        self.partition = partition
        # A task writes the records of this partition until none is left.
        self.is_being_written = False
        self.waiting: deque[QueuedRecord] = deque()
        self._topic = topic
        self._queue = queue
        # The records whose senders have named this partition: they go to no other. None: none yet.
        self._pinned: set[QueuedRecord] | None = None
        # Taken to be written, and not confirmed yet.
        self._batch: list[QueuedRecord] = []
        # How many of them are written one by one, because the broker refused their batch.
        self._single = 0
        # The broker has answered since the last batch was taken.
        self._was_answered = False
        # The last batch is repeated, because the broker has not answered.
        self.is_failing = False

    def next_batch(self) -> list[QueuedRecord]:
        """Return the records to write next; empty when nothing waits.

        Records that were taken before and are not confirmed come first. Those that are not needed
        any more are dropped.
        """
        self.is_failing = self.has_batch and not self._was_answered
        self._was_answered = False
        # Also when nothing waits, or the last batch is repeated: while this partition is being
        # written, records without a key collect in another one.
        self._topic.batch_taken(self.partition.partition)
        batch = [record for record in self._batch if not record.is_over]
        dropped = len(self._batch) - len(batch)
        most = 1 if self._single else MOST_RECORDS
        while self.waiting and len(batch) < most:
            taken = self._take(most - len(batch))
            needed = [record for record in taken if not record.is_over]
            dropped += len(taken) - len(needed)
            batch += needed
        self._batch = batch
        if dropped:
            if self._pinned:
                self._pinned.intersection_update([*batch, *self.waiting])
            self._single = max(0, self._single - dropped)
            self._queue.leave(dropped)
        if not batch:
            self._topic.nothing_left(self.partition.partition)
        return batch[:most]

    @property
    def has_batch(self) -> bool:
        """Whether records of it were taken to be written, and are not confirmed."""
        return bool(self._batch)

    def _take(self, most: int) -> list[QueuedRecord]:
        waiting = self.waiting
        if len(waiting) > most:
            return [waiting.popleft() for _ in range(most)]
        taken = list(waiting)
        waiting.clear()
        return taken

    def written(self, offset: int, count: int) -> None:
        """Note that the broker has the first *count* records of the batch.

        Args:
            offset: Of the first one; -1 if the broker does not say (``acks = 0``).
        """
        self._was_answered = True
        written = self._batch[:count]
        del self._batch[:count]
        if self._pinned:
            self._pinned.difference_update(written)
        self._single = max(0, self._single - count)
        self._queue.leave(count)
        kinds: set[type[QueuedRecord]] = set(map(type, written))
        # Records of one class report together, which is much faster.
        reporting = kinds.pop() if len(kinds) == 1 else QueuedRecord
        reporting.all_written(written, self.partition, offset)

    def refused(self, error: BaseException) -> bool:
        """Note that the broker refuses the batch; True if a record has failed.

        A record that was alone fails. The records of a larger batch are tried one by one, to find
        those that the broker refuses.
        """
        self._was_answered = True
        if len(self._batch) > 1 and not self._single:
            self._single = len(self._batch)
            return False
        record = self._batch.pop(0)
        if self._pinned:
            self._pinned.discard(record)
        self._single = max(0, self._single - 1)
        self._queue.leave(1)
        record.fail(error)
        return True

    def pin(self, record: QueuedRecord) -> None:
        """Keep a record in this partition, which its sender has named."""
        if self._pinned is None:
            self._pinned = set()
        self._pinned.add(record)

    def take_unpinned(self) -> list[QueuedRecord]:
        """Take out the records for which another partition will do; no batch is on its way."""
        pinned = self._pinned or ()
        taken = [record for record in (*self._batch, *self.waiting) if record not in pinned]
        if taken:
            self._batch = [record for record in self._batch if record in pinned]
            self.waiting = deque(record for record in self.waiting if record in pinned)
            self._single = 0
        return taken

    def unwritten(self) -> Iterator[QueuedRecord]:
        """Yield every record that is not written."""
        yield from self._batch
        yield from self.waiting


class TopicQueues:
    """The partitions of a topic, and which of them takes which key."""

    __slots__ = ("partition_of_key", "partitions", "sticky")

    def __init__(self, first: int) -> None:
        self.partitions: list[PartitionQueue] = []
        self.partition_of_key: dict[bytes, int] = {}
        # Records without a key all go to this partition until a batch of it is taken, as with
        # Java's sticky partitioner. Spread over all partitions they would make small batches, and
        # a request costs the same for one record as for many.
        self.sticky = first

    def batch_taken(self, partition: int) -> None:
        """A batch of *partition* was taken: records without a key go to another partition.

        That is one without a batch on its way, or one where few records wait. One whose broker does
        not answer comes last, or all records would end up there.
        """
        if self.sticky != partition:
            return
        partitions = self.partitions
        count = len(partitions)
        # What waits in this partition is about to be taken, so another one needs to be empty to be
        # better. If its broker does not answer, any other is better.
        fewest = inf if partitions[partition].is_failing else 1
        looked_at = 0
        for number in range(partition + 1, partition + count):
            other = partitions[number % count]
            if not other.has_batch:
                self.sticky = number % count
                return
            if other.is_failing:
                continue
            if len(other.waiting) < fewest:
                fewest = len(other.waiting)
                self.sticky = number % count
            looked_at += 1
            if looked_at == MOST_LOOKED_AT:
                return

    def nothing_left(self, partition: int) -> None:
        """All records of *partition* are written.

        If those without a key wait for a batch that is on its way, the next ones go here.
        """
        if partition < len(self.partitions) and self.partitions[self.sticky].has_batch:
            self.sticky = partition


class SendQueue:
    """What one outgoing channel has accepted and the broker has not confirmed.

    Args:
        most: How many records it takes.
        key_hash: Hash of a key; its remainder by the number of partitions is the partition.
        released: Called when records have left.
        partitioner: Another hash of keys, or the user's choice of partitions. None: *key_hash*.
        begin: Called when :meth:`accept` or :meth:`place_again` has put a record into a partition
            that no task writes.
        lingers: Call *begin* for each record: it may be the one that fills a batch.
        first: Records without a key begin with this partition, counted round.
    """

    def __init__(
        self,
        most: int,
        key_hash: Callable[[bytes], int],
        released: Callable[[], None],
        partitioner: KeyHash | Partitioner | None = None,
        begin: Callable[[PartitionQueue], None] = lambda queue: None,
        *,
        lingers: bool = False,
        first: int = 0,
    ) -> None:
        self._most = most
        self._first = first
        self._key_hash = key_hash
        self._hashes_empty_keys = True
        self._partitioner: Partitioner | None = None
        if isinstance(partitioner, KeyHash):
            self._key_hash = partitioner.hash
            self._hashes_empty_keys = partitioner.hashes_empty_keys
        else:
            self._partitioner = partitioner
        self._released = released
        self._begin = begin
        self._lingers = lingers
        self._topics: dict[str, TopicQueues] = {}
        self._is_open = self._partitioner is None
        # The topics that :meth:`accept` takes records for.
        self._accepting: dict[str, TopicQueues] = {}
        # Every partition there ever was.
        self._partitions: dict[TopicPartition, PartitionQueue] = {}
        # Records of topics whose partitions are not known yet, with the partition they ask for.
        self._unplaced: dict[str, list[tuple[QueuedRecord, int | None]]] = {}
        self.in_flight = 0

    @property
    def room(self) -> int:
        """How many more records it takes; below 0 if some were added although it was full."""
        return self._most - self.in_flight

    def enter(self) -> None:
        """Count a record; it leaves when it is written, refused, or no longer needed."""
        self.in_flight += 1

    def leave(self, records: int) -> None:
        """Count *records* as gone."""
        self.in_flight -= records
        self._released()

    def accept(self, record: QueuedRecord, topic_name: str) -> bool:
        """Count a record and put it into its partition; False if that is not possible at once.

        False means that nothing was done: the queue is full, or the partition must be looked up.
        """
        # Nearly every record comes this way, so it is one call that does everything.
        topic = self._accepting.get(topic_name)
        if topic is None or self.in_flight >= self._most:
            return False
        key = record.key
        partition = topic.sticky if key is None else topic.partition_of_key.get(key)
        if partition is None:
            return False
        queue = topic.partitions[partition]
        queue.waiting.append(record)
        self.in_flight += 1
        if self._lingers or not queue.is_being_written:
            self._begin(queue)
        return True

    def accept_no_more(self) -> None:
        """Make :meth:`accept` refuse from now on."""
        self._is_open = False
        self._accepting.clear()

    def add(self, outgoing: OutgoingRecord, receipt: Receipt) -> PartitionQueue | None:
        """Put a record of *receipt*, which was counted before, into its partition.

        Returns:
            As :meth:`place`.
        """
        return self.place(receipted(outgoing, receipt), outgoing.topic, outgoing.partition)

    def place(
        self, record: QueuedRecord, topic_name: str, partition: int | None = None
    ) -> PartitionQueue | None:
        """Put a record, which was counted before, into its partition.

        Args:
            partition: Where it goes; None: the key chooses, or any partition will do.

        Returns:
            The queue of its partition. None if the partitions of the topic are not known yet, or if
            the record has failed because there is no such partition.
        """
        topic = self._topics.get(topic_name)
        if topic is None:
            self._unplaced.setdefault(topic_name, []).append((record, partition))
            return None
        try:
            chosen = self._choose(topic, record.key) if partition is None else partition
            queue = topic.partitions[chosen]
        except BaseException as error:
            # The partitioner is the user's code, and so is the partition of a Record.
            self.leave(1)
            record.fail(_why_not_placed(error, topic_name, topic, partition))
            return None
        queue.waiting.append(record)
        if partition is not None:
            queue.pin(record)
        return queue

    def place_again(self, queue: PartitionQueue) -> bool:
        """Place the records of a partition that does not exist any more in those that do.

        A topic that was deleted may come back with fewer partitions. Records whose senders have
        named the partition stay. No batch of it is on its way.

        Returns:
            Whether it had such records.
        """
        name, number = queue.partition
        if number < len(self._topics[name].partitions):
            return False
        taken = queue.take_unpinned()
        for record in taken:
            other = self.place(record, name)
            if other is not None:
                self._begin(other)
        return bool(taken)

    def awaits_partitions(self, topic_name: str) -> bool:
        """Whether records wait until the partitions of a topic are known."""
        return topic_name in self._unplaced

    def awaiting_partitions(self, topic_name: str) -> int:
        """How many needed records wait for the partitions of a topic; the others are dropped."""
        waiting = self._unplaced.pop(topic_name, [])
        needed = [(record, partition) for record, partition in waiting if not record.is_over]
        if needed:
            self._unplaced[topic_name] = needed
        if len(needed) < len(waiting):
            self.leave(len(waiting) - len(needed))
        return len(needed)

    def partitions_found(self, topic_name: str, count: int) -> Iterable[PartitionQueue]:
        """Note that a topic has *count* partitions.

        Returns:
            The partitions of the records that waited for this.
        """
        topic = self._topics.setdefault(topic_name, TopicQueues(self._first))
        if count != len(topic.partitions):
            self._resize(topic_name, topic, count)
        placed = [
            self.place(record, topic_name, partition)
            for record, partition in self._unplaced.pop(topic_name, ())
        ]
        return [queue for queue in placed if queue is not None]

    def _resize(self, topic_name: str, topic: TopicQueues, count: int) -> None:
        # The task that writes to a partition that is gone places its records again.
        del topic.partitions[count:]
        for number in range(len(topic.partitions), count):
            partition = TopicPartition(topic_name, number)
            # A partition that comes back keeps its queue: with two of them, two tasks would write
            # at the same time.
            if partition not in self._partitions:
                self._partitions[partition] = PartitionQueue(partition, topic, self)
            topic.partitions.append(self._partitions[partition])
        topic.partition_of_key.clear()
        topic.sticky %= count or 1
        if count and self._is_open:
            self._accepting[topic_name] = topic
        else:
            self._accepting.pop(topic_name, None)

    def partitions_unknown(self, topic_name: str, error: BaseException) -> None:
        """Fail the records that wait for the partitions of a topic."""
        waiting = self._unplaced.pop(topic_name, ())
        self.leave(len(waiting))
        for record, _ in waiting:
            record.fail(error)

    def _choose(self, topic: TopicQueues, key: bytes | None) -> int:
        count = len(topic.partitions)
        if self._partitioner is not None:
            chosen = self._partitioner(key, count)
            if not isinstance(chosen, int) or not 0 <= chosen < count:
                raise EncodeError(
                    f"the partitioner chose {chosen!r}, "
                    f"and there are the partitions 0 to {count - 1}"
                )
            return chosen
        if key is None or not (key or self._hashes_empty_keys):
            return topic.sticky
        partition = topic.partition_of_key.get(key)
        if partition is None:
            if len(topic.partition_of_key) >= MOST_KEYS:
                topic.partition_of_key.clear()
            partition = self._key_hash(key) % count
            topic.partition_of_key[key] = partition
        return partition

    def unwritten(self) -> Iterator[QueuedRecord]:
        """Yield every record that is not written; each is the same object as long as it is here."""
        for queue in self._partitions.values():
            yield from queue.unwritten()
        for waiting in self._unplaced.values():
            for record, _ in waiting:
                yield record


def _why_not_placed(
    error: BaseException, topic_name: str, topic: TopicQueues, partition: int | None
) -> BaseException:
    """The error that a record fails with when no partition could be chosen for it."""
    if isinstance(error, IndexError) and partition is not None:
        last = len(topic.partitions) - 1
        return RejectedRecordError(
            f"{topic_name}-{partition} does not exist: there are 0 to {last}"
        )
    if isinstance(error, StopIteration) or not isinstance(error, Exception):
        # A future or a task cannot carry these.
        reason = EncodeError(f"the partitioner raised {type(error).__name__}")
        reason.__cause__ = error
        return reason
    return error
