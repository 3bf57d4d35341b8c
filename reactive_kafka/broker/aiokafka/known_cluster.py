"""Takes the answer to a request for metadata into aiokafka's ``ClusterMetadata``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.cluster import ClusterMetadata


class _BrokerRow(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class _PartitionRow(NamedTuple):
    error_code: int
    partition: int
    leader: int
    # Left empty. We do not use them, and filled they would cost two lists for each partition.
    replicas: Sequence[int] = ()
    in_sync_replicas: Sequence[int] = ()


class _TopicRow(NamedTuple):
    error_code: int
    topic: str
    is_internal: bool
    partitions: list[_PartitionRow]


class _MetadataAnswer(NamedTuple):
    """An answer with what ``update_metadata`` reads of aiokafka's own answers."""

    brokers: list[_BrokerRow]
    controller_id: int
    topics: list[_TopicRow]
    # The first version whose topics and brokers have all of these columns.
    API_VERSION: int = 1


def update_cluster(cluster: ClusterMetadata, metadata: Mapping[str, Any]) -> None:
    """Replace what *cluster* knows, and call its listeners.

    Args:
        cluster: Of a client.
        metadata: The values of a MetadataResponse, which names brokers.
    """
    brokers = [
        _BrokerRow(row["node_id"], row["host"], row["port"], row["rack"])
        for row in metadata["brokers"]
    ]
    topics = [
        _TopicRow(
            topic["error_code"],
            topic["name"],
            topic["is_internal"],
            [
                _PartitionRow(
                    row["error_code"],
                    row["partition_index"],
                    row["leader_id"],
                )
                for row in topic["partitions"]
            ],
        )
        for topic in metadata["topics"]
    ]
    cluster.update_metadata(_MetadataAnswer(brokers, metadata["controller_id"], topics))
