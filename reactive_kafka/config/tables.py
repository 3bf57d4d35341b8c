"""How a field of a settings class says what users may write for it, and the settings of the tables
inside a channel's.

A field names its kind, default and meaning once for everybody: the defaults of the settings, the
loader, the dump, the reference page and "did you mean" all come from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args, overload

from reactive_kafka.config.incoming_values import EXCEPTIONS, RETRY_TOPICS, SHARE, STATE, STORE
from reactive_kafka.config.values import (
    BOOLEAN,
    COUNT,
    REGISTRIES,
    SIZE,
    SOME_TIME,
    TEXT,
    TIME,
    TOKEN,
    TOPIC,
    Kind,
    choice,
    integer,
)
from reactive_kafka.formats.registered.channel_schemas import SubjectStrategy

T = TypeVar("T")
# Of a field's metadata.
_KEY = "key"
_TABLE = "table"
SparkMode = Literal["records", "ranges"]
OnBatchFailure = Literal["nack", "bisect"]
EventMode = Literal["binary", "structured"]
# Each has a thread here and in the driver.
MOST_JOBS = 256


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section."""

    # As users write it; "table.key" for one in a table of its own.
    name: str
    kind: Kind[Any]
    # As users would write it; None: there is none, or the doc names it.
    default: Any
    doc: str
    # Its field in the section's settings, dotted like the name; empty: a field of another kind has
    # it.
    target: str = ""

    @property
    def parsed_default(self) -> Any:
        """The default as the settings have it: seconds, bytes."""
        return None if self.default is None else self.kind.parse(self.default)


def described(kind: Kind[Any], doc: str, default: object = None) -> Mapping[str, Any]:
    """The metadata of a field that a key sets. The field has no default of its own: the loader
    finds one.
    """
    return {_KEY: (kind, default, doc)}


@overload
def setting(kind: Kind[T], default: None, doc: str) -> T | None: ...
@overload
def setting(kind: Kind[T], default: object, doc: str) -> T: ...
def setting(kind: Kind[T], default: object, doc: str) -> Any:
    """A field that a key sets. *default* is as users write it (``"5s"``), the field's own what that
    means (5.0).
    """
    return field(
        default=None if default is None else kind.parse(default),
        metadata=described(kind, doc, default),
    )


def table(settings: type) -> Mapping[str, Any]:
    """The metadata of a field that holds the settings of a table: its keys are those of
    *settings*.
    """
    return {_TABLE: settings}


def keys_of(settings: type, inside: str = "") -> dict[str, Key]:
    """Name -> key, for the fields of a settings class (of the table *inside*, ``retry.``) and of
    its tables.
    """
    found: dict[str, Key] = {}
    for each in fields(settings):
        if _TABLE in each.metadata:
            found |= keys_of(each.metadata[_TABLE], f"{each.name}.")
        elif _KEY in each.metadata:
            # Seconds are a matter of the settings: users write a unit.
            name = inside + each.name.removesuffix("_s")
            kind, default, doc = each.metadata[_KEY]
            found[name] = Key(name, kind, default, doc, inside + each.name)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """In-place retries of a handler."""

    max_attempts: int = setting(
        COUNT, 1, "Calls of a handler for one record in all, before its failure strategy."
    )
    backoff_s: float = setting(
        TIME, "200ms", "Wait before the second call; it doubles before each further one."
    )
    max_backoff_s: float = setting(TIME, "10s", "Longest wait between two calls.")
    jitter: float = setting(
        SHARE, 0, "The share of a wait by which chance makes it longer or shorter."
    )
    never: tuple[str, ...] | None = setting(
        EXCEPTIONS, None, "Exceptions after which there is no other call; their subclasses too."
    )
    only: tuple[str, ...] | None = setting(
        EXCEPTIONS, None, "The only exceptions after which there is another call."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSettings:
    """Restarts of a failed channel."""

    max_attempts: int = setting(
        integer(0), 0, "Restarts of a failed channel in a row; 0: it stays down."
    )
    backoff_s: float = setting(
        TIME, "1s", "Wait before the first restart; it doubles before each further one."
    )
    max_backoff_s: float = setting(TIME, "1m", "Longest wait before a restart.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    """Where dead letters go. ``client`` holds the producer's properties: the channel's connection
    and the table's.
    """

    topic: str = field(
        metadata=described(TOPIC, "Where dead letters go; default: `dead-letter-topic-<channel>`.")
    )
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedRetrySettings:
    """The topics of delayed retries. ``client`` holds their consumer's properties: the channel's
    and the table's.
    """

    topics: tuple[str, ...] = field(
        metadata=described(
            RETRY_TOPICS,
            "The topics of the retries; default: `<channel>_retry_10000`, `_20000`, `_50000`.",
        )
    )
    max_retries: int = field(
        metadata=described(
            COUNT,
            "Retries before a dead letter; default: the number of topics. Further ones use the last topic.",
        )
    )
    timeout_s: float = setting(
        SOME_TIME,
        "2m",
        "A retry that would come later than this after the first failure is a dead letter instead.",
    )
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkChannelSettings:
    """How a channel's records are cut into Spark batches, and how those run. ``pool`` None: the
    channel's name.
    """

    mode: SparkMode = setting(
        choice(*get_args(SparkMode)),
        "records",
        "`records`: this process ships them to Spark; `ranges`: only offsets travel, and executors read Kafka.",
    )
    batch_max_records: int = setting(
        COUNT, 50_000, "Most records of a Spark batch; with `ranges`, most offsets."
    )
    batch_max_bytes: int = setting(
        SIZE, "64MiB", "Most bytes of keys and values in a Spark batch (not with `ranges`)."
    )
    batch_max_wait_s: float = setting(TIME, "2s", "How long a Spark batch waits to fill.")
    timeout_s: float = setting(
        SOME_TIME, "10m", "A Spark job that runs longer is cancelled and nacked."
    )
    max_concurrent_jobs: int = setting(
        integer(1, MOST_JOBS), 1, "Spark batches of the channel that run at once."
    )
    pool: str | None = setting(
        TEXT, None, "The jobs' pool in Spark's FAIR scheduler; default: the channel's name."
    )
    on_failure: OnBatchFailure = setting(
        choice(*get_args(OnBatchFailure)),
        "nack",
        "What a batch with bad data nacks: all of it (`nack`), or only the bad records, found by splitting (`bisect`).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Where positions and states are kept, with ``commit_strategy = "checkpoint"``."""

    store: str = field(
        metadata=described(STORE, "Where positions and states are kept; required for `checkpoint`.")
    )
    state: str | None = setting(STATE, None, "The type of states; default: any JSON value.")
    unsynced_max_age_s: float = setting(
        TIME,
        "10s",
        "Readiness reports settled records that the store has not got after this time; 0 turns that off.",
    )
    kafka_commit_interval_s: float = setting(
        SOME_TIME,
        "1m",
        "How often the store's positions are committed to Kafka as well; also when an assignment ends.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEventsSettings:
    """What an outgoing channel makes CloudEvents of, and what it gives to those that do not say it
    themselves.
    """

    every: bool = (
        # Every value is written as one, by ``cloud_events = true`` or a table; else values that are
        # one.
        False
    )
    mode: EventMode = setting(
        choice(*get_args(EventMode)),
        "binary",
        "`binary`: attributes are headers, and the value is the data; `structured`: both are in an envelope of JSON.",
    )
    type: str | None = setting(TEXT, None, "The `type` of events that have none.")
    source: str | None = setting(TEXT, None, "The `source` of events that have none.")
    subject: str | None = setting(TEXT, None, "The `subject` of events that have none.")
    data_content_type: str | None = setting(
        TEXT,
        None,
        "The `datacontenttype` of events that have none; default: by what writes the data.",
    )
    data_schema: str | None = setting(TEXT, None, "The `dataschema` of events that have none.")
    insert_timestamp: bool = setting(
        BOOLEAN, True, "Events without a `time` get the time of sending."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSettings:
    """The schema of a channel's values, where their format has one. ``subject`` and ``register``
    are the writer's.
    """

    file: str | None = setting(
        TEXT,
        None,
        "The schema's file (`.avsc`, `.json`, `.proto`): what is read is resolved to it, what is written has it. "
        "Default: the writer's schema, or one made from the type of what is sent.",
    )
    subject: SubjectStrategy = setting(
        choice(*get_args(SubjectStrategy)),
        "topic",
        "What a schema is registered under: the topic with `-value` or `-key` behind it, its own name, or both.",
    )
    register: bool = setting(
        BOOLEAN,
        True,
        "Register schemas that the subject does not have; `false`: it must have them already.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """Whether an application makes OpenTelemetry spans. ``enabled`` None: where it can."""

    enabled: bool | None = setting(
        BOOLEAN,
        None,
        "Make spans of handlers' calls and of sends; default: where the extra `[otel]` is installed and there is a "
        "tracer provider. With `true` the extra must be installed, and a missing provider is told.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistrySettings:
    """The schema registry of an application, which speaks Confluent's REST API."""

    url: tuple[str, ...] | None = setting(
        REGISTRIES,
        None,
        "Where the registry is; several URLs are tried in turn. `memory://` is one inside the process, for tests.",
    )
    username: str | None = setting(TEXT, None, "The user of basic authentication.")
    password: str | None = setting(
        TEXT, None, "The user's password, better in a file: `password_file`."
    )
    token: str | None = setting(TOKEN, None, "A bearer token, better in a file: `token_file`.")
    ssl_cafile: str | None = setting(
        TEXT, None, "The certificates to trust; default: those of the system."
    )
    ssl_certfile: str | None = setting(TEXT, None, "The client's own certificate.")
    ssl_keyfile: str | None = setting(TEXT, None, "Its key, if that is not in the same file.")
    timeout_s: float = setting(
        SOME_TIME, "5s", "How long an answer may take; then the registry is asked again."
    )
