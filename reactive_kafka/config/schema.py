"""The settings of an application, as frozen values: the loader makes them and everybody else reads
them.

Durations are seconds, sizes are bytes. A field that users set carries its key, see
:mod:`reactive_kafka.config.tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, Literal, get_args

from reactive_kafka.config.incoming_values import (
    ASSIGN,
    GROUP,
    ORDERING_KEY,
    PATTERN,
    RATE,
    Assigned,
    AssignedPartition,
    AssignedTopic,
    RateLimit,
    ranges_of,
)
from reactive_kafka.config.tables import (
    CheckpointSettings,
    CloudEventsSettings,
    DeadLetterSettings,
    DelayedRetrySettings,
    RestartSettings,
    RetrySettings,
    SchemaRegistrySettings,
    SchemaSettings,
    SparkChannelSettings,
    TracingSettings,
    described,
    setting,
    table,
)
from reactive_kafka.config.values import (
    BOOLEAN,
    COUNT,
    HEADER_NAMES,
    HOSTS,
    MASTER,
    OBJECT,
    REMOTE,
    SERVERS,
    SIZE,
    SOME_TIME,
    TEXT,
    TIME,
    TOKEN,
    TOPIC,
    TOPICS,
    choice,
    integer,
)
from reactive_kafka.formats.format_names import FORMATS, KEY_FORMATS, REGISTERED_FORMATS
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Ranges, Subscription, Topics

OnUnreadable = Literal["wait", "skip", "fail"]
OnPoison = Literal["fail", "pause-partition", "dead-letter-queue", "warn"]
Ordering = Literal["partition", "key", "unordered"]
AckMode = Literal["post", "manual", "pre", "none"]
OnRecreatedTopic = Literal["beginning", "fail"]
OffsetReset = Literal["latest", "earliest", "none"]
Keyless = Literal["ordered", "unordered"]
Unmatched = Literal["nack", "skip"]
MetadataStrategy = Literal["current", "exact"]

FORMAT = choice(*FORMATS, imported="module:function")
KEY_FORMAT = choice(*KEY_FORMATS, *REGISTERED_FORMATS, imported="module:function")
METADATA_FORMAT = choice(*KEY_FORMATS, imported="module:function")
_HEALTH = (
    "The channel counts in the probes; with `false` none of them knows it, whatever becomes of it."
)
_TRACING = "The channel makes spans, where tracing is on; with `false` it makes none, and leaves headers as they are."
_LETTERS = "dead-letter-queue"
_RETRIES = "delayed-retry-topic"
FAILURE = choice(
    "fail",
    "ignore",
    _LETTERS,
    _RETRIES,
    imported="module:object",
    elsewhere={
        "dlq": _LETTERS,
        "dlt": _LETTERS,
        "retry": _RETRIES,
        "skip": "ignore",
        "log": "ignore",
        "stop": "fail",
    },
)


def subscription_of(
    topics: tuple[str, ...], pattern: str | None, assign: Sequence[Assigned]
) -> Subscription:
    """What a channel reads: at most one of the three says something."""
    if pattern is not None:
        return Pattern(pattern)
    named = dict.fromkeys(one.partition for one in assign if isinstance(one, AssignedPartition))
    whole = tuple(one.topic for one in assign if isinstance(one, AssignedTopic))
    return Partitions(tuple(named), whole) if assign else Topics(topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingSettings:
    """One incoming channel.

    Exactly one of ``topics``, ``pattern`` and ``assign`` says what is read. ``group_id`` is None
    only with ``assign``. ``checkpoint`` is there only with the commit strategy of that name,
    ``dead_letter_queue`` and ``delayed_retry`` only where a strategy, a route or ``on_poison``
    needs them. ``client`` holds the consumer's raw properties under aiokafka's names. ``places``
    says where each key was given, for errors.
    """

    name: str
    topics: tuple[str, ...] = field(
        metadata=described(TOPICS, "Several topics to read, instead of `topic`.")
    )
    pattern: str | None = setting(
        PATTERN, None, "All topics whose names match, new ones included, instead of `topic`."
    )
    assign: tuple[Assigned, ...] = field(
        default=(),
        metadata=described(
            ASSIGN,
            "These partitions, without a share in the group's, instead of `topic`; starts begin at their offset, and "
            "what has an end is done there.",
        ),
    )
    group_id: str | None = field(
        metadata=described(
            GROUP,
            "The consumer group; required, except for `assign` with `commit_strategy` `ignore` or `checkpoint`, or "
            "with ranges alone. `false` takes away an inherited one. Ranges inherit none: theirs stands with them in "
            "one table of one file.",
        )
    )
    enabled: bool = setting(
        BOOLEAN,
        True,
        "`false`: the channel is not started with the application, but by `channel.start()`.",
    )
    auto_offset_reset: OffsetReset = setting(
        choice(*get_args(OffsetReset)),
        "latest",
        "Where to start if the group has no committed position; `none` is an error.",
    )
    on_recreated_topic: OnRecreatedTopic = setting(
        choice(*get_args(OnRecreatedTopic)),
        "beginning",
        "What a topic does that was deleted and made anew: it is read from its beginning, or stops the channel.",
    )
    value_deserializer: str | None = setting(
        FORMAT, None, "How values are read; default: by the handler's annotation."
    )
    key_deserializer: str | None = setting(KEY_FORMAT, None, "How keys are read; default: bytes.")
    cloud_events: bool = setting(
        BOOLEAN,
        True,
        "CloudEvents are found by their headers: handlers get the data of one, and `message.cloud_event`. `false`: a "
        "record is its bytes, whatever its headers say.",
    )
    commit_strategy: str = setting(
        choice("throttled", "latest", "ignore", "checkpoint", imported="module:object"),
        "throttled",
        "`throttled` commits the records settled without a gap every `commit_interval`, `latest` at each ack, `ignore` "
        "never; `checkpoint` is `throttled` with a store of your own, `module:object` a strategy of your own. Where "
        "`assign` has ranges alone and there is no `group_id`: `ignore`.",
    )
    commit_latest_unsafe: bool = setting(
        BOOLEAN,
        False,
        "`latest` commits past unsettled records; after a crash they are not read again.",
    )
    enable_auto_commit: bool = setting(
        BOOLEAN,
        False,
        "The client commits what it has read, settled or not; `commit_strategy` is then `ignore`.",
    )
    commit_interval_s: float = setting(
        SOME_TIME,
        "5s",
        "How often `throttled` or `enable_auto_commit` commits, and `checkpoint` writes to its store.",
    )
    commit_every: int | None = setting(
        COUNT,
        None,
        "`throttled` and `checkpoint` also commit as soon as so many offsets are settled and not committed; default: "
        "only every `commit_interval`.",
    )
    unprocessed_record_max_age_s: float = setting(
        TIME, "60s", "A record unsettled for longer is poison; 0 turns this off."
    )
    on_poison: OnPoison = setting(
        choice(*get_args(OnPoison)),
        "fail",
        "What a poison record does: it stops the channel or its partition, becomes a dead letter, or is only reported.",
    )
    failure_strategy: str = setting(
        FAILURE,
        "fail",
        "What a nack does: it stops the channel; is logged and settled; writes the record to the dead-letter topic, or "
        "to a topic that is read again later. `module:object` is a strategy of your own.",
    )
    on_unreadable: OnUnreadable = setting(
        choice(*get_args(OnUnreadable)),
        "wait",
        "What a batch that cannot be read does: its partition waits and tries again, passes over it, or the channel "
        "stops.",
    )
    max_unpacked_bytes: int = setting(
        SIZE, "256MiB", "A batch that unpacks to more is not unpacked: it cannot be read."
    )
    ordering: Ordering = setting(
        choice(*get_args(Ordering)),
        "partition",
        "`partition`: one record of a partition at a time, in order; `key`: one of a key at a time, so that other keys "
        "may overtake; `unordered`: as soon as a worker is free.",
    )
    key: str | None = setting(
        ORDERING_KEY, None, 'What `ordering = "key"` goes by; default: the record\'s key.'
    )
    keyless: Keyless = setting(
        choice(*get_args(Keyless)),
        "ordered",
        'With `ordering = "key"`, records without a key: `ordered`: one of a partition at a time, as if they had the '
        "same key; `unordered`: as soon as a worker is free.",
    )
    ack: AckMode = setting(
        choice(*get_args(AckMode)), "post", "When a record is acked; a decorator may override it."
    )
    filter: str | None = setting(
        OBJECT,
        None,
        "`module:function` of the decoded `Message`: where it returns `False`, the record is skipped.",
    )
    max_record_age_s: float | None = setting(
        SOME_TIME,
        None,
        "A record whose timestamp is older when its handler would be called is skipped.",
    )
    unmatched: Unmatched = setting(
        choice(*get_args(Unmatched)),
        "nack",
        "What a record becomes that none of several handlers takes: nacked with `UnmatchedRecordError`, or skipped.",
    )
    broadcast: bool = setting(
        BOOLEAN,
        False,
        "A record goes to all handlers of the channel that take it, and is acked when all are done.",
    )
    concurrency: int = setting(COUNT, 1, "Handlers of the channel that run at once.")
    rate_limit: RateLimit | None = setting(
        RATE,
        None,
        "Most records that a channel starts in each process, after a burst of one second's worth (at least one); the "
        "others wait in their order.",
    )
    concurrency_per_partition: int | None = setting(
        COUNT,
        None,
        "Handlers of one partition that run at once, with `ordering` `key` or `unordered`; default: no cap but "
        "`concurrency`.",
    )
    consumers: int = setting(
        COUNT, 1, "Members of the group in this process, each with a connection."
    )
    batch_max_records: int = setting(COUNT, 500, "Most records in the batch of a `Batch` handler.")
    batch_max_wait_s: float = setting(TIME, "1s", "How long a batch waits to fill.")
    max_in_flight: int = setting(
        COUNT,
        1000,
        "Most records delivered or queued and not settled; fetching pauses at that number. The default grows with "
        "`concurrency`, with batches, and with many partitions: at least one record each.",
    )
    max_in_flight_is_set: bool = False
    max_uncommitted: int | None = setting(
        COUNT,
        None,
        "Most offsets that are settled and not committed: fetching pauses at that number, and at half of it a commit "
        "is sent before its time. Default: ten times `max_in_flight`, at least 10,000; that pauses only while commits "
        "are refused or late, and at ten times as many at any moment.",
    )
    drain_timeout_s: float = setting(TIME, "30s", "How long a stop waits for records in flight.")
    revoke_grace_s: float = setting(
        TIME, "5s", "How long a revocation waits for records in flight."
    )
    keep_out_of_order_acks: bool = setting(
        BOOLEAN,
        False,
        "Acks above the committed position are stored with it; a crash does not repeat those records.",
    )
    offset_metadata_deserializer: str | None = setting(
        METADATA_FORMAT,
        None,
        "How `channel.offset_metadata()` reads the stored string; default: the string itself.",
    )
    offset_metadata_cache: bool = setting(
        BOOLEAN,
        True,
        "`channel.offset_metadata()` answers from memory between rebalances; `false` asks the broker.",
    )
    offset_metadata_strategy: MetadataStrategy = setting(
        choice(*get_args(MetadataStrategy)),
        "current",
        "Which string goes with a position when records are settled out of order: `current`: the newest one supplied; "
        "`exact`: that of the last record before the position, else the newest.",
    )
    health_enabled: bool = setting(BOOLEAN, True, _HEALTH)
    tracing_enabled: bool = setting(BOOLEAN, True, _TRACING)
    checkpoint: CheckpointSettings | None = field(default=None, metadata=table(CheckpointSettings))
    retry: RetrySettings = field(default_factory=RetrySettings, metadata=table(RetrySettings))
    restart: RestartSettings = field(
        default_factory=RestartSettings, metadata=table(RestartSettings)
    )
    failure_routes: Mapping[str, str] = field(default_factory=dict)
    # The routes that let retries in place go first.
    after_retries: frozenset[str] = frozenset()
    dead_letter_queue: DeadLetterSettings | None = field(
        default=None, metadata=table(DeadLetterSettings)
    )
    delayed_retry: DelayedRetrySettings | None = field(
        default=None, metadata=table(DelayedRetrySettings)
    )
    spark: SparkChannelSettings = field(
        default_factory=SparkChannelSettings, metadata=table(SparkChannelSettings)
    )
    schema: SchemaSettings = field(default_factory=SchemaSettings, metadata=table(SchemaSettings))
    client: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def routes_after_retries(self) -> Mapping[str, bool]:
        """The exception of each route -> whether retries in place go first."""
        return {name: name in self.after_retries for name in self.failure_routes}

    @property
    def most_uncommitted(self) -> int:
        """``max_uncommitted``, or its default, which follows ``max_in_flight``."""
        return (
            max(10_000, 10 * self.max_in_flight)
            if self.max_uncommitted is None
            else self.max_uncommitted
        )

    @property
    def subscription(self) -> Subscription:
        """What the channel reads, its retry topics aside."""
        return subscription_of(self.topics, self.pattern, self.assign)

    @property
    def ranges(self) -> Mapping[TopicPartition, Ranges]:
        """The offsets that are read of partitions that have an end."""
        return ranges_of(self.assign)

    def place(self, key: str, value: object) -> str:
        """How an error about *key* begins: ``my.toml, line 3: [incoming.orders] key =
        'shop:tenant'``.
        """
        return self.places.get(key, f"channel {self.name!r}: {key} = {value!r}")


def shared_by_replays(
    channels: Iterable[IncomingSettings],
) -> Iterator[tuple[IncomingSettings, IncomingSettings, str]]:
    """Channels that read ranges in the group of another one, which reads the topic, too: both, and
    the topic.
    """
    every = tuple(channels)
    replays = [(one, {partition.topic for partition in one.ranges}) for one in every if one.assign]
    for (replay, topics), other in product(replays, every):
        is_shared = (
            replay is not other
            and replay.group_id is not None
            and replay.group_id == other.group_id
        )
        if is_shared and replay.client["bootstrap_servers"] == other.client["bootstrap_servers"]:
            topic = next(filter(other.subscription.reads, sorted(topics)), None)
            if topic is not None:
                yield replay, other, topic


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingSettings:
    """One outgoing channel.

    ``cloud_events`` is None where it writes no CloudEvents at all. ``client`` holds the producer's
    raw properties under aiokafka's names.
    """

    name: str
    topic: str = field(
        metadata=described(TOPIC, "The topic to write to; default: the channel's name.")
    )
    value_serializer: str | None = setting(
        FORMAT,
        None,
        "How values are written; default: bytes and strings as they are, anything else as json.",
    )
    key_serializer: str | None = setting(
        KEY_FORMAT, None, "How keys are written; default: bytes and strings as they are."
    )
    max_in_flight: int = setting(
        COUNT, 1024, "Most records sent and not confirmed; at that number senders wait."
    )
    wait_for_write: bool = setting(
        BOOLEAN,
        False,
        "Whether a handler's next record waits until the broker has confirmed what the last one made. "
        "The ack follows the write either way.",
    )
    send_timeout_s: float = setting(
        SOME_TIME, "30s", "How long a send waits for the broker's confirmation."
    )
    linger_s: float = setting(
        TIME,
        0,
        "How long a record waits for others to be written with. While a batch is on its way others gather.",
    )
    partitioner: str | None = setting(
        OBJECT,
        None,
        "Chooses partitions from the key in bytes (or None) and their number; default: as Java's clients.",
    )
    propagate_key: bool = setting(
        BOOLEAN,
        False,
        "Records that set no key get that of the incoming record, as it stands there.",
    )
    propagate_headers: Sequence[str] | None = setting(
        HEADER_NAMES,
        None,
        "Headers of the incoming record that its outgoing ones get, too, unless they set them.",
    )
    transactional_id: str | None = setting(
        TEXT,
        None,
        "Makes the channel transactional; the beginning of its producers' ids. What a handler sends is committed "
        "together with the position behind its record.",
    )
    reply_topic: str | None = setting(
        TOPIC,
        None,
        "Where replies to this channel's requests arrive; default: the topic's name with `-replies` after it.",
    )
    health_enabled: bool = setting(BOOLEAN, True, _HEALTH)
    tracing_enabled: bool = setting(BOOLEAN, True, _TRACING)
    cloud_events: CloudEventsSettings | None = field(
        default_factory=CloudEventsSettings, metadata=table(CloudEventsSettings)
    )
    schema: SchemaSettings = field(default_factory=SchemaSettings, metadata=table(SchemaSettings))
    client: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """One memory channel. ``place`` says where its table stands, for errors."""

    name: str
    max_in_flight: int = setting(
        COUNT,
        1000,
        "Most values that wait for the handler or are not settled; at that number senders wait.",
    )
    place: str = field(default="", repr=False, compare=False)
    # Nothing is written, and a value is settled when it is.
    wait_for_write: ClassVar[bool] = False
    send_timeout_s: ClassVar[float | None] = None
    health_enabled: ClassVar[bool] = True
    tracing_enabled: ClassVar[bool] = True

    @property
    def as_incoming(self) -> IncomingSettings:
        """What its handler goes by: one value at a time, in their order; nothing is fetched,
        committed or watched.
        """
        settings = IncomingSettings(
            name=self.name,
            topics=(self.name,),
            group_id=None,
            commit_strategy="ignore",
            unprocessed_record_max_age_s=0,
            max_in_flight=self.max_in_flight,
            max_in_flight_is_set=True,
        )
        return replace(
            settings, batch_max_records=min(self.max_in_flight, settings.batch_max_records)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The Spark session of the application. ``conf`` is what the user gave, unchanged."""

    master: str = setting(MASTER, "local[*]", "The Spark master of the application's own session.")
    remote: str | None = setting(REMOTE, None, "A Spark Connect server, instead of `master`.")
    jars: str | None = setting(
        TEXT,
        None,
        "The folder of Kafka's connector for `ranges` (`reactive-kafka spark jars --to DIR`); default: the cache.",
    )
    conf: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def place(self, key: str, value: object) -> str:
        """How an error about *key* begins: ``my.toml, line 3: [spark] jars = '/jars'``."""
        return self.places.get(key, f"[spark] {key} = {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where health and metrics are served."""

    enabled: bool = setting(BOOLEAN, True, "Serve health and metrics.")
    host: str = setting(TEXT, "127.0.0.1", "The address to listen on.")
    port: int = setting(integer(0, 65535), 9000, "The port; 0 takes a free one.")
    hosts: Sequence[str] | None = setting(
        HOSTS,
        None,
        "Names by which the server may be asked, besides `localhost`, IP addresses and `host`. By any other name the "
        "page and `/api` are refused; on a loopback address everything is.",
    )
    token: str | None = setting(
        TOKEN,
        None,
        "A bearer token, better in a file: `token_file`. Whatever changes something needs it; beyond a loopback "
        "address reading the page and `/api` does, too; probes and `/metrics` never.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything an application was configured with.

    ``source`` says where from, for errors. ``warnings`` are told at the start: what works, and
    should be mended.
    """

    source: str = "code"
    bootstrap_servers: str = setting(
        SERVERS,
        "localhost:9092",
        "The brokers to ask first; `embedded` starts one inside the process, for development only.",
    )
    incoming: Mapping[str, IncomingSettings] = field(default_factory=dict)
    outgoing: Mapping[str, OutgoingSettings] = field(default_factory=dict)
    memory: Mapping[str, MemorySettings] = field(default_factory=dict)
    spark: SparkSettings = field(default_factory=SparkSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    schema_registry: SchemaRegistrySettings = field(default_factory=SchemaRegistrySettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    warnings: tuple[str, ...] = ()
