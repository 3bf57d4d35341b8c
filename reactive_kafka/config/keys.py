"""Every key of the configuration: section by section its name, kind, default and meaning. Pure data.

The loader, the dump, the reference page and "did you mean" all read these tables. A name with a dot stands in a table
of its own: ``retry.backoff`` is ``backoff`` in ``[incoming.X.retry]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.config.client_properties import BOTH, CONSUMER, PRODUCER, Side
from reactive_kafka.config.incoming_values import ASSIGN, ORDERING_KEY, PATTERN, RETRY_TOPICS, STATE, STORE
from reactive_kafka.config.later import LATER_INCOMING, LATER_OUTGOING
from reactive_kafka.config.values import (
    BOOLEAN,
    MASTER,
    REMOTE,
    SERVERS,
    TEXT,
    TOPIC,
    TOPICS,
    Kind,
    choice,
    duration,
    integer,
    size,
)
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
        clients: Tables inside it that take raw client properties too -> whose.
        free: Tables inside it whose keys are the user's own words -> what their values may be.
    """

    title: str
    keys: dict[str, Key]
    later: dict[str, str]
    sides: frozenset[Side] = frozenset()
    clients: Mapping[str, frozenset[Side]] = field(default_factory=dict)
    free: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def tables(self) -> frozenset[str]:
        """Names of the tables inside it."""
        return frozenset(name.partition(".")[0] for name in self.keys if "." in name) | self.free.keys()


_FORMAT = choice(*BUILT_FORMATS, later=LATER_FORMATS, imported="module:function")
_FAILURE = choice("fail", "ignore", "dead-letter-queue", "delayed-retry-topic", imported="module:object")
_SOME_TIME, _TIME = duration(zero=False), duration()
_COUNT = integer(1)
MOST_JOBS = 256  # each has a thread here and in the driver

_INCOMING = (
    Key("topic", TOPIC, None, "The topic to read; default: the channel's name."),
    Key("topics", TOPICS, None, "Several topics to read, instead of `topic`."),
    Key("pattern", PATTERN, None, "All topics of such a name, also those that appear later, instead of `topic`."),
    Key(
        "assign",
        ASSIGN,
        None,
        "These partitions, without a share in the group's, instead of `topic`; with an offset or a time, reading "
        "begins there at every start.",
    ),
    Key(
        "group_id",
        TEXT,
        None,
        "The consumer group; must be given, unless `assign` stands with `commit_strategy` `ignore` or `checkpoint`.",
    ),
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
        choice("throttled", "latest", "ignore", "checkpoint", imported="module:object"),
        "throttled",
        "`throttled` commits what is settled without a gap, each `commit_interval`; `latest` at each ack; "
        "`ignore` never; `checkpoint` as `throttled`, into a store of your own. `module:object` is one of your own.",
    ),
    Key(
        "commit_latest_unsafe",
        BOOLEAN,
        False,
        "`latest` commits past records that are not settled; after a crash they are not read again.",
    ),
    Key(
        "enable_auto_commit",
        BOOLEAN,
        False,
        "The client commits what it has read, settled or not, each `commit_interval`; "
        "`commit_strategy` is `ignore` then.",
    ),
    Key(
        "commit_interval",
        _SOME_TIME,
        "5s",
        "How often `throttled` commits, or `checkpoint` writes to its store, or the client with `enable_auto_commit`.",
        "commit_interval_s",
    ),
    Key(
        "unprocessed_record_max_age",
        _TIME,
        "60s",
        "A record unsettled for longer is poison; 0 turns the watch off.",
        "unprocessed_record_max_age_s",
    ),
    Key(
        "on_poison",
        choice("fail", "pause-partition", "dead-letter-queue", "warn"),
        "fail",
        "What a poison record does: stop the channel, stop its partition, go to the dead letters, or be reported only.",
    ),
    Key(
        "failure_strategy",
        _FAILURE,
        "fail",
        "What a nack does: stop the channel; be logged and settled; write the record to the dead-letter topic, or to a "
        "topic that is read again later. `module:object` is one of your own.",
    ),
    Key(
        "ordering",
        choice("partition", "key", "unordered"),
        "partition",
        "`partition`: one record of a partition at a time, in order; `key`: one of a key, so that others overtake it; "
        "`unordered`: as workers are free.",
    ),
    Key("key", ORDERING_KEY, None, 'What `ordering = "key"` goes by; default: the record\'s key.'),
    Key(
        "ack", choice("post", "manual", "pre", "none"), "post", "When a record is acked; a decorator may say otherwise."
    ),
    Key("concurrency", _COUNT, 1, "Handlers of the channel that run at once."),
    Key("consumers", _COUNT, 1, "Members of the group, each with a connection, that the channel has in this process."),
    Key("batch_max_records", _COUNT, 500, "Most records of a `Batch` handler's batch."),
    Key("batch_max_wait", _TIME, "1s", "How long a batch waits to fill.", "batch_max_wait_s"),
    Key(
        "max_in_flight",
        _COUNT,
        1000,
        "Records delivered or queued and not settled; fetching pauses beyond it. The default grows with `concurrency`, "
        "with batches, and with many partitions: one record each.",
    ),
    Key("drain_timeout", _TIME, "30s", "How long a stop waits for what is in flight.", "drain_timeout_s"),
    Key("revoke_grace", _TIME, "5s", "How long a revocation waits for what is in flight.", "revoke_grace_s"),
    Key(
        "keep_out_of_order_acks",
        BOOLEAN,
        False,
        "What is acked above the committed position is stored beside it, and not handled again after a crash.",
    ),
    Key(
        "offset_metadata_deserializer",
        _FORMAT,
        None,
        "What `channel.offset_metadata()` makes of the string beside a position; default: the string itself.",
    ),
    Key(
        "offset_metadata_cache",
        BOOLEAN,
        True,
        "`channel.offset_metadata()` answers from memory until the next rebalance; `false` asks the broker each time.",
    ),
    Key(
        "offset_metadata_strategy",
        choice("current", "exact"),
        "current",
        "Whose string goes with a position where records end out of order: the newest one supplied, or that of the "
        "last record before the position, else the newest.",
    ),
    Key(
        "checkpoint.store",
        STORE,
        None,
        'Where positions and states are kept with `commit_strategy = "checkpoint"`; it must be given then.',
    ),
    Key("checkpoint.state", STATE, None, "What states are; default: whatever JSON can tell."),
    Key(
        "checkpoint.unsynced_max_age",
        _TIME,
        "10s",
        "Readiness tells when something has been settled for longer and the store has not got it; 0 turns that off.",
        "checkpoint.unsynced_max_age_s",
    ),
    Key(
        "checkpoint.kafka_commit_interval",
        _SOME_TIME,
        "1m",
        "How often what the store has is committed to Kafka, too; and at the end of each assignment.",
        "checkpoint.kafka_commit_interval_s",
    ),
    Key("retry.max_attempts", _COUNT, 1, "Calls of a handler for one record in all, before its failure strategy."),
    Key(
        "retry.backoff",
        _TIME,
        "200ms",
        "Wait before the second call; doubles with each further one.",
        "retry.backoff_s",
    ),
    Key("retry.max_backoff", _TIME, "10s", "Longest wait between two calls.", "retry.max_backoff_s"),
    Key("restart.max_attempts", integer(0), 0, "Restarts of a failed channel in a row; 0: it stays down."),
    Key(
        "restart.backoff",
        _TIME,
        "1s",
        "Wait before the first restart; doubles with each further one.",
        "restart.backoff_s",
    ),
    Key("restart.max_backoff", _TIME, "1m", "Longest wait before a restart.", "restart.max_backoff_s"),
    Key(
        "dead_letter_queue.topic",
        TOPIC,
        None,
        "Where dead letters are written; default: `dead-letter-topic-<channel>`.",
    ),
    Key(
        "dead_letter_queue.bootstrap_servers",
        SERVERS,
        None,
        "The brokers that dead letters go to; default: the channel's.",
        "dead_letter_queue.client.bootstrap_servers",
    ),
    Key(
        "delayed_retry.topics",
        RETRY_TOPICS,
        None,
        "The topics of the first, second, ... retry; default: `<channel>_retry_10000`, `_20000`, `_50000`.",
    ),
    Key(
        "delayed_retry.max_retries",
        _COUNT,
        None,
        "Retries of a record before it becomes a dead letter; default: the number of topics, and beyond it the last "
        "topic is used again.",
    ),
    Key(
        "delayed_retry.timeout",
        _SOME_TIME,
        "2m",
        "A retry that would come later than this after the record's first failure is a dead letter instead.",
        "delayed_retry.timeout_s",
    ),
    Key(
        "spark.mode",
        choice("records", "ranges"),
        "records",
        "`records`: this process ships them to Spark; `ranges`: only offsets travel, and executors read Kafka.",
    ),
    Key("spark.batch_max_records", _COUNT, 50_000, "Most records of a Spark batch; with `ranges`, most offsets."),
    Key(
        "spark.batch_max_bytes",
        size(),
        "64MiB",
        "Most bytes of keys and values in a Spark batch; no effect with `ranges`.",
    ),
    Key("spark.batch_max_wait", _TIME, "2s", "How long a Spark batch waits to fill.", "spark.batch_max_wait_s"),
    Key("spark.timeout", _SOME_TIME, "10m", "A Spark job that runs longer is cancelled and nacked.", "spark.timeout_s"),
    Key("spark.max_concurrent_jobs", integer(1, MOST_JOBS), 1, "Spark batches of the channel that run at once."),
    Key(
        "spark.pool",
        TEXT,
        None,
        "The FAIR pool of Spark's scheduler that the channel's jobs run in; default: the channel's name.",
    ),
    Key(
        "spark.on_failure",
        choice("nack", "bisect"),
        "nack",
        "A batch that fails on its data is nacked as a whole (`nack`), or split until the bad records are alone, and "
        "only those are nacked (`bisect`).",
    ),
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

_OF_A_CHANNEL = ("topic", "topics", "pattern", "assign", "delayed_retry.topics")
"""A default of these for all channels would be a mistake."""
_CLIENTS = {"dead_letter_queue": PRODUCER, "delayed_retry": CONSUMER}
_FREE = {"failure_routes": _FAILURE}


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
INCOMING = Section("incoming.X", _table(*_INCOMING, BOOTSTRAP_SERVERS), LATER_INCOMING, CONSUMER, _CLIENTS, _FREE)
OUTGOING = Section("outgoing.X", _table(*_OUTGOING, BOOTSTRAP_SERVERS), LATER_OUTGOING, PRODUCER)

_SHARED = {name: key for name, key in (OUTGOING.keys | INCOMING.keys).items() if name not in _OF_A_CHANNEL}

KAFKA = Section(
    "kafka",
    _table(BOOTSTRAP_SERVERS, ALLOW_INSECURE_SASL) | _SHARED,
    LATER_OUTGOING | LATER_INCOMING,
    BOTH,
    _CLIENTS,
    _FREE,
)
SPARK = Section(
    "spark",
    _table(
        Key("master", MASTER, "local[*]", "The Spark master of a session of the application's own."),
        Key("remote", REMOTE, None, "A Spark Connect server, instead of `master`."),
        Key(
            "jars",
            TEXT,
            None,
            "The folder of the Kafka connector, which `ranges` needs: `reactive-kafka spark jars --to DIR` fills it; "
            "default: the one in the cache.",
        ),
    ),
    {},
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

KAFKA_SPELLINGS = {
    "bootstrap.servers": "bootstrap_servers",
    "group.id": "group_id",
    "auto.offset.reset": "auto_offset_reset",
    "enable.auto.commit": "enable_auto_commit",
    "transactional.id": "transactional_id",
    "key.deserializer": "key_deserializer",
    "value.deserializer": "value_deserializer",
    "key.serializer": "key_serializer",
    "value.serializer": "value_serializer",
}
"""Kafka's names of what are keys of ours."""
