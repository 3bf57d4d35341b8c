"""Which jars make up Spark's Kafka connector, for tests of what fetches them."""

from __future__ import annotations

from reactive_kafka.spark.session.kafka_source import PINNED


def names_of_connector_jars() -> set[str]:
    return {artifact.jar for artifact in PINNED}
