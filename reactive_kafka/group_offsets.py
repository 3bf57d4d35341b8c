"""What any consumer group has committed, asked from outside the group: positions and their
metadata.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from reactive_kafka.broker.client import Connector, Inspector, inspecting
from reactive_kafka.channel.named_functions import MetadataReader
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.records import Committed, PartitionLike, TopicPartition, as_partition
from reactive_kafka.tracking.metadata.codec import decode


class GroupOffsets:
    """The committed positions of a consumer group, whoever its members are. Each call opens a
    connection.

    These are the positions in Kafka, also of a channel with ``commit_strategy = "checkpoint"``.
    """

    def __init__(self, group_id: str, settings: Settings, connector: Connector) -> None:
        self._group_id = group_id
        self._settings = settings
        self._connector = connector

    async def positions(self) -> dict[TopicPartition, int]:
        """partition -> committed position, for all partitions that have one; empty for an unknown
        group.

        Raises:
            BrokerError: The brokers did not answer.
        """
        async with self._inspecting() as inspector:
            return {
                partition: at.offset
                for partition, at in (await inspector.committed(self._group_id)).items()
            }

    async def metadata(self, partition: PartitionLike) -> Any:
        """The user's string committed with the position, without what this package keeps there.

        If a channel of the application reads the partition with this group, the string is decoded
        by that channel's ``offset_metadata_deserializer``.

        Returns:
            ``""`` if nothing is stored.

        Raises:
            DecodeError: The deserializer cannot read it.
            BrokerError: The brokers did not answer.
        """
        partition = as_partition(partition)
        async with self._inspecting() as inspector:
            stored = (await inspector.committed(self._group_id, [partition])).get(
                partition, Committed(-1)
            )
        text = decode(stored.metadata, stored.offset).user
        channel = next(
            (one for one in self._channels() if one.subscription.reads(partition.topic)), None
        )
        return text if channel is None else MetadataReader(channel).value(partition, text)

    def _channels(self) -> list[IncomingSettings]:
        return [one for one in self._settings.incoming.values() if one.group_id == self._group_id]

    def _inspecting(self) -> AbstractAsyncContextManager[Inspector]:
        """By the properties of the group's channel, else of any channel: ``[kafka]`` is the base of
        each.
        """
        clients = [
            channel.client for channel in (*self._channels(), *self._settings.incoming.values())
        ]
        clients += [channel.client for channel in self._settings.outgoing.values()]
        return inspecting(self._connector, clients[0] if clients else {})
