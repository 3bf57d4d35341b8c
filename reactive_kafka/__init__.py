"""Async Kafka handlers that commit only what is done."""

from reactive_kafka.app import App
from reactive_kafka.config.schema import Settings
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    ConfigError,
    DecodeError,
    EncodeError,
    FatalBrokerError,
    HandlerError,
    MissingExtraError,
    NotOwnerError,
    OffloadError,
    PoisonError,
    ReactiveKafkaError,
    RejectedRecordError,
    TransientBrokerError,
)
from reactive_kafka.incoming.channel import IncomingChannel as Channel
from reactive_kafka.incoming.message import Batch, Message
from reactive_kafka.observe.health import Health
from reactive_kafka.records import Committed, Headers, Record, TopicPartition
from reactive_kafka.spark.batch import SparkBatch, SparkRange

__all__ = [
    "App",
    "Batch",
    "BrokerError",
    "Channel",
    "ChannelClosedError",
    "Committed",
    "ConfigError",
    "DecodeError",
    "EncodeError",
    "FatalBrokerError",
    "HandlerError",
    "Headers",
    "Health",
    "Message",
    "MissingExtraError",
    "NotOwnerError",
    "OffloadError",
    "PoisonError",
    "ReactiveKafkaError",
    "Record",
    "RejectedRecordError",
    "Settings",
    "SparkBatch",
    "SparkRange",
    "TopicPartition",
    "TransientBrokerError",
]
