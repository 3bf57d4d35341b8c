"""Finds the offsets of ranges of times in ``assign``, before reading starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reactive_kafka.broker.client import Consumer
from reactive_kafka.config.incoming_kinds import TimeRange
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import BrokerError
from reactive_kafka.partitions.partition import Partition
from reactive_kafka.partitions.start_choice import StartChoice, timestamp_ms
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Ranges


class TimeRanges:
    """The ranges of times of one client, until their offsets are known.

    A range is from the first record at or after its start up to the first record at or after its
    end, which is not read. Where no record is that late, it ends where the log ends now.
    """

    def __init__(self, settings: IncomingSettings, table: PartitionTable) -> None:
        self._times = settings.time_ranges
        self._table = table

    async def find(
        self, consumer: Consumer, partitions: Iterable[Partition]
    ) -> dict[TopicPartition, BrokerError]:
        """Give each of these partitions its range, if it has one that is not known.

        Returns:
            partition -> why its range is not known now.
        """
        if not self._times:
            return {}
        by_topic: dict[str, list[tuple[Partition, TimeRange]]] = {}
        for partition in partitions:
            times = self._times.get(partition.id) or self._times.get(partition.id.topic)
            if times is not None and partition.ranges is None:
                by_topic.setdefault(partition.id.topic, []).append((partition, times))
        unknown: dict[TopicPartition, BrokerError] = {}
        for asked in by_topic.values():
            # Topic by topic: one that is gone does not keep the others waiting.
            try:
                await self._find(consumer, asked)
            except BrokerError as error:
                unknown |= {partition.id: error for partition, _ in asked}
        return unknown

    async def _find(self, consumer: Consumer, asked: Sequence[tuple[Partition, TimeRange]]) -> None:
        ends = await consumer.end_offsets([partition.id for partition, _ in asked])
        firsts = await consumer.offsets_for_times(
            {partition.id: timestamp_ms(start) for partition, (start, _) in asked}
        )
        lasts = await consumer.offsets_for_times(
            {partition.id: timestamp_ms(until) for partition, (_, until) in asked}
        )
        for partition, _ in asked:
            end = ends[partition.id]
            first = firsts.get(partition.id)
            last = lasts.get(partition.id)
            first = end if first is None else first
            last = end if last is None else last
            # Without records in between the range is empty. Timestamps need not ascend.
            ranges = Ranges(((first, max(first, last)),))
            self._table.found_range(partition, ranges, StartChoice(first))
