"""SmallRye's attributes of Kafka channels: what each one is here, or what to use instead. Pure.

Source: the ``@ConnectorAttribute`` of SmallRye's KafkaConnector, further properties that it reads,
and Quarkus' own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reactive_kafka.config.microprofile import converters as read
from reactive_kafka.config.microprofile.converters import Converter

INCOMING = frozenset({"incoming"})
OUTGOING = frozenset({"outgoing"})
BOTH = INCOMING | OUTGOING


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute.

    It is mapped (``ours`` is one key, ``read`` converts its value), has a rule of its own (only
    ``ours``, which describes it), or is refused (``instead``).
    """

    name: str
    sides: frozenset[str]
    # SmallRye's default. A refused attribute may have it, because that changes nothing.
    default: str = ""
    # The key that it sets, or what is so here without a key.
    ours: str = ""
    # Converts the value for the key in ``ours``; for a refused attribute, for comparing it with the
    # default.
    read: Converter | None = None
    # What to use instead of a refused attribute.
    instead: str = ""
    # Further names.
    also: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether only its default may be written."""
        return bool(self.instead)

    @property
    def is_mapped(self) -> bool:
        """Whether it is one key of ours."""
        return self.read is not None and not self.instead


def _mapped(
    name: str, sides: frozenset[str], ours: str, convert: Converter, default: str = ""
) -> Attribute:
    return Attribute(name, sides, default, ours, convert)


def _ruled(
    name: str, sides: frozenset[str], ours: str, default: str = "", also: tuple[str, ...] = ()
) -> Attribute:
    return Attribute(name, sides, default, ours, also=also)


def _refused(name: str, sides: frozenset[str], instead: str, default: str = "") -> Attribute:
    convert = read.boolean if default in ("true", "false") else read.text
    return Attribute(name, sides, default, read=convert, instead=instead)


_POLLS = "records are polled as handlers need them, and failing polls are repeated until they work"
_LOOKS = "topics are always looked up, without a deadline, and readiness names a missing one"
_BEAN = "a bean of Java's; in Python "
_DECORATE = _BEAN + 'decorate a function with @app.on_assigned("...") or @app.on_revoked("...")'
_HANDLED = (
    _BEAN
    + "the failure strategy gets a record that cannot be decoded: dead-letter-queue keeps its bytes"
)
_SHARE = "share groups are not supported; leave it out, and use a consumer group"
_POOL = "transactions of several partitions run at once already; leave it out"
_EVENTS = "leave it out; an event says it itself"
_PAUSES = "channel.pause() stops fetching, so nothing has to be buffered or dropped"
_REPLIES = "emitter.request(value, timeout=...) says how long, and replies need no bean"

ATTRIBUTES: tuple[Attribute, ...] = (
    _ruled(
        "connector",
        BOTH,
        "none: each channel is Kafka's. smallrye-kafka, or absent if no channel names another one",
        also=("type",),
    ),
    _ruled("enabled", BOTH, "false: the channel is left out", "true"),
    _mapped("bootstrap.servers", BOTH, "bootstrap_servers", read.servers, "localhost:9092"),
    _ruled("topic", BOTH, "topic (pattern, where pattern is true)", "the channel's name"),
    _mapped("health-enabled", BOTH, "health_enabled", read.boolean, "true"),
    _refused(
        "health-readiness-enabled",
        BOTH,
        "health-enabled = false takes a channel out of every probe",
        "true",
    ),
    Attribute(
        "health-topic-verification-enabled",
        BOTH,
        "false",
        "always so",
        also=("health-readiness-topic-verification",),
    ),
    _refused("health-topic-verification-timeout", BOTH, _LOOKS, "2000"),
    _refused("health-readiness-timeout", BOTH, _LOOKS, "2000"),
    _refused("health-topic-verification-startup-disabled", BOTH, _LOOKS, "false"),
    _refused("health-topic-verification-readiness-disabled", BOTH, _LOOKS, "false"),
    _mapped("tracing-enabled", BOTH, "tracing_enabled", read.boolean, "true"),
    _ruled("cloud-events", BOTH, "cloud_events", "true"),
    _refused(
        "kafka-configuration",
        BOTH,
        _BEAN + "write its entries as attributes of the channel",
        "default-kafka-broker",
    ),
    _ruled(
        "client-id-prefix",
        BOTH,
        "client.id: the prefix, then client.id or the channel's name",
        "kafka-consumer-",
    ),
    _ruled("client.id", BOTH, "client.id", "the channel's name"),
    _refused(
        "lazy-client",
        BOTH,
        "clients connect at the start, in the background; leave it out",
        "false",
    ),
    _refused(
        "tls-configuration-name",
        BOTH,
        "a TLS configuration of Quarkus; write ssl.truststore.location and so on",
    ),
    # Attributes of incoming channels.
    _ruled("topics", INCOMING, "topics"),
    _ruled("pattern", INCOMING, "pattern", "false"),
    _ruled("assign-seek", INCOMING, "assign"),
    _ruled("key.deserializer", INCOMING, "key_deserializer", "...StringDeserializer"),
    _mapped("value.deserializer", INCOMING, "value_deserializer", read.java_format),
    _ruled("group.id", INCOMING, "group_id", "quarkus.application.name, else a random one"),
    _mapped("enable.auto.commit", INCOMING, "enable_auto_commit", read.boolean, "false"),
    _mapped("auto.offset.reset", INCOMING, "auto_offset_reset", read.text, "latest"),
    _mapped("auto.commit.interval.ms", INCOMING, "commit_interval", read.milliseconds, "5000"),
    _mapped("commit-strategy", INCOMING, "commit_strategy", read.text, "throttled"),
    _mapped(
        "throttled.unprocessed-record-max-age.ms",
        INCOMING,
        "unprocessed_record_max_age",
        read.limit_ms,
        "60000",
    ),
    _ruled("ordered", INCOMING, "ordering", "unset: unordered", also=("throttled.ordered",)),
    _ruled(
        "ordered.max-concurrency",
        INCOMING,
        "concurrency, where ordered is set",
        "max.poll.records",
        also=("throttled.ordered.max-concurrency",),
    ),
    _ruled("concurrency", INCOMING, "consumers, and as many handlers at once (concurrency)", "1"),
    _ruled("partitions", INCOMING, "consumers", "1"),
    _refused("requests", INCOMING, _POLLS, "128"),
    _ruled("checkpoint.state-store", INCOMING, "checkpoint.store", "file"),
    _ruled("checkpoint.file.state-dir", INCOMING, "checkpoint.store: file:///that/folder"),
    _refused(
        "checkpoint.state-type",
        INCOMING,
        'a class of Java\'s; write state = "module:Model" in [incoming.X.checkpoint]',
    ),
    _mapped(
        "checkpoint.unsynced-state-max-age.ms",
        INCOMING,
        "checkpoint.unsynced_max_age",
        read.limit_ms,
        "10000",
    ),
    _mapped("failure-strategy", INCOMING, "failure_strategy", read.text, "fail"),
    _mapped(
        "dead-letter-queue.topic",
        INCOMING,
        "dead_letter_queue.topic",
        read.text,
        "dead-letter-topic-<channel>",
    ),
    _mapped(
        "dead-letter-queue.producer-client-id", INCOMING, "dead_letter_queue.client.id", read.text
    ),
    _ruled("dead-letter-queue.key.serializer", INCOMING, "none: dead letters keep their bytes"),
    _ruled("dead-letter-queue.value.serializer", INCOMING, "none: dead letters keep their bytes"),
    _mapped(
        "delayed-retry-topic.topics",
        INCOMING,
        "delayed_retry.topics",
        read.names,
        "<channel>_retry_10000, ...",
    ),
    _ruled(
        "delayed-retry-topic.max-retries",
        INCOMING,
        "delayed_retry.max_retries",
        "the number of topics",
    ),
    _mapped(
        "delayed-retry-topic.timeout",
        INCOMING,
        "delayed_retry.timeout",
        read.milliseconds,
        "120000",
    ),
    _refused(
        "delayed-retry-topic.consumer.group.id",
        INCOMING,
        "retries are read by a group named after the channel's",
    ),
    _refused("retry", INCOMING, _POLLS, "true"),
    _refused(
        "retry-attempts",
        INCOMING,
        _POLLS + "; calls of a handler are max_attempts in [incoming.X.retry]",
        "-1",
    ),
    _refused("retry-max-wait", INCOMING, _POLLS, "30"),
    _ruled(
        "fail-on-deserialization-failure",
        INCOMING,
        'failure_routes.DecodeError = "fail" (false: only with dead-letter-queue)',
        "true",
    ),
    _refused("key-deserialization-failure-handler", INCOMING, _HANDLED),
    _refused("value-deserialization-failure-handler", INCOMING, _HANDLED),
    _refused("consumer-rebalance-listener.name", INCOMING, _DECORATE),
    _mapped("broadcast", INCOMING, "broadcast", read.boolean, "false"),
    _ruled(
        "batch",
        INCOMING,
        "batch_max_records, batch_max_wait = 0; annotate the handler's argument Batch[...]",
        "false",
    ),
    _ruled(
        "max-queue-size-factor", INCOMING, "max_in_flight: that many times max.poll.records", "2"
    ),
    _ruled("graceful-shutdown", INCOMING, "drain_timeout: 0 where it is false", "true"),
    _ruled("pausable", INCOMING, "always so: channel.pause()", "false"),
    _refused(
        "initially-paused",
        INCOMING,
        'call app.channel("...").pause() in @app.on_assigned("...")',
        "false",
    ),
    _refused("pausable.late-subscription", INCOMING, _PAUSES, "false"),
    _refused("pausable.buffer-size", INCOMING, _PAUSES),
    _refused("pausable.buffer-strategy", INCOMING, _PAUSES, "BUFFER"),
    _refused("poll-timeout", INCOMING, _POLLS, "1000"),
    _refused(
        "pause-if-no-requests",
        INCOMING,
        "fetching always pauses at max_in_flight; leave it out",
        "true",
    ),
    _refused("share-group", INCOMING, _SHARE, "false"),
    _refused("share-group.enabled", INCOMING, _SHARE, "false"),
    _refused("share-group.unprocessed-record-max-age.ms", INCOMING, _SHARE, "60000"),
    _refused("share-group.failure-acknowledgement-type", INCOMING, _SHARE, "release"),
    _refused(
        "share-group.failure-deserialization-acknowledgement-type", INCOMING, _SHARE, "reject"
    ),
    # Attributes of outgoing channels.
    _mapped("key.serializer", OUTGOING, "key_serializer", read.java_format, "...StringSerializer"),
    _mapped("value.serializer", OUTGOING, "value_serializer", read.java_format),
    _ruled("acks", OUTGOING, "acks", "1"),
    _refused(
        "buffer.memory",
        OUTGOING,
        "max_in_flight bounds what waits: max-inflight-messages here",
        "33554432",
    ),
    _refused("retries", OUTGOING, "writes are tried again until delivery.timeout.ms", "2147483647"),
    _mapped("delivery.timeout.ms", OUTGOING, "send_timeout", read.milliseconds, "120000"),
    _refused("key", OUTGOING, 'return Record(value, key="...")'),
    _refused("partition", OUTGOING, "return Record(value, partition=...)", "-1"),
    _ruled(
        "waitForWriteCompletion",
        OUTGOING,
        "always so: the ack of the incoming record follows the write",
        "true",
    ),
    _mapped("max-inflight-messages", OUTGOING, "max_in_flight", read.no_limit, "1024"),
    _mapped("propagate-record-key", OUTGOING, "propagate_key", read.boolean, "false"),
    _mapped("propagate-headers", OUTGOING, "propagate_headers", read.names),
    _mapped("transactional.id", OUTGOING, "transactional_id", read.text),
    _ruled(
        "merge",
        OUTGOING,
        "always so: several functions may have @app.outgoing of one channel",
        "false",
    ),
    _refused(
        "close-timeout",
        OUTGOING,
        "a stop waits drain_timeout for handlers, and for what they send",
        "10000",
    ),
    _ruled("cloud-events-type", OUTGOING, "cloud_events.type", also=("cloud-events-default-type",)),
    _ruled(
        "cloud-events-source",
        OUTGOING,
        "cloud_events.source",
        also=("cloud-events-default-source",),
    ),
    _ruled(
        "cloud-events-subject",
        OUTGOING,
        "cloud_events.subject",
        also=("cloud-events-default-subject",),
    ),
    _ruled("cloud-events-mode", OUTGOING, "cloud_events.mode", "binary"),
    _refused("cloud-events-data-content-type", OUTGOING, _EVENTS),
    _refused("cloud-events-default-data-content-type", OUTGOING, _EVENTS),
    _refused("cloud-events-data-schema", OUTGOING, _EVENTS),
    _refused("cloud-events-default-data-schema", OUTGOING, _EVENTS),
    _refused("cloud-events-insert-timestamp", OUTGOING, _EVENTS, "true"),
    _refused("cloud-events-default-timestamp", OUTGOING, _EVENTS, "true"),
    _refused("pooled-producer", OUTGOING, _POOL, "false"),
    _refused("pooled-producer.enabled", OUTGOING, _POOL, "false"),
    _refused("pooled-producer.initial-pool-size", OUTGOING, _POOL, "0"),
    _refused("pooled-producer.max-pool-size", OUTGOING, _POOL, "10"),
    _refused("interceptor-bean", OUTGOING, _BEAN + "write a function around what you send"),
    _refused(
        "key-serialization-failure-handler", OUTGOING, _BEAN + "a value that has no bytes is a nack"
    ),
    _refused(
        "value-serialization-failure-handler",
        OUTGOING,
        _BEAN + "a value that has no bytes is a nack",
    ),
    _mapped("reply.topic", OUTGOING, "reply_topic", read.text),
    _refused("reply.timeout", OUTGOING, _REPLIES, "5000"),
    _refused("reply.partition", OUTGOING, _REPLIES),
    _refused("reply.correlation-id.handler", OUTGOING, _REPLIES),
    _refused("reply.failure.handler", OUTGOING, _REPLIES),
    # The schema registry.
    _ruled("schema.registry.url", BOTH, "url in [schema_registry]"),
    _ruled("basic.auth.credentials.source", BOTH, "none: always USER_INFO", "USER_INFO"),
    _ruled(
        "basic.auth.user.info",
        BOTH,
        "username and password in [schema_registry]",
        also=("schema.registry.basic.auth.user.info",),
    ),
    _mapped(
        "value.subject.name.strategy", BOTH, "schema.subject", read.subject, "TopicNameStrategy"
    ),
    _mapped("auto.register.schemas", OUTGOING, "schema.register", read.boolean, "true"),
    _ruled("specific.avro.reader", INCOMING, "none: the handler's annotation says it", "false"),
    _refused(
        "apicurio.registry.url",
        BOTH,
        "use its Confluent API: schema.registry.url = http://host/apis/ccompat/v7",
    ),
)

_BY_NAME = {
    (side, name): each
    for each in ATTRIBUTES
    for side in each.sides
    for name in (each.name, *each.also)
}

NATIVE_TABLES = {
    "dead-letter-queue.": "dead_letter_queue",
    "delayed-retry-topic.consumer.": "delayed_retry",
}
"""Prefix of an incoming channel's attributes -> our table for the same client properties."""


def attribute(side: str, name: str) -> Attribute | None:
    """Return the attribute of that name, or None."""
    return _BY_NAME.get((side, name))


def names_of(side: str) -> Iterable[str]:
    """Return all names of one side's attributes, including old ones."""
    return (name for its_side, name in _BY_NAME if its_side == side)
