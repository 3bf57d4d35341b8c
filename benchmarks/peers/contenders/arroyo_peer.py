"""Arroyo (sentry-arroyo): a pipeline of strategies, committed once a second in order."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import (
    CommitOffsets,
    ProcessingStrategy,
    ProcessingStrategyFactory,
    RunTask,
    RunTaskInThreads,
)
from arroyo.types import Commit, Message, Partition, Topic

from benchmarks.contenders.meter import Result
from benchmarks.peers.contenders.work import AT_ONCE, SESSION_S, Task, Work

Handle = Callable[[Message[KafkaPayload]], None]
Make = Callable[[Handle, ProcessingStrategy[Any]], ProcessingStrategy[KafkaPayload]]


class _Pipeline(ProcessingStrategyFactory[KafkaPayload]):  # type: ignore[misc]
    def __init__(self, make: Make, handle: Handle) -> None:
        self._make = make
        self._handle = handle

    def create_with_partitions(
        self, commit: Commit, partitions: Mapping[Partition, int]
    ) -> ProcessingStrategy[KafkaPayload]:
        return self._make(self._handle, CommitOffsets(commit))


def each(task: Task) -> Result:
    """``RunTask``: a record at a time."""
    return _run(task, RunTask)


def threads(task: Task) -> Result:
    """``RunTaskInThreads``: a thousand threads."""
    return _run(task, lambda handle, then: RunTaskInThreads(handle, AT_ONCE, AT_ONCE, then))


def _run(task: Task, make: Make) -> Result:
    work = Work(task)

    def handle(message: Message[KafkaPayload]) -> None:
        value = message.payload.value
        if task.wait_s:
            work.started()
            time.sleep(work.wait_s(value))
        if work.did(value):
            processor.signal_shutdown()

    config = build_kafka_consumer_configuration(
        {
            "session.timeout.ms": int(SESSION_S * 1e3),
            "heartbeat.interval.ms": 2_000,
            "fetch.queue.backoff.ms": 10,
        },
        bootstrap_servers=[task.bootstrap],
        group_id=task.group,
        auto_offset_reset="earliest",
    )
    processor = StreamProcessor(
        KafkaConsumer(config),
        Topic(task.topic),
        _Pipeline(make, handle),
        ONCE_PER_SECOND,
        join_timeout=10.0,
    )
    signal.signal(signal.SIGTERM, lambda *_: processor.signal_shutdown())
    processor.run()
    return work.result()
