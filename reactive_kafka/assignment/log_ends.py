"""Starts to read one partition: what its log is like, and what its last owner has left beside the
group's position.
"""

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
    """partition -> its log; with the offset of a chosen time. BrokerError: a question was not
    answered.
    """
    times = {
        one: timestamp_ms(where)
        for one in partitions
        if isinstance(where := chosen.get(one), datetime)
    }
    starts, ends = await asyncio.gather(
        consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    )
    found = await consumer.offsets_for_times(times) if times else {}
    return {one: LogEnds(starts[one], ends[one], found.get(one)) for one in partitions}


async def ask_log_ends_by_topic(
    consumer: Consumer, partitions: list[TopicPartition], chosen: Mapping[TopicPartition, Where]
) -> tuple[dict[TopicPartition, LogEnds], dict[TopicPartition, BrokerError]]:
    """As :func:`ask_log_ends`; a topic that cannot be asked for (it is gone, say) keeps no other
    topic waiting.

    Returns:
        partition -> its log, and partition -> why that is not known. BrokerError: nothing is known
        of any.
    """
    try:
        return await ask_log_ends(consumer, partitions, chosen), {}
    except BrokerError:
        by_topic: dict[str, list[TopicPartition]] = {}
        for one in partitions:
            by_topic.setdefault(one.topic, []).append(one)
        if len(by_topic) == 1:
            raise
    asked = list(by_topic.values())
    answers = await asyncio.gather(
        *(ask_log_ends(consumer, part, chosen) for part in asked), return_exceptions=True
    )
    logs: dict[TopicPartition, LogEnds] = {}
    unknown: dict[TopicPartition, BrokerError] = {}
    for part, answer in zip(asked, answers, strict=True):
        if isinstance(answer, BrokerError):
            unknown |= dict.fromkeys(part, answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            logs |= answer
    return logs, unknown
