"""confluent-kafka, which is librdkafka, with callbacks that commit what was handled."""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from benchmarks.peers.contenders.work import Task
from benchmarks.rebalances.diary import Diary
from benchmarks.rebalances.plan import PARTITIONS, SESSION_S

_COMMIT_EVERY_S = 1.0
_NOT_OURS = (
    KafkaError._NO_OFFSET,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
)
_CLASSIC: dict[str, str | int] = {"session.timeout.ms": int(SESSION_S * 1e3)}


def classic(task: Task) -> None:
    """The default assignors."""
    _run(task, _CLASSIC)


def cooperative(task: Task) -> None:
    """Members assign; only what moves is revoked."""
    _run(task, {**_CLASSIC, "partition.assignment.strategy": "cooperative-sticky"})


def consumer(task: Task) -> None:
    """The broker assigns, and decides about sessions and heartbeats."""
    _run(task, {"group.protocol": "consumer"})


def _run(task: Task, settings: dict[str, str | int]) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    reader = _Reader(task, settings)
    try:
        while not stop.is_set():
            reader.turn()
    finally:
        reader.close()


class _Reader:
    """A thread for each partition that has records, and commits of what was handled."""

    def __init__(self, task: Task, settings: dict[str, str | int]) -> None:
        self._task = task
        self._diary = Diary(task.journal)
        self._threads = ThreadPoolExecutor(PARTITIONS)
        # Guards the three below.
        self._lock = threading.Lock()
        self._queues: defaultdict[int, deque[Message]] = defaultdict(deque)
        self._handling: dict[int, Future[None]] = {}
        # Partition -> the position behind the last record that was handled.
        self._positions: dict[int, int] = {}
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S
        self._consumer = Consumer(
            {
                "bootstrap.servers": task.bootstrap,
                "group.id": task.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self._consumer.subscribe(
            [task.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def turn(self) -> None:
        """Read a record, commit if a second has passed."""
        message = self._consumer.poll(0.2)
        if message is not None and message.error() is None:
            self._queue(message.partition() or 0, message)
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + _COMMIT_EVERY_S
            self._commit(waits=False)

    def _queue(self, partition: int, message: Message) -> None:
        with self._lock:
            self._queues[partition].append(message)
            if partition not in self._handling:
                self._handling[partition] = self._threads.submit(self._handle, partition)

    def _handle(self, partition: int) -> None:
        while True:
            with self._lock:
                if not self._queues[partition]:
                    del self._handling[partition]
                    return
                message = self._queues[partition].popleft()
            time.sleep(self._task.wait_s)
            self._diary.handled(message.value() or b"")
            with self._lock:
                self._positions[partition] = (message.offset() or 0) + 1

    def _commit(self, partitions: Collection[int] | None = None, *, waits: bool) -> None:
        with self._lock:
            offsets = [
                TopicPartition(self._task.topic, number, position)
                for number, position in self._positions.items()
                if partitions is None or number in partitions
            ]
        if not offsets:
            return
        try:
            if waits:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_OURS:
                raise

    def _finish(self, partitions: Collection[int]) -> None:
        """Let running handlers end, and drop what waits."""
        with self._lock:
            for number in partitions:
                self._queues[number].clear()
            running = [self._handling[one] for one in partitions if one in self._handling]
        wait(running)

    def _forget(self, partitions: Collection[int]) -> None:
        with self._lock:
            for number in partitions:
                self._positions.pop(number, None)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._diary.changed("assigned", (one.partition for one in partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [one.partition for one in partitions]
        self._finish(numbers)
        self._commit(numbers, waits=True)
        self._forget(numbers)
        self._diary.changed("revoked", numbers)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [one.partition for one in partitions]
        self._finish(numbers)
        self._forget(numbers)
        self._diary.changed("lost", numbers)

    def close(self) -> None:
        """Leave the group. The last commit is made when the partitions are revoked."""
        self._consumer.close()
        self._threads.shutdown()
