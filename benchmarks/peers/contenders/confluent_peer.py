"""confluent-kafka's ``consume(500)``, which is librdkafka; it tracks nothing, and is committed once
a second by hand.

Tuned: without the backoff of 10 ms its queue stands still for a second each time that it is full.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from benchmarks.contenders.meter import Result
from benchmarks.peers.contenders.work import SESSION_S, Task, Work

COMMIT_EVERY_S = 1.0
_LOST = (
    KafkaError._NO_OFFSET,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
)
"""Nothing to commit, or nothing of ours."""


def consume(task: Task) -> Result:
    """``consume(500)``, the handler called for each record, a commit between two batches."""
    work = Work(task)
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
            "session.timeout.ms": int(SESSION_S * 1e3),
            "heartbeat.interval.ms": 2_000,
        }
    )
    consumer.subscribe([task.topic])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        due = time.monotonic() + COMMIT_EVERY_S
        handle = _note(work) if task.is_service else _count(work)
        while not stop.is_set() and not work.meter.finished:
            for message in consumer.consume(500, timeout=0.2):
                handle(message)
            if time.monotonic() >= due:
                _commit(consumer)
                due = time.monotonic() + COMMIT_EVERY_S
        _commit(consumer)
    finally:
        consumer.close()
    return work.result()


def _count(work: Work) -> Any:
    seen = 0
    mark = 1

    def handle(message: Message) -> None:
        nonlocal seen, mark
        message.value()
        seen += 1
        if seen == mark:
            mark = work.meter.reached(seen)

    return handle


def _note(work: Work) -> Any:
    def handle(message: Message) -> None:
        if message.error() is None:
            work.did(message.value() or b"")

    return handle


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() not in _LOST:
            raise
