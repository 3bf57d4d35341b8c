"""Reads the committed positions of any consumer group, from outside the group."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from reactive_kafka.broker.client import Connector, Inspector, inspecting
from reactive_kafka.channel.named_functions import MetadataReader
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.records import Committed, PartitionLike, TopicPartition, as_partition
from reactive_kafka.tracking.metadata.codec import decode
from reactive_kafka.verdicts.ageing import not_ageing


class GroupOffsets:
    """The committed positions of a consumer group. Each call opens a connection.

    They are the positions in Kafka, even if a channel has ``commit_strategy = "checkpoint"``.
    """

    def __init__(self, group_id: str, settings: Settings, connector: Connector) -> None:
        self._group_id = group_id
        self._settings = settings
        self._connector = connector

    async def positions(self) -> dict[TopicPartition, int]:
        """Return partition -> committed position, for all partitions that have one.

        An unknown group has none.

        Raises:
            BrokerError: The brokers did not answer.
        """
        with not_ageing():
            async with self._inspecting() as inspector:
                committed = await inspector.committed(self._group_id)
        return {partition: stored.offset for partition, stored in committed.items()}

    async def metadata(self, partition: PartitionLike) -> Any:
        """Return the user's string that was committed with the position of a partition.

        If a channel of the application reads the partition in this group, the
        ``offset_metadata_deserializer`` of that channel decodes the string.

        Returns:
            ``""`` if nothing is stored.

        Raises:
            DecodeError: The deserializer cannot read it.
            BrokerError: The brokers did not answer.
        """
        partition = as_partition(partition)
        with not_ageing():
            async with self._inspecting() as inspector:
                committed = await inspector.committed(self._group_id, [partition])
        stored = committed.get(partition, Committed(-1))
        # The metadata also has what this package keeps there. That is cut off.
        text = decode(stored.metadata, stored.offset).user
        for channel in self._channels():
            if channel.subscription.reads(partition.topic):
                return MetadataReader(channel).value(partition, text)
        return text

    def _channels(self) -> list[IncomingSettings]:
        """Return the channels of the application that read in this group."""
        channels = self._settings.incoming.values()
        return [channel for channel in channels if channel.group_id == self._group_id]

    def _inspecting(self) -> AbstractAsyncContextManager[Inspector]:
        """Connect with the properties of a channel of the group, or else of any channel.

        ``[kafka]`` has the common properties of all of them.
        """
        clients = [
            channel.client for channel in (*self._channels(), *self._settings.incoming.values())
        ]
        clients += [channel.client for channel in self._settings.outgoing.values()]
        return inspecting(self._connector, clients[0] if clients else {})
