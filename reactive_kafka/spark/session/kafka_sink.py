"""Lets Spark's executors write the rows of a DataFrame to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactive_kafka.config.settings import OutgoingSettings
from reactive_kafka.errors import ClusterError, OffloadError
from reactive_kafka.spark.batches.blame import UnfitExecutorsError, reason_of
from reactive_kafka.spark.session.java_client import sink_options
from reactive_kafka.spark.session.kafka_source import FETCH_COMMAND, read_pem


class KafkaSink:
    """Writes DataFrames to the topics of outgoing channels, with the rights of each channel.

    Args:
        servers: Returns the addresses of a channel's brokers. Called for each write.
    """

    def __init__(self, servers: Callable[[OutgoingSettings], str]) -> None:
        self._servers = servers

    def __call__(self, rows: Any, channel: OutgoingSettings, who: str) -> None:
        """Write *rows*, whose columns are those of a record. It runs a Spark job.

        If it fails, some rows may have been written, each any number of times.

        Args:
            who: The call, for errors.

        Raises:
            ConfigError: A property of the channel has no equivalent in Java's client.
            ClusterError: Spark has no Kafka connector, or the channel may not write to its topic.
                No record is to blame.
        """
        options = {
            **sink_options(channel, who, read_pem),
            "kafka.bootstrap.servers": self._servers(channel),
            # It counts more than a column topic, which the rows do not have.
            "topic": channel.topic,
        }
        try:
            rows.write.format("kafka").options(**options).mode("append").save()
        except Exception as error:
            problem = _problem(error, channel.topic, who)
            if problem is None:
                raise
            raise problem from error


def _problem(error: Exception, topic: str, who: str) -> OffloadError | None:
    """Return the error for what only an operator can change; None: it is something else."""
    try:
        text = str(error)
    except Exception:
        # The driver is gone, which has the text.
        return None
    if "Failed to find data source: kafka" in text or "DATA_SOURCE_NOT_FOUND" in text:
        return UnfitExecutorsError(
            f'{who}: Spark has no Kafka connector: run "{FETCH_COMMAND}" and set jars = "DIR" in'
            " [spark]"
        )
    if "TopicAuthorizationException" in text:
        return ClusterError(
            f"{who}: not allowed to write to topic {topic}: it needs the right WRITE"
            f" ({reason_of(error)})"
        )
    return None
