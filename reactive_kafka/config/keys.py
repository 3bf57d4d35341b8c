"""Every key of the configuration: section by section its name, kind, default and meaning. Pure data.

The loader, the dump, the reference page and "did you mean" all read these tables. A name with a dot stands in a table
of its own: ``retry.backoff`` is ``backoff`` in ``[incoming.X.retry]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reactive_kafka.config.client_properties import BOTH, CONSUMER, PRODUCER, Side
from reactive_kafka.config.values import BOOLEAN, SERVERS, TEXT, TOPIC, TOPICS, Kind, choice, duration, integer, size
from reactive_kafka.formats.names import BUILT_FORMATS, LATER_FORMATS


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Args:
        name: As users write it; ``table.key`` for one in a table.
        kind: What it may hold.
        default: As users would write it; None: see the doc.
        doc: What it means, in one line.
        field: Where its value goes in the settings; default: the name. Seconds end in ``_s`` there.
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    field: str = ""

    @property
    def target(self) -> str:
        """Its field in the settings class of its section, dotted like the name."""
        return self.field or self.name


@dataclass(frozen=True, slots=True)
class Section:
    """The keys that one table takes.

    Args:
        title: As users write the table: ``incoming.X``.
        keys: name -> key.
        later: Keys of the contract that this version has not got -> what to do meanwhile, or "".
        sides: Whose raw client properties may stand here.
    """

    title: str
    keys: dict[str, Key]
    later: dict[str, str]
    sides: frozenset[Side] = frozenset()

    @property
    def tables(self) -> frozenset[str]:
        """Names of the tables inside it."""
        return frozenset(name.partition(".")[0] for name in self.keys if "." in name)


_FORMAT = choice(*BUILT_FORMATS, later=LATER_FORMATS, function=True)
_SOME_TIME, _TIME = duration(zero=False), duration()
_COUNT = integer(1)

_INCOMING = (
    Key("topic", TOPIC, None, "The topic to read; default: the channel's name."),
    Key("topics", TOPICS, None, "Several topics to read, instead of `topic`."),
    Key("group_id", TEXT, None, "The consumer group; must be given."),
    Key(
        "auto_offset_reset",
        choice("latest", "earliest", "none"),
        "latest",
        "Where to start where the group has no committed position; `none` is an error there.",
    ),
    Key("value_deserializer", _FORMAT, None, "How values are read; default: what the handler's annotation says."),
    Key("key_deserializer", _FORMAT, None, "How keys are read; default: bytes."),
    Key(
        "commit_strategy",
        choice("throttled", "ignore", later=("latest", "checkpoint")),
        "throttled",
        "`throttled` commits what is settled without a gap; `ignore` commits nothing.",
    ),
    Key("commit_interval", _SOME_TIME, "5s", "How often `throttled` commits.", "commit_interval_s"),
    Key(
        "unprocessed_record_max_age",
        _TIME,
        "60s",
        "A record unsettled for longer is poison; 0 turns the watch off.",
        "unprocessed_record_max_age_s",
    ),
    Key(
        "on_poison",
        choice("fail", "pause-partition", "warn", later=("dead-letter-queue",)),
        "fail",
        "What a poison record does: stop the channel, stop its partition, or be reported only.",
    ),
    Key(
        "failure_strategy",
        choice("fail", "ignore", later=("dead-letter-queue", "delayed-retry-topic")),
        "fail",
        "What a nack does: stop the channel, or be logged and settled.",
    ),
    Key(
        "ordering",
        choice("partition", "unordered", later=("key",)),
        "partition",
        "`partition`: one record of a partition at a time, in order; `unordered`: as workers are free.",
    ),
    Key(
        "ack", choice("post", "manual", "pre", "none"), "post", "When a record is acked; a decorator may say otherwise."
    ),
    Key("concurrency", _COUNT, 1, "Handlers of the channel that run at once."),
    Key("batch_max_records", _COUNT, 500, "Most records of a `Batch` handler's batch."),
    Key("batch_max_wait", _TIME, "1s", "How long a batch waits to fill.", "batch_max_wait_s"),
    Key("max_in_flight", _COUNT, 1000, "Records delivered or queued and not settled; fetching pauses beyond it."),
    Key("drain_timeout", _TIME, "30s", "How long a stop waits for what is in flight.", "drain_timeout_s"),
    Key("revoke_grace", _TIME, "5s", "How long a revocation waits for what is in flight.", "revoke_grace_s"),
    Key("retry.max_attempts", _COUNT, 1, "Calls of a handler for one record in all, before its failure strategy."),
    Key(
        "retry.backoff",
        _TIME,
        "200ms",
        "Wait before the second call; doubles with each further one.",
        "retry.backoff_s",
    ),
    Key("retry.max_backoff", _TIME, "10s", "Longest wait between two calls.", "retry.max_backoff_s"),
    Key("spark.mode", choice("records", later=("ranges",)), "records", "`records`: this process ships them to Spark."),
    Key("spark.batch_max_records", _COUNT, 50_000, "Most records of a Spark batch."),
    Key("spark.batch_max_bytes", size(), "64MiB", "Most bytes of keys and values in a Spark batch."),
    Key("spark.batch_max_wait", _TIME, "2s", "How long a Spark batch waits to fill.", "spark.batch_max_wait_s"),
    Key("spark.timeout", _SOME_TIME, "10m", "A Spark job that runs longer is cancelled and nacked.", "spark.timeout_s"),
)

_OUTGOING = (
    Key("topic", TOPIC, None, "The topic to write to; default: the channel's name."),
    Key(
        "value_serializer", _FORMAT, None, "How values are written; default: bytes and strings as they are, else json."
    ),
    Key("key_serializer", _FORMAT, None, "How keys are written; default: bytes and strings as they are."),
    Key("max_in_flight", _COUNT, 1024, "Records sent and not confirmed; senders wait beyond it."),
    Key("wait_for_write", BOOLEAN, True, "A handler's next record waits for the confirmation of the one before."),
    Key("send_timeout", _SOME_TIME, "30s", "How long a send waits for the broker's confirmation.", "send_timeout_s"),
)

_LATER_INCOMING = {
    "pattern": "name the topics in `topics`",
    "assign": "give a group_id",
    "key": 'use ordering = "partition" or "unordered"',
    "consumers": "start the process several times",
    "restart": "a failed channel stays down",
    "failure_routes": "use failure_strategy",
    "dead_letter_queue": 'use failure_strategy = "fail" or "ignore"',
    "delayed_retry": "use [incoming.X.retry], which retries in place",
    "checkpoint": 'use commit_strategy = "throttled"',
    "keep_out_of_order_acks": "",
    "commit_latest_unsafe": "",
    "offset_metadata_deserializer": "",
    "offset_metadata_cache": "",
    "offset_metadata_strategy": "",
    "cloud_events": "",
    "schema": "",
    "spark.max_concurrent_jobs": "one job of a channel runs at a time",
    "spark.pool": "",
    "spark.on_failure": "a failing batch is nacked",
}
_LATER_OUTGOING = {
    "transactional_id": "",
    "transactional": "",
    "cloud_events": "",
    "schema": "",
    "propagate_headers": "return a Record with the headers",
    "partitioner": "return a Record with the partition",
    "linger": "use the raw property linger.ms",
    "compression": "use the raw property compression.type",
    "reply_topic": "",
}
_OF_A_CHANNEL = ("topic", "topics")  # a default of these for all channels would be a mistake


def _table(*keys: Key) -> dict[str, Key]:
    return {key.name: key for key in keys}


BOOTSTRAP_SERVERS = Key(
    "bootstrap_servers",
    SERVERS,
    "localhost:9092",
    "The brokers to ask first; `embedded` starts one inside the process, for development only.",
    "client.bootstrap_servers",
)
ALLOW_INSECURE_SASL = Key(
    "allow_insecure_sasl", BOOLEAN, False, "Allow SASL PLAIN, which sends the password as it is, without TLS."
)
INCOMING = Section("incoming.X", _table(*_INCOMING, BOOTSTRAP_SERVERS), _LATER_INCOMING, CONSUMER)
OUTGOING = Section("outgoing.X", _table(*_OUTGOING, BOOTSTRAP_SERVERS), _LATER_OUTGOING, PRODUCER)

_SHARED = {name: key for name, key in (OUTGOING.keys | INCOMING.keys).items() if name not in _OF_A_CHANNEL}

KAFKA = Section(
    "kafka", _table(BOOTSTRAP_SERVERS, ALLOW_INSECURE_SASL) | _SHARED, _LATER_OUTGOING | _LATER_INCOMING, BOTH
)
SPARK = Section(
    "spark",
    _table(Key("master", TEXT, "local[*]", "The Spark master: `local[*]`, `spark://host:7077`, ...")),
    {"remote": "use master (a classic session; Spark Connect comes later)", "jars": "", "pool": ""},
)
HTTP = Section(
    "http",
    _table(
        Key("enabled", BOOLEAN, True, "Serve health and metrics."),
        Key("host", TEXT, "127.0.0.1", "The address to listen on."),
        Key("port", integer(0, 65535), 9000, "The port; 0 takes a free one."),
    ),
    {},
)

CHANNEL_SECTIONS = {"incoming": INCOMING, "outgoing": OUTGOING}
PLAIN_SECTIONS = {"kafka": KAFKA, "spark": SPARK, "http": HTTP}
LATER_SECTIONS = {
    "memory": "in-memory channels",
    "schema_registry": "schema registries",
    "mp": "MicroProfile properties",
}

KAFKA_SPELLINGS = {
    "bootstrap.servers": "bootstrap_servers",
    "group.id": "group_id",
    "auto.offset.reset": "auto_offset_reset",
    "transactional.id": "transactional_id",
    "key.deserializer": "key_deserializer",
    "value.deserializer": "value_deserializer",
    "key.serializer": "key_serializer",
    "value.serializer": "value_serializer",
}
"""Kafka's names of what are keys of ours."""
