"""Async Kafka handlers that commit only what is done."""

from reactive_kafka import events
from reactive_kafka.app import App
from reactive_kafka.channel.channel import Channel
from reactive_kafka.checkpoint.store import Checkpoint, CheckpointStore, TransactionalStore
from reactive_kafka.commit.strategy import CommitStrategy, Progress
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.delivery.current import current_batch, current_message
from reactive_kafka.errors import (
    BrokerError,
    BufferFullError,
    ChannelClosedError,
    CheckpointError,
    CommitRefusedError,
    ConfigError,
    DecodeError,
    EncodeError,
    FatalBrokerError,
    HandlerError,
    MissingExtraError,
    NotOwnerError,
    OffloadError,
    OutcomeUnknownError,
    PoisonError,
    ReactiveKafkaError,
    RejectedRecordError,
    ReplyTimeoutError,
    SchemaAwayError,
    SkipRefusedError,
    StoreAwayError,
    TransactionAbortedError,
    TransientBrokerError,
    UnmatchedRecordError,
)
from reactive_kafka.failure import FailedRecord, FailureStrategy, Skip, Stop
from reactive_kafka.failure import WriteLetter as Write
from reactive_kafka.formats.cloudevents import CloudEvent
from reactive_kafka.handlers.dependencies.depends import Depends
from reactive_kafka.handlers.middleware import CallNext
from reactive_kafka.handlers.router import Router
from reactive_kafka.observe.events import Event, Observer
from reactive_kafka.observe.health import Health
from reactive_kafka.outgoing.emitter import Emitter, RecordMetadata, Sending
from reactive_kafka.outgoing.transactions.emitter_transaction import EmitterTransaction
from reactive_kafka.partitions.start_choice import by
from reactive_kafka.records import Committed, Headers, Record, TopicPartition
from reactive_kafka.spark.batches.spark_batch import SparkBatch, SparkRange
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.later import Later
from reactive_kafka.verdicts.message import Message

__all__ = [
    "App",
    "Batch",
    "BrokerError",
    "BufferFullError",
    "CallNext",
    "Channel",
    "ChannelClosedError",
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "CloudEvent",
    "CommitRefusedError",
    "CommitStrategy",
    "Committed",
    "ConfigError",
    "DecodeError",
    "Depends",
    "Emitter",
    "EmitterTransaction",
    "EncodeError",
    "Event",
    "FailedRecord",
    "FailureStrategy",
    "FatalBrokerError",
    "HandlerError",
    "Headers",
    "Health",
    "IncomingSettings",
    "Later",
    "Message",
    "MissingExtraError",
    "NotOwnerError",
    "Observer",
    "OffloadError",
    "OutcomeUnknownError",
    "PoisonError",
    "Progress",
    "ReactiveKafkaError",
    "Record",
    "RecordMetadata",
    "RejectedRecordError",
    "ReplyTimeoutError",
    "Router",
    "SchemaAwayError",
    "Sending",
    "Settings",
    "Skip",
    "SkipRefusedError",
    "SparkBatch",
    "SparkRange",
    "Stop",
    "StoreAwayError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionalStore",
    "TransientBrokerError",
    "UnmatchedRecordError",
    "Write",
    "by",
    "current_batch",
    "current_message",
    "events",
]
