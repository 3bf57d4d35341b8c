"""The settings of tables inside a section, and of the sections that are as small as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from reactive_kafka.config.fields import described, setting
from reactive_kafka.config.incoming_kinds import EXCEPTIONS, RETRY_TOPICS, SHARE, STATE, STORE
from reactive_kafka.config.kinds import (
    BOOLEAN,
    COUNT,
    REGISTRIES,
    SENT_TEXT,
    SIZE,
    SOME_TIME,
    TEXT,
    TIME,
    TOKEN,
    TOPIC,
    choice,
    integer,
)
from reactive_kafka.formats.registered.channel_schemas import SubjectStrategy

SparkMode = Literal["records", "ranges"]
OnBatchFailure = Literal["nack", "bisect"]
EventMode = Literal["binary", "structured"]
# Each job has a thread here and one in the driver.
MOST_JOBS = 256
# Kafka counts them in 16 bits.
MOST_REPLICAS = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """In-place retries of a handler."""

    max_attempts: int = setting(
        COUNT,
        1,
        "How often a handler is called for one record, in all.",
    )
    backoff_s: float = setting(
        TIME, "200ms", "Wait before the second call. It doubles before each further call."
    )
    max_backoff_s: float = setting(TIME, "10s", "The longest wait between two calls.")
    jitter: float = setting(SHARE, 0, "The share of a wait by which it varies at random.")
    never: tuple[str, ...] | None = setting(
        EXCEPTIONS, None, "Exceptions that are not retried, with their subclasses."
    )
    only: tuple[str, ...] | None = setting(
        EXCEPTIONS, None, "Retry only these exceptions and their subclasses. Default: all."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSettings:
    """Restarts of a failed channel."""

    max_attempts: int = setting(
        integer(0),
        0,
        "How often a failed channel is restarted in a row. With 0 it stays stopped.",
    )
    backoff_s: float = setting(
        TIME, "1s", "Wait before the first restart. It doubles before each further restart."
    )
    max_backoff_s: float = setting(TIME, "1m", "The longest wait before a restart.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    """Where dead letters go.

    ``client`` holds the properties of their producer: the channel's connection, and what the table
    adds.
    """

    topic: str = field(
        metadata=described(
            TOPIC, "The topic that dead letters go to. Default: `dead-letter-topic-<channel>`."
        )
    )
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedRetrySettings:
    """The topics of delayed retries.

    ``client`` holds the properties of their consumer: the channel's, and what the table adds.
    """

    topics: tuple[str, ...] = field(
        metadata=described(
            RETRY_TOPICS,
            "The topics of the retries, in their order. Default: `<channel>_retry_10000`, "
            "`_20000`, `_50000`.",
        )
    )
    max_retries: int = field(
        metadata=described(
            COUNT,
            "Retries before a record becomes a dead letter. Default: the number of topics.",
        )
    )
    timeout_s: float = setting(
        SOME_TIME,
        "2m",
        "A record is retried only this long after its first failure.",
    )
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkChannelSettings:
    """How a channel's records are cut into Spark batches, and how those run.

    ``pool`` None means the channel's name.
    """

    mode: SparkMode = setting(
        choice(*get_args(SparkMode)),
        "records",
        "`records`: this process ships the records to Spark. `ranges`: Spark's executors "
        "read Kafka.",
    )
    batch_max_records: int = setting(
        COUNT, 50_000, "The most records in a Spark batch. With `ranges`: the most offsets."
    )
    batch_max_bytes: int = setting(
        SIZE,
        "64MiB",
        "The most bytes of keys and values in a Spark batch, with `records`.",
    )
    batch_max_wait_s: float = setting(TIME, "2s", "How long a Spark batch waits to fill.")
    timeout_s: float = setting(
        SOME_TIME, "10m", "A Spark job that runs longer is cancelled, and its batch is nacked."
    )
    max_concurrent_jobs: int = setting(
        integer(1, MOST_JOBS), 1, "How many Spark batches of the channel run at once."
    )
    pool: str | None = setting(
        TEXT, None, "The jobs' pool in Spark's FAIR scheduler. Default: the channel's name."
    )
    on_failure: OnBatchFailure = setting(
        choice(*get_args(OnBatchFailure)),
        "nack",
        "Nack the whole batch if it has bad data, or find the bad records by splitting it.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Where positions and states are stored, with ``commit_strategy = "checkpoint"``."""

    store: str = field(
        metadata=described(
            STORE, "Where positions and states are stored. Required for `checkpoint`."
        )
    )
    state: str | None = setting(STATE, None, "The type of states. Default: any JSON value.")
    unsynced_max_age_s: float = setting(
        TIME,
        "10s",
        "Readiness fails if settled records are not in the store after this time.",
    )
    kafka_commit_interval_s: float = setting(
        SOME_TIME,
        "1m",
        "How often the store's positions are also committed to Kafka.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEventsSettings:
    """Which values an outgoing channel writes as CloudEvents, and the defaults of their attributes.

    ``every`` is true if all values are written as CloudEvents: by ``cloud_events = true``, or by a
    table. Otherwise only values that are CloudEvents are.
    """

    every: bool = False
    mode: EventMode = setting(
        choice(*get_args(EventMode)),
        "binary",
        "`binary`: attributes are headers. `structured`: all is in one JSON envelope.",
    )
    type: str | None = setting(TEXT, None, "The `type` of events that have none.")
    source: str | None = setting(TEXT, None, "The `source` of events that have none.")
    subject: str | None = setting(TEXT, None, "The `subject` of events that have none.")
    data_content_type: str | None = setting(
        TEXT,
        None,
        "The `datacontenttype` of events that have none. Default: by the value's format.",
    )
    data_schema: str | None = setting(TEXT, None, "The `dataschema` of events that have none.")
    insert_timestamp: bool = setting(
        BOOLEAN, True, "Give events without a `time` the time of sending."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSettings:
    """The schema of a channel's values, for formats that have one.

    ``subject`` and ``register`` are for writers.
    """

    file: str | None = setting(
        TEXT,
        None,
        "The file of the schema. Default: the schema of the writer, or one made from the "
        "type of what is sent.",
    )
    subject: SubjectStrategy = setting(
        choice(*get_args(SubjectStrategy)),
        "topic",
        "The subject: the topic with `-value` or `-key`, the schema's own name, or both.",
    )
    register: bool = setting(
        BOOLEAN,
        True,
        "Register schemas that the subject does not have yet.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """A topic as the configuration wants it, for ``reactive-kafka topics`` and for new topics.

    ``config`` has Kafka's names. What is None is not compared, and chosen when the topic is
    created. ``place`` says where the table is, for errors.
    """

    name: str
    partitions: int | None = setting(
        COUNT,
        None,
        "The number of partitions. A topic with fewer gets more.",
    )
    replication_factor: int | None = setting(
        integer(1, MOST_REPLICAS),
        None,
        "The number of replicas, for a new topic. Default: 3, or as many as there are brokers.",
    )
    create: bool = setting(
        BOOLEAN,
        False,
        "Create the topic like this when an application starts that needs it, if it is missing.",
    )
    config: Mapping[str, str] = field(default_factory=dict)
    place: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """A limit that several incoming channels share."""

    name: str
    concurrency: int = field(
        metadata=described(
            COUNT,
            "How many handlers of all channels with this `limit` run at once, in each process. "
            "Required.",
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """Whether an application makes OpenTelemetry spans and metrics. None means: if it can."""

    enabled: bool | None = setting(
        BOOLEAN,
        None,
        "Make OpenTelemetry spans and metrics. Default: if the extra `[otel]` is installed, spans "
        "if a tracer provider is set, and metrics if a meter provider is.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistrySettings:
    """The schema registry of an application. It speaks Confluent's REST API."""

    url: tuple[str, ...] | None = setting(
        REGISTRIES,
        None,
        "The URL of the registry. Several are tried in turn. `memory://` is for tests.",
    )
    username: str | None = setting(SENT_TEXT, None, "The user for basic authentication.")
    password: str | None = setting(SENT_TEXT, None, "The user's password (better `password_file`).")
    token: str | None = setting(TOKEN, None, "A bearer token (better `token_file`).")
    ssl_cafile: str | None = setting(
        TEXT, None, "The certificates to trust. Default: those of the system."
    )
    ssl_certfile: str | None = setting(TEXT, None, "The client's own certificate.")
    ssl_keyfile: str | None = setting(
        TEXT, None, "The certificate's key, if it is in a file of its own."
    )
    timeout_s: float = setting(
        SOME_TIME, "5s", "How long to wait for an answer before asking again."
    )
