"""The settings of an application, as frozen values. The loader makes them.

Durations are in seconds, sizes in bytes. A field that users set declares its configuration key, see
:mod:`reactive_kafka.config.fields`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, ClassVar, Literal, get_args

from reactive_kafka.config.fields import described, setting, table
from reactive_kafka.config.incoming_kinds import (
    ASSIGN,
    GROUP,
    ORDERING_KEY,
    PATTERN,
    RATE,
    Assigned,
    AssignedPartition,
    AssignedTopic,
    RateLimit,
    TimeRange,
    ranges_of,
    time_ranges_of,
)
from reactive_kafka.config.kinds import (
    BOOLEAN,
    CHANNEL_NAMES,
    COUNT,
    HEADER_NAMES,
    HOSTS,
    MASTER,
    OBJECT,
    PEERS,
    REMOTE,
    SENT_TEXT,
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
from reactive_kafka.config.tables import (
    CheckpointSettings,
    CloudEventsSettings,
    DeadLetterSettings,
    DelayedRetrySettings,
    LimitSettings,
    RestartSettings,
    RetrySettings,
    SchemaRegistrySettings,
    SchemaSettings,
    SparkChannelSettings,
    TopicSettings,
    TracingSettings,
)
from reactive_kafka.formats.format_names import FORMATS, KEY_FORMATS, REGISTERED_FORMATS
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Partitions, Pattern, Ranges, Subscription, Topics

OnUnreadable = Literal["wait", "skip", "fail"]
StaleResults = Literal["send", "drop"]
OnPoison = Literal["fail", "pause-partition", "dead-letter-queue", "warn"]
Ordering = Literal["partition", "key", "unordered"]
AckMode = Literal["post", "manual", "pre", "none"]
OnRecreatedTopic = Literal["beginning", "fail"]
OffsetReset = Literal["latest", "earliest", "none"]
Keyless = Literal["ordered", "unordered"]
Unmatched = Literal["nack", "skip"]
ReadyWhen = Literal["assigned", "caught-up"]
MetadataStrategy = Literal["current", "exact"]

FORMAT = choice(*FORMATS, imported="module:function")
KEY_FORMAT = choice(*KEY_FORMATS, *REGISTERED_FORMATS, imported="module:function")
METADATA_FORMAT = choice(*KEY_FORMATS, imported="module:function")
_HEALTH = "Include the channel in the probes."
_TRACING = "Make spans and metrics for the channel if tracing is on."
_LETTERS = "dead-letter-queue"
_RETRIES = "delayed-retry-topic"
PARTITIONER = choice(
    "murmur2",
    "crc32",
    imported="module:function",
    elsewhere={
        "murmur2_random": "murmur2",
        "consistent": "crc32",
        "consistent_random": "crc32",
    },
)
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
    """Return what a channel reads. At most one of the arguments may be set."""
    if pattern is not None:
        return Pattern(pattern)
    if not assign:
        return Topics(topics)
    partitions = dict.fromkeys(
        assigned.partition for assigned in assign if isinstance(assigned, AssignedPartition)
    )
    whole_topics = tuple(
        assigned.topic for assigned in assign if isinstance(assigned, AssignedTopic)
    )
    return Partitions(tuple(partitions), whole_topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingSettings:
    """One incoming channel.

    Exactly one of ``topics``, ``pattern`` and ``assign`` is set. ``group_id`` is None only with
    ``assign``. ``checkpoint`` is set only with the commit strategy of that name;
    ``dead_letter_queue`` and ``delayed_retry`` only if a strategy, a route or ``on_poison`` needs
    them. ``filter_headers`` holds header -> the values of which a record must have one.
    ``after_retries`` names the routes that let in-place retries go first. ``client`` holds
    the consumer's raw properties under aiokafka's names. ``places`` says where each key was given,
    for errors.
    """

    name: str
    topics: tuple[str, ...] = field(
        metadata=described(TOPICS, "The topics to read, instead of `topic`.")
    )
    pattern: str | None = setting(
        PATTERN,
        None,
        "Read all topics whose names match, also later ones, instead of `topic`.",
    )
    assign: tuple[Assigned, ...] = field(
        default=(),
        metadata=described(
            ASSIGN,
            "Read these partitions, without sharing them with the group.",
        ),
    )
    group_id: str | None = field(
        metadata=described(
            GROUP,
            "The consumer group. Required, except for `assign` with `commit_strategy` "
            "`ignore` or `checkpoint`, or with nothing but ranges. `false` removes an "
            "inherited group.",
        )
    )
    enabled: bool = setting(
        BOOLEAN,
        True,
        "Start the channel with the application, or else with `channel.start()`.",
    )
    auto_offset_reset: OffsetReset = setting(
        choice(*get_args(OffsetReset)),
        "latest",
        "Where to start if the group has no committed position. With `none` that is an error.",
    )
    on_recreated_topic: OnRecreatedTopic = setting(
        choice(*get_args(OnRecreatedTopic)),
        "beginning",
        "What to do with a recreated topic: read it from its beginning, or stop the channel.",
    )
    value_deserializer: str | None = setting(
        FORMAT, None, "How to read values. Default: by the handler's annotation."
    )
    key_deserializer: str | None = setting(KEY_FORMAT, None, "How to read keys. Default: bytes.")
    cloud_events: bool = setting(
        BOOLEAN,
        True,
        "Detect CloudEvents by their headers. With `false` a record is its bytes.",
    )
    commit_strategy: str = setting(
        choice("throttled", "latest", "ignore", "checkpoint", imported="module:object"),
        "throttled",
        "`throttled` commits every `commit_interval`, up to the first unsettled record; "
        "`latest` at each ack; `ignore` never; `checkpoint` to a store of your own. The "
        "default for ranges without a group is `ignore`.",
    )
    commit_latest_unsafe: bool = setting(
        BOOLEAN,
        False,
        "Let `latest` commit past unsettled records. After a crash they are not read again.",
    )
    enable_auto_commit: bool = setting(
        BOOLEAN,
        False,
        "Let the client commit what it has read, settled or not.",
    )
    commit_interval_s: float = setting(
        SOME_TIME,
        "5s",
        "How often `throttled`, `enable_auto_commit` and `checkpoint` commit.",
    )
    commit_every: int | None = setting(
        COUNT,
        None,
        "Commit earlier when this many offsets are settled and not committed, with "
        "`throttled` and `checkpoint`.",
    )
    unprocessed_record_max_age_s: float = setting(
        TIME, "60s", "A record that stays unsettled for longer is poison. 0 turns this off."
    )
    on_poison: OnPoison = setting(
        choice(*get_args(OnPoison)),
        "fail",
        "Stop the channel at a poison record, pause its partition, write it to the "
        "dead-letter topic, or only report it.",
    )
    attempt_timeout_s: float | None = setting(
        SOME_TIME,
        None,
        "Cancel a handler that takes longer. The attempt fails with a `TimeoutError`.",
    )
    failure_strategy: str = setting(
        FAILURE,
        "fail",
        "What a nack does: stop the channel; log the record and settle it; write it to "
        "the dead-letter topic; or write it to a topic that is read again later.",
    )
    on_unreadable: OnUnreadable = setting(
        choice(*get_args(OnUnreadable)),
        "wait",
        "What to do with a batch that cannot be read: try again, skip it, or stop the channel.",
    )
    max_unpacked_bytes: int = setting(
        SIZE,
        "256MiB",
        "The most bytes that a compressed batch may unpack to. A larger one cannot be read.",
    )
    ordering: Ordering = setting(
        choice(*get_args(Ordering)),
        "partition",
        "`partition`: one record of a partition at a time, in order. `key`: one record of"
        " a key at a time. `unordered`: as soon as a worker is free.",
    )
    key: str | None = setting(
        ORDERING_KEY, None, 'What `ordering = "key"` uses as key. Default: the record\'s key.'
    )
    keyless: Keyless = setting(
        choice(*get_args(Keyless)),
        "ordered",
        'How `ordering = "key"` treats records without a key: as if they had the same '
        "one, or as `unordered` does.",
    )
    ack: AckMode = setting(
        choice(*get_args(AckMode)),
        "post",
        "When a record is acked. A decorator may override this.",
    )
    filter: str | None = setting(
        OBJECT,
        None,
        "A record for which this function of the `Message` returns `False` is skipped.",
    )
    filter_headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    max_record_age_s: float | None = setting(
        SOME_TIME,
        None,
        "Skip a record that is older than this when its handler would be called.",
    )
    unmatched: Unmatched = setting(
        choice(*get_args(Unmatched)),
        "nack",
        "Nack a record that none of several handlers takes (`UnmatchedRecordError`), or skip it.",
    )
    broadcast: bool = setting(
        BOOLEAN,
        False,
        "Give each record to all handlers of the channel that take it.",
    )
    concurrency: int = setting(COUNT, 1, "How many handlers of the channel run at once.")
    limit: str | None = setting(
        TEXT,
        None,
        "The name of a `[limits.NAME]` table: its `concurrency` is shared with other channels.",
    )
    after: tuple[str, ...] = field(
        default=(),
        metadata=described(
            CHANNEL_NAMES,
            "Start records only while these channels have none waiting in this process.",
        ),
    )
    rate_limit: RateLimit | None = setting(
        RATE,
        None,
        "The most records that the channel starts, in each process. A table has a rate for each "
        "key, header or partition.",
    )
    concurrency_per_partition: int | None = setting(
        COUNT,
        None,
        "How many handlers of one partition run at once, with `ordering` `key` or `unordered`.",
    )
    consumers: int = setting(
        integer(1, 10_000),
        1,
        "Members of the group in this process, each with its own connection.",
    )
    batch_max_records: int = setting(
        COUNT, 500, "The most records in the batch of a `Batch` handler."
    )
    batch_max_bytes: int | None = setting(
        SIZE,
        None,
        "The most bytes of keys, values and headers in the batch of a `Batch` handler. A larger "
        "record is a batch of its own.",
    )
    batch_max_wait_s: float = setting(TIME, "1s", "How long a batch waits to fill.")
    max_in_flight: int = setting(
        COUNT,
        1000,
        "The most records that are queued or delivered and not settled. At that number "
        "fetching pauses. The default grows with `concurrency`, batches and partitions.",
    )
    max_in_flight_is_set: bool = False
    max_in_flight_bytes: int | None = setting(
        SIZE,
        None,
        "The most bytes of keys, values and headers in flight. At that number fetching pauses. "
        "Each partition may have one record in any case, and a planned range of a Spark channel "
        "comes whole. What is fetched and not yet received comes on top: `fetch.max.bytes` and "
        "`max.partition.fetch.bytes` bound that.",
    )
    max_uncommitted: int | None = setting(
        COUNT,
        None,
        "The most offsets that are settled and not committed. At that number fetching pauses; at "
        "half of it a commit is sent early. Default: ten times `max_in_flight`, at least 10,000, "
        "while commits are refused or late, and always ten times as many.",
    )
    drain_timeout_s: float = setting(TIME, "30s", "How long a stop waits for records in flight.")
    revoke_grace_s: float = setting(
        TIME, "5s", "How long a revocation waits for records in flight."
    )
    stale_results: StaleResults = setting(
        choice(*get_args(StaleResults)),
        "send",
        "What to do with what a handler returns after its partition is gone.",
    )
    keep_out_of_order_acks: bool = setting(
        BOOLEAN,
        False,
        "Store acks above the committed position with it. A crash does not repeat those records.",
    )
    offset_metadata_deserializer: str | None = setting(
        METADATA_FORMAT,
        None,
        "How `channel.offset_metadata()` reads the stored string. Default: as the string itself.",
    )
    offset_metadata_cache: bool = setting(
        BOOLEAN,
        True,
        "Answer `channel.offset_metadata()` from memory between rebalances.",
    )
    offset_metadata_strategy: MetadataStrategy = setting(
        choice(*get_args(MetadataStrategy)),
        "current",
        "Which string is committed: the newest one, or that of the last record before the"
        " position.",
    )
    health_enabled: bool = setting(BOOLEAN, True, _HEALTH)
    ready: ReadyWhen = setting(
        choice(*get_args(ReadyWhen)),
        "assigned",
        "When a channel that has started is ready: with its assignment, or once it has handled "
        "what was in its partitions then.",
    )
    tracing_enabled: bool = setting(BOOLEAN, True, _TRACING)
    checkpoint: CheckpointSettings | None = field(default=None, metadata=table(CheckpointSettings))
    retry: RetrySettings = field(default_factory=RetrySettings, metadata=table(RetrySettings))
    restart: RestartSettings = field(
        default_factory=RestartSettings, metadata=table(RestartSettings)
    )
    failure_routes: Mapping[str, str] = field(default_factory=dict)
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
        """The exception of each route -> whether in-place retries go first."""
        return {name: name in self.after_retries for name in self.failure_routes}

    @property
    def most_uncommitted(self) -> int:
        """``max_uncommitted``, or its default, which follows ``max_in_flight``."""
        if self.max_uncommitted is not None:
            return self.max_uncommitted
        return max(10_000, 10 * self.max_in_flight)

    @property
    def subscription(self) -> Subscription:
        """What the channel reads, without its retry topics."""
        return subscription_of(self.topics, self.pattern, self.assign)

    @property
    def ranges(self) -> Mapping[TopicPartition, Ranges]:
        """Partition -> the offsets to read, for partitions whose reading ends at an offset."""
        return ranges_of(self.assign)

    @property
    def time_ranges(self) -> Mapping[TopicPartition | str, TimeRange]:
        """Partition, or topic -> the times to read, where reading ends at a time."""
        return time_ranges_of(self.assign)

    def place(self, key: str, value: object) -> str:
        """Return the start of an error about *key*.

        For example ``my.toml, line 3: [incoming.orders] key = 'shop:tenant'``.
        """
        return self.places.get(key, f"channel {self.name!r}: {key} = {value!r}")


def shared_by_replays(
    channels: Iterable[IncomingSettings],
) -> Iterator[tuple[IncomingSettings, IncomingSettings, str]]:
    """Find channels that read ranges in the group of another channel that reads the same topic.

    Yields the channel with ranges, the other channel, and the topic.
    """
    all_channels = tuple(channels)
    replays = [channel for channel in all_channels if channel.assign]
    for replay, other in product(replays, all_channels):
        if replay is other or replay.group_id is None or replay.group_id != other.group_id:
            continue
        if replay.client["bootstrap_servers"] != other.client["bootstrap_servers"]:
            continue
        times = {one if isinstance(one, str) else one.topic for one in replay.time_ranges}
        topics = sorted(times | {partition.topic for partition in replay.ranges})
        shared_topic = next(filter(other.subscription.reads, topics), None)
        if shared_topic is not None:
            yield replay, other, shared_topic


def circles_of(channels: Mapping[str, IncomingSettings]) -> Iterator[tuple[str, ...]]:
    """Find channels that wait for each other by ``after``, or for themselves.

    Yields the names of each circle once, from its first channel on.
    """
    seen: set[str] = set()
    for first in channels:
        path = [first]
        while path:
            # Depth first; a channel is on the path only once.
            following = next(
                (
                    name
                    for name in channels[path[-1]].after
                    if name in channels and name not in seen
                ),
                None,
            )
            if following is None:
                seen.add(path.pop())
            elif following in path:
                yield tuple(path[path.index(following) :])
                seen.add(following)
            else:
                path.append(following)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingSettings:
    """One outgoing channel.

    ``cloud_events`` is None if it writes no CloudEvents at all. ``client`` holds the producer's raw
    properties under aiokafka's names.
    """

    name: str
    topic: str = field(
        metadata=described(TOPIC, "The topic to write to. Default: the channel's name.")
    )
    value_serializer: str | None = setting(
        FORMAT,
        None,
        "How to write values. Default: bytes and strings as they are, anything else as JSON.",
    )
    key_serializer: str | None = setting(
        KEY_FORMAT, None, "How to write keys. Default: bytes and strings as they are."
    )
    max_in_flight: int = setting(
        COUNT,
        1024,
        "The most records that are sent and not confirmed. At that number senders wait.",
    )
    wait_for_write: bool = setting(
        BOOLEAN,
        False,
        "Start a handler's next record only when the broker has confirmed what the last one sent.",
    )
    send_timeout_s: float = setting(
        SOME_TIME, "30s", "How long a send waits for the broker's confirmation."
    )
    linger_s: float = setting(
        TIME,
        0,
        "How long a record waits for others to share its batch.",
    )
    partitioner: str | None = setting(
        PARTITIONER,
        None,
        "Which partition a key goes to: as with Java's and kafka-python's producers, as with "
        "librdkafka's default, or what a function chooses of the key in bytes (or None) and the "
        "number of partitions. Default: `murmur2`.",
    )
    propagate_key: bool = setting(
        BOOLEAN,
        False,
        "Give records without a key that of the incoming record.",
    )
    propagate_headers: Sequence[str] | None = setting(
        HEADER_NAMES,
        None,
        "Copy these headers of the incoming record to its outgoing records.",
    )
    transactional_id: str | None = setting(
        SENT_TEXT,
        None,
        "What a handler sends is committed together with the position after its record. "
        "The ids of the producers begin with this text.",
    )
    outbox: bool = setting(
        BOOLEAN,
        False,
        "What a handler sends becomes rows of its checkpoint transaction (PostgreSQL or SQLite). "
        "They are relayed in order, each at least once.",
    )
    outbox_max_rows: int = setting(
        COUNT,
        100_000,
        "The most rows of the outbox that wait for an incoming channel's process. At that number "
        "transactions wait.",
    )
    reply_topic: str | None = setting(
        TOPIC,
        None,
        "Where replies to this channel's requests arrive. Default: the topic's name and "
        "`-replies`.",
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
    """One memory channel. ``place`` says where its table is, for errors."""

    name: str
    max_in_flight: int = setting(
        COUNT,
        1000,
        "The most values that are not settled. At that number senders wait.",
    )
    place: str = field(default="", repr=False, compare=False)
    # Senders treat memory channels like outgoing ones. Nothing is written to a broker here, so
    # these settings cannot be changed.
    wait_for_write: ClassVar[bool] = False
    send_timeout_s: ClassVar[float | None] = None
    health_enabled: ClassVar[bool] = True
    tracing_enabled: ClassVar[bool] = True

    @property
    def as_incoming(self) -> IncomingSettings:
        """The settings for its handler: one value at a time, in order, without fetch and commit."""
        settings = IncomingSettings(
            name=self.name,
            topics=(self.name,),
            group_id=None,
            commit_strategy="ignore",
            unprocessed_record_max_age_s=0,
            max_in_flight=self.max_in_flight,
            max_in_flight_is_set=True,
        )
        # A batch that is larger than the number of values in flight could never fill.
        return replace(
            settings, batch_max_records=min(self.max_in_flight, settings.batch_max_records)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The Spark session of the application. ``conf`` is what the user gave, unchanged."""

    master: str = setting(MASTER, "local[*]", "The Spark master of the application's own session.")
    remote: str | None = setting(
        REMOTE, None, "Use this Spark Connect server, instead of `master`."
    )
    jars: str | None = setting(
        TEXT,
        None,
        "The folder with Kafka's connector for `ranges` and `batch.send`. Default: the cache.",
    )
    conf: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def place(self, key: str, value: object) -> str:
        """Return the start of an error: ``my.toml, line 3: [spark] jars = '/jars'``."""
        return self.places.get(key, f"[spark] {key} = {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where health and metrics are served."""

    enabled: bool = setting(BOOLEAN, True, "Serve health and metrics.")
    host: str = setting(TEXT, "127.0.0.1", "The address to listen on.")
    port: int = setting(integer(0, 65535), 9000, "The port. 0 takes a free one.")
    service_name: str | None = setting(
        TEXT,
        None,
        "The name of the application on its page. Default: the module of the `App`.",
    )
    hosts: Sequence[str] | None = setting(
        HOSTS,
        None,
        "Host names that requests may use, in addition to `localhost`, IP addresses and `host`.",
    )
    peers: Sequence[str] | None = setting(
        PEERS,
        None,
        "The HTTP addresses of other processes of this service. The page shows them, too, and asks "
        "them with the token of this one.",
    )
    token: str | None = setting(
        TOKEN,
        None,
        "A bearer token (better `token_file`). Requests that change something need it. "
        "Beyond a loopback address the page and `/api` need it, too.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration of an application.

    ``source`` names the files it comes from, for errors. ``client`` holds the raw client properties
    of ``[kafka]`` under aiokafka's names. ``warnings`` are logged at the start: things that work,
    but should be changed.
    """

    source: str = "code"
    bootstrap_servers: str = setting(
        SERVERS,
        "localhost:9092",
        "The brokers to connect to first. `embedded` starts one inside the process, for "
        "development.",
    )
    incoming: Mapping[str, IncomingSettings] = field(default_factory=dict)
    outgoing: Mapping[str, OutgoingSettings] = field(default_factory=dict)
    memory: Mapping[str, MemorySettings] = field(default_factory=dict)
    spark: SparkSettings = field(default_factory=SparkSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    schema_registry: SchemaRegistrySettings = field(default_factory=SchemaRegistrySettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    limits: Mapping[str, LimitSettings] = field(default_factory=dict)
    topics: Mapping[str, TopicSettings] = field(default_factory=dict)
    # The channels have these properties already.
    client: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    warnings: tuple[str, ...] = ()
