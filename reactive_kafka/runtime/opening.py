"""What only some channels need is imported and opened here, when one does: stores, and readers of
Spark's ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.tables import CheckpointSettings
from reactive_kafka.handlers.spec import IncomingSpec

if TYPE_CHECKING:
    from reactive_kafka.spark.session.kafka_source import KafkaSource


def store_of(settings: CheckpointSettings) -> CheckpointStore:
    """The checkpoint store that the settings name."""
    from reactive_kafka.checkpoint.stores.opening import open_store

    return open_store(settings.store)


def reader_of(spec: IncomingSpec, connector: Connector) -> Connector | None:
    """What makes the clients that read a channel's own topics; None: *connector*, as for all
    others.
    """
    if spec.spark is None or spec.settings.spark.mode != "ranges":
        return None
    from reactive_kafka.broker.ranges import RangesConnector

    return RangesConnector(connector)


def source_of_ranges(settings: IncomingSettings, connector: Connector) -> KafkaSource | None:
    """What has Spark's executors read a channel's ranges; None: they are handed records."""
    if settings.spark.mode != "ranges":
        return None
    from reactive_kafka.spark.session.kafka_source import KafkaSource

    def servers() -> str:
        named = settings.client.get("bootstrap_servers")
        return connector.bootstrap(named) if isinstance(connector, KafkaConnector) else str(named)

    return KafkaSource(settings, servers)
