"""The settings of an application, as frozen values: what the loader makes and everybody else reads.

Durations are seconds, sizes are bytes. A secret (see :class:`Secret`) never shows in a repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from reactive_kafka.records import TopicPartition
from reactive_kafka.wire import TopicPattern

OnPoison = Literal["fail", "pause-partition", "dead-letter-queue", "warn"]
Ordering = Literal["partition", "key", "unordered"]
AckMode = Literal["post", "manual", "pre", "none"]
OffsetReset = Literal["latest", "earliest", "none"]


class Secret(str):
    """A string whose repr is ``***``. It is a str, so that clients take it; never log one with ``%s``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """In-place retries of a handler: calls in all, and the wait before each further one (doubling, in seconds)."""

    max_attempts: int = 1
    backoff_s: float = 0.2
    max_backoff_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSettings:
    """How a failed channel comes back: attempts in a row (0: it stays down), and the wait before each, doubling."""

    max_attempts: int = 0
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    """Where dead letters go. ``client`` holds the producer's properties: the channel's connection, and its own."""

    topic: str
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedRetrySettings:
    """The topics of delayed retries, each with its delay in milliseconds after the last ``_`` of its name.

    ``client`` holds the properties of the consumer that reads them: the channel's, and its own.
    """

    topics: tuple[str, ...]
    max_retries: int
    timeout_s: float = 120.0
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPartition:
    """A partition that a channel reads without a group's assignment.

    Attributes:
        start: Where reading begins at every start: an offset (0 is the log's beginning), ``"end"``, or the first
            record at or after a time; None: the committed position, else ``auto_offset_reset``.
    """

    partition: TopicPartition
    start: int | datetime | Literal["end"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkChannelSettings:
    """How a channel's records are cut into Spark batches, and how the batches are run.

    ``mode`` is ``records`` (this process ships them) or ``ranges`` (executors read Kafka). ``pool`` is the channel's
    name unless it was given. ``on_failure`` is what a failing batch becomes before its records are nacked.
    """

    mode: Literal["records", "ranges"] = "records"
    batch_max_records: int = 50_000
    batch_max_bytes: int = 64 * 1024 * 1024
    batch_max_wait_s: float = 2.0
    timeout_s: float = 600.0
    max_concurrent_jobs: int = 1
    pool: str | None = None
    on_failure: Literal["nack", "bisect"] = "nack"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Where positions and states are kept, with ``commit_strategy = "checkpoint"``.

    Attributes:
        store: A URL: SQLAlchemy's async ones, ``redis://``, ``file:///dir``, or the scheme of a custom store's.
        state: ``module:Model`` that states are validated into, or ``module:codec``; None: what JSON can tell.
        unsynced_max_age_s: Readiness tells what is settled and not stored for longer; 0: never.
        kafka_commit_interval_s: How often the positions are committed to Kafka, beside the store.
    """

    store: str
    state: str | None = None
    unsynced_max_age_s: float = 10.0
    kafka_commit_interval_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What a channel reads. The one answer to whether it reads a topic; exactly one of the three says something."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: tuple[AssignedPartition, ...] = ()

    def has(self, topic: str) -> bool:
        """Whether records of *topic* come to the channel; with ``assign`` those of some of its partitions at least."""
        if self.pattern is not None:
            return TopicPattern(self.pattern).match(topic)
        return topic in self.topics or any(topic == one.partition.topic for one in self.assign)

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether records of *partition* come to the channel, or to another member of its group."""
        if self.assign:
            return any(one.partition == partition for one in self.assign)
        return self.has(partition.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingSettings:
    """One incoming channel. ``client`` holds raw properties for the consumer under aiokafka's names.

    Exactly one of ``topics``, ``pattern`` and ``assign`` says what is read. ``group_id`` is None only with ``assign``.
    ``checkpoint`` is there with the commit strategy of that name, and only then.
    Strategies are the name of a built-in one or ``module:object``; ``dead_letter_queue`` and ``delayed_retry`` are
    there where a strategy, a route or ``on_poison`` needs them. ``places`` says where each key was given, for errors.
    """

    name: str
    topics: tuple[str, ...]
    group_id: str | None
    pattern: str | None = None
    assign: tuple[AssignedPartition, ...] = ()
    auto_offset_reset: OffsetReset = "latest"
    value_deserializer: str | None = None
    key_deserializer: str | None = None
    commit_strategy: str = "throttled"
    commit_latest_unsafe: bool = False
    enable_auto_commit: bool = False
    commit_interval_s: float = 5.0
    unprocessed_record_max_age_s: float = 60.0
    on_poison: OnPoison = "fail"
    failure_strategy: str = "fail"
    failure_routes: Mapping[str, str] = field(default_factory=dict)
    dead_letter_queue: DeadLetterSettings | None = None
    delayed_retry: DelayedRetrySettings | None = None
    checkpoint: CheckpointSettings | None = None
    keep_out_of_order_acks: bool = False
    offset_metadata_deserializer: str | None = None
    offset_metadata_cache: bool = True
    offset_metadata_strategy: Literal["current", "exact"] = "current"
    ordering: Ordering = "partition"
    key: str | None = None
    ack: AckMode = "post"
    concurrency: int = 1
    consumers: int = 1
    batch_max_records: int = 500
    batch_max_wait_s: float = 1.0
    max_in_flight: int = 1000
    max_in_flight_is_set: bool = False
    drain_timeout_s: float = 30.0
    revoke_grace_s: float = 5.0
    retry: RetrySettings = field(default_factory=RetrySettings)
    restart: RestartSettings = field(default_factory=RestartSettings)
    spark: SparkChannelSettings = field(default_factory=SparkChannelSettings)
    client: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def reads(self) -> Reads:
        """What the channel reads, its retry topics aside."""
        return Reads(topics=self.topics, pattern=self.pattern, assign=self.assign)

    def place(self, key: str, value: object) -> str:
        """How an error about *key* begins: ``my.toml, line 3: [incoming.orders] key = 'shop:tenant'``."""
        return self.places.get(key, f"channel {self.name!r}: {key} = {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingSettings:
    """One outgoing channel. ``client`` holds raw properties for the producer under aiokafka's names."""

    name: str
    topic: str
    value_serializer: str | None = None
    key_serializer: str | None = None
    max_in_flight: int = 1024
    wait_for_write: bool = True
    send_timeout_s: float = 30.0
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The Spark session of the application, ``conf`` as the user gave it.

    ``remote`` (``sc://host:port``) is a Spark Connect server; without it a classic session with ``master``. ``jars`` is
    the folder of the Kafka connector, which ``ranges`` mode needs.
    """

    master: str = "local[*]"
    remote: str | None = None
    jars: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def place(self, key: str, value: object) -> str:
        """How an error about *key* begins: ``my.toml, line 3: [spark] jars = '/jars'``."""
        return self.places.get(key, f"[spark] {key} = {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where health and metrics are served; port 0 takes a free one."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 9000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything an application was configured with. ``source`` says where from, for errors."""

    source: str = "code"
    bootstrap_servers: str = "localhost:9092"
    incoming: Mapping[str, IncomingSettings] = field(default_factory=dict)
    outgoing: Mapping[str, OutgoingSettings] = field(default_factory=dict)
    spark: SparkSettings = field(default_factory=SparkSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
