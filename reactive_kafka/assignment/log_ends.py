"""Asks the broker where the logs of partitions begin and end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reactive_kafka.broker.client import Consumer
from reactive_kafka.errors import BrokerError
from reactive_kafka.partitions.start_choice import Where, timestamp_ms
from reactive_kafka.records import TopicPartition


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Where the log of a partition begins and ends, and the offset of a time that was asked for."""

    start: int
    end: int
    at_time: int | None = None


async def ask_log_ends(
    consumer: Consumer, partitions: list[TopicPartition], chosen: Mapping[TopicPartition, Where]
) -> dict[TopicPartition, LogEnds]:
    """Ask for the ends of these logs, and for the offsets of the chosen times.

    Raises:
        BrokerError: A question was not answered.
    """
    times: dict[TopicPartition, int] = {}
    for partition in partitions:
        where = chosen.get(partition)
        if isinstance(where, datetime):
            times[partition] = timestamp_ms(where)
    starts, ends = await asyncio.gather(
        consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    )
    at_times = await consumer.offsets_for_times(times) if times else {}
    return {
        partition: LogEnds(starts[partition], ends[partition], at_times.get(partition))
        for partition in partitions
    }


async def ask_log_ends_by_topic(
    consumer: Consumer, partitions: list[TopicPartition], chosen: Mapping[TopicPartition, Where]
) -> tuple[dict[TopicPartition, LogEnds], dict[TopicPartition, BrokerError]]:
    """Ask as :func:`ask_log_ends` does, topic by topic if one question for all of them fails.

    So a topic that is gone, for example, does not keep the others waiting.

    Returns:
        partition -> the ends of its log, and partition -> why they are not known.

    Raises:
        BrokerError: Nothing is known of any partition.
    """
    try:
        return await ask_log_ends(consumer, partitions, chosen), {}
    except BrokerError:
        by_topic: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic, []).append(partition)
        if len(by_topic) == 1:
            raise
    questions = list(by_topic.values())
    answers = await asyncio.gather(
        *(ask_log_ends(consumer, question, chosen) for question in questions),
        return_exceptions=True,
    )
    logs: dict[TopicPartition, LogEnds] = {}
    unknown: dict[TopicPartition, BrokerError] = {}
    for question, answer in zip(questions, answers, strict=True):
        if isinstance(answer, BrokerError):
            unknown |= dict.fromkeys(question, answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            logs |= answer
    return logs, unknown
