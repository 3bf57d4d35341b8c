"""confluent-kafka, which is librdkafka, with callbacks that commit what was handled."""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from benchmarks.peers.contenders.work import Task
from benchmarks.rebalances.diary import Diary
from benchmarks.rebalances.plan import PARTITIONS, SESSION_S

_COMMIT_EVERY_S = 1.0
_AT_MOST = 500
"""Records that are taken from the client's queue at a time."""
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
    """Handles the partitions of a batch at the same time, and commits what was handled."""

    def __init__(self, task: Task, settings: dict[str, str | int]) -> None:
        self._task = task
        self._diary = Diary(task.journal)
        # Partition -> records that were read and not handled.
        self._read: defaultdict[int, list[Message]] = defaultdict(list)
        # Partition -> the position behind the last record that was handled.
        self._positions: dict[int, int] = {}
        self._threads = ThreadPoolExecutor(PARTITIONS)
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
        """Read what is there, handle it, commit if a second has passed."""
        # Callbacks run in poll(), while no handler runs.
        message = self._consumer.poll(0.2)
        for _ in range(_AT_MOST):
            if message is None:
                break
            if message.error() is None:
                self._read[message.partition() or 0].append(message)
            message = self._consumer.poll(0)
        list(self._threads.map(self._handle, self._read.values()))
        self._read.clear()
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + _COMMIT_EVERY_S
            self._commit(self._positions, waits=False)

    def _handle(self, messages: list[Message]) -> None:
        for message in messages:
            time.sleep(self._task.wait_s)
            self._diary.handled(message.value() or b"")
            self._positions[message.partition() or 0] = (message.offset() or 0) + 1

    def _commit(self, partitions: Collection[int], *, waits: bool) -> None:
        offsets = [
            TopicPartition(self._task.topic, number, self._positions[number])
            for number in partitions
            if number in self._positions
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

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._diary.changed("assigned", (one.partition for one in partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit([one.partition for one in partitions], waits=True)
        self._forget(partitions)
        self._diary.changed("revoked", (one.partition for one in partitions))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget(partitions)
        self._diary.changed("lost", (one.partition for one in partitions))

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._read.pop(one.partition, None)
            self._positions.pop(one.partition, None)

    def close(self) -> None:
        """Leave the group. The last commit is made when the partitions are revoked."""
        self._consumer.close()
        self._threads.shutdown()
