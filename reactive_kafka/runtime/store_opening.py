"""Opens what only some channels need: checkpoint stores, and readers of Spark's ranges.

It is imported here, and only when a channel needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.config.tables import CheckpointSettings

if TYPE_CHECKING:
    from reactive_kafka.spark.session.kafka_source import KafkaSource


def store_of(settings: CheckpointSettings) -> CheckpointStore:
    """Open the checkpoint store that the settings name."""
    from reactive_kafka.checkpoint.stores.opening import open_store

    return open_store(settings.store)


def connector_of_ranges(settings: IncomingSettings, connector: Connector) -> Connector | None:
    """Return what makes the clients of a channel on Spark; None: *connector* does.

    With ``mode = "ranges"`` executors read the records, so these clients fetch only offsets.
    """
    if settings.spark.mode != "ranges":
        return None
    from reactive_kafka.broker.ranges import RangesConnector

    return RangesConnector(connector)


def source_of_ranges(settings: IncomingSettings, connector: Connector) -> KafkaSource | None:
    """Return how Spark's executors read the ranges of a channel; None: they are given records."""
    if settings.spark.mode != "ranges":
        return None
    from reactive_kafka.spark.session.kafka_source import KafkaSource

    def servers() -> str:
        named = settings.client.get("bootstrap_servers")
        return connector.bootstrap(named) if isinstance(connector, KafkaConnector) else str(named)

    return KafkaSource(settings, servers)
