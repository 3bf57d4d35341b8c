"""``batch.send`` of Spark functions: rows of DataFrames go to the topics of outgoing channels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.config.settings import OutgoingSettings, Settings
from reactive_kafka.errors import ChannelClosedError, ConfigError
from reactive_kafka.handlers.unknown_channels import unknown_channel_problem
from reactive_kafka.outgoing.outgoing_channel import OutgoingChannel
from reactive_kafka.outgoing.target import Target
from reactive_kafka.spark.batches.sent_columns import columns_of, sent_columns
from reactive_kafka.spark.channel.collected_sink import collect_and_write
from reactive_kafka.spark.session.kafka_sink import KafkaSink
from reactive_kafka.tasks import HomeLoop


class SparkSends:
    """Writes DataFrames to the outgoing channels of a run. The threads of Spark jobs call it.

    Args:
        sending: Returns an outgoing channel, and starts it if nothing has fed it so far. It belongs
            to the loop of *home*.
    """

    def __init__(
        self,
        settings: Settings,
        connector: Connector,
        home: HomeLoop,
        sending: Callable[[str], Target],
    ) -> None:
        self._settings = settings
        self._home = home
        self._sending = sending
        self._kafka: KafkaSink | None = None
        if isinstance(connector, KafkaConnector):
            self._kafka = KafkaSink(
                lambda channel: connector.bootstrap(channel.client.get("bootstrap_servers"))
            )

    def __call__(self, rows: Any, name: str) -> None:
        """Write *rows* to a channel, as ``SparkBatch.send`` describes."""
        who = f"batch.send(df, {name!r})"
        settings = self._channel(who, name)
        columns = sent_columns(who, columns_of(who, rows), settings.partitioner)
        # A channel that has started creates its topic if that is declared, and readiness shows what
        # is wrong with it.
        channel = self._home.call(partial(self._sending, name), _has_stopped)
        rows = rows.select(*columns)
        if self._kafka is not None:
            self._kafka(rows, settings, who)
        else:
            assert isinstance(channel, OutgoingChannel)  # noqa: S101
            collect_and_write(rows, channel, self._home)

    def _channel(self, who: str, name: str) -> OutgoingSettings:
        """Return the settings of a channel that rows can be sent to.

        Raises:
            ConfigError: There is no such channel, or its records belong to transactions.
        """
        settings = self._settings.outgoing.get(name)
        if name in self._settings.memory:
            raise ConfigError(
                f"{who}: [memory.{name}] is a memory channel, which has no topic: send to an"
                " [outgoing] channel"
            )
        if settings is None:
            raise ConfigError(unknown_channel_problem(who, "outgoing", name, self._settings))
        for key, is_set in (
            ("transactional_id", settings.transactional_id is not None),
            ("outbox", settings.outbox),
        ):
            if is_set:
                raise ConfigError(
                    f"{who}: [outgoing.{name}] has {key}, and what executors write is part of no"
                    " transaction: send to a channel without it"
                )
        return settings


def _has_stopped() -> Target:
    raise ChannelClosedError("the application has stopped")
