"""What a channel of SmallRye's means in ours."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from reactive_kafka.config.client_properties import PROPERTIES
from reactive_kafka.config.microprofile.property_values import alpha
from reactive_kafka.config.microprofile.smallrye_attributes import attribute, names_of
from reactive_kafka.config.tables import CloudEventsSettings, SchemaSettings
from tests.config import loading
from tests.config.microprofile import reading
from tests.config.microprofile.reading import (
    incoming,
    leaves,
    loaded,
    only_problem,
    outgoing,
    problems,
    written,
)

SERIALIZATION = "org.apache.kafka.common.serialization."


def test_a_channel_of_quarkus_guides_runs_unchanged() -> None:
    """The snippets of SmallRye's and Quarkus' own documentation."""
    settings = loaded(
        """
kafka.bootstrap.servers = kafka:9092
mp.messaging.incoming.prices.connector=smallrye-kafka
mp.messaging.incoming.prices.topic=prices-in
mp.messaging.incoming.prices.value.deserializer=org.apache.kafka.common.serialization.DoubleDeserializer
mp.messaging.incoming.prices.group.id=billing
mp.messaging.incoming.prices.auto.offset.reset=earliest
mp.messaging.incoming.prices.failure-strategy=ignore
mp.messaging.outgoing.prices-out.connector=smallrye-kafka
mp.messaging.outgoing.prices-out.topic=prices
mp.messaging.outgoing.prices-out.value.serializer=org.apache.kafka.common.serialization.DoubleSerializer
"""
    )
    prices, out = settings.incoming["prices"], settings.outgoing["prices-out"]
    assert settings.bootstrap_servers == "kafka:9092"
    assert (prices.topics, prices.group_id, prices.auto_offset_reset) == (
        ("prices-in",),
        "billing",
        "earliest",
    )
    assert (prices.value_deserializer, prices.key_deserializer, prices.failure_strategy) == (
        "float64",
        "string",
        "ignore",
    )
    assert (out.topic, out.value_serializer, out.client["acks"], out.send_timeout_s) == (
        "prices",
        "float64",
        1,
        120,
    )
    assert settings.warnings == ()


def test_the_contracts_example_is_read_as_it_is() -> None:
    orders = incoming(
        {"commit-strategy": "throttled", "throttled.unprocessed-record-max-age.ms": "30000"}
    )
    assert (orders.commit_strategy, orders.unprocessed_record_max_age_s) == ("throttled", 30.0)


def test_what_smallrye_takes_where_we_take_something_else_is_written_out() -> None:
    plain = loading.loaded(
        {"incoming": {"orders": {"group_id": "g"}}, "outgoing": {"invoices": {}}}
    )
    theirs, ours = incoming({}), plain.incoming["orders"]
    compared = [one.name for one in fields(ours) if one.compare]
    different = {name for name in compared if getattr(theirs, name) != getattr(ours, name)}
    assert different == {"ordering", "key_deserializer", "client"}
    assert (theirs.ordering, theirs.key_deserializer, theirs.auto_offset_reset) == (
        "unordered",
        "string",
        "latest",
    )
    out, own = outgoing({}), plain.outgoing["invoices"]
    assert {
        one.name for one in fields(own) if getattr(out, one.name) != getattr(own, one.name)
    } == {
        "send_timeout_s",
        "client",
    }
    assert (out.client["acks"], out.client["client_id"], out.max_in_flight) == (
        1,
        "kafka-producer-invoices",
        1024,
    )


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ({"topic": "t"}, {"topics": ("t",)}),
        ({}, {"topics": ("orders",)}),
        ({"topics": r"a, b"}, {"topics": ("a", "b")}),
        ({"pattern": "true", "topic": "o-.*"}, {"pattern": "o-.*", "topics": ()}),
        ({"pattern": "YES"}, {"pattern": "orders", "topics": ()}),
        ({"pattern": "false", "topic": "t"}, {"pattern": None, "topics": ("t",)}),
        ({"enable.auto.commit": "true"}, {"enable_auto_commit": True, "commit_strategy": "ignore"}),
        ({"auto.commit.interval.ms": "250"}, {"commit_interval_s": 0.25}),
        (
            {"commit-strategy": "latest"},
            {"commit_strategy": "latest", "unprocessed_record_max_age_s": 0},
        ),
        ({"throttled.unprocessed-record-max-age.ms": "-1"}, {"unprocessed_record_max_age_s": 0}),
        ({"ordered": "KEY"}, {"ordering": "key", "concurrency": 500}),
        ({"throttled.ordered": "partition"}, {"ordering": "partition", "concurrency": 500}),
        ({"ordered": "key", "ordered.max-concurrency": "8"}, {"ordering": "key", "concurrency": 8}),
        ({"ordered": "key", "max.poll.records": "50"}, {"concurrency": 50, "max_in_flight": 100}),
        (
            {"throttled.ordered": "key", "throttled.ordered.max-concurrency": "8"},
            {"concurrency": 8},
        ),
        ({"concurrency": "4"}, {"consumers": 4, "concurrency": 4, "ordering": "partition"}),
        ({"concurrency": "1"}, {"consumers": 1, "concurrency": 1, "ordering": "unordered"}),
        ({"partitions": "4"}, {"consumers": 4, "concurrency": 1, "ordering": "unordered"}),
        (
            {"concurrency": "4", "ordered": "key", "ordered.max-concurrency": "8"},
            {"consumers": 4, "concurrency": 32, "ordering": "key"},
        ),
        ({"max-queue-size-factor": "3"}, {"max_in_flight": 1500}),
        ({"max.poll.records": "10", "concurrency": "2"}, {"max_in_flight": 40}),
        (
            {"batch": "true"},
            {"batch_max_records": 500, "batch_max_wait_s": 0, "ordering": "unordered"},
        ),
        (
            {"batch": "true", "max.poll.records": "20"},
            {"batch_max_records": 20, "max_in_flight": 40},
        ),
        ({"graceful-shutdown": "false"}, {"drain_timeout_s": 0}),
        ({"health-enabled": "off"}, {"health_enabled": False}),
        ({"tracing-enabled": "false"}, {"tracing_enabled": False}),
        ({"failure-strategy": "ignore"}, {"failure_routes": {"DecodeError": "fail"}}),
        ({"failure-strategy": "fail"}, {"failure_routes": {}}),
        (
            {"failure-strategy": "dead-letter-queue", "fail-on-deserialization-failure": "false"},
            {"failure_routes": {}, "failure_strategy": "dead-letter-queue"},
        ),
        (
            {"value.deserializer": f"{SERIALIZATION}StringDeserializer"},
            {"value_deserializer": "string"},
        ),
        (
            {"value.deserializer": f"{SERIALIZATION}LongDeserializer"},
            {"value_deserializer": "int64"},
        ),
        (
            {"key.deserializer": f"{SERIALIZATION}ByteArrayDeserializer"},
            {"key_deserializer": "bytes"},
        ),
    ],
)
def test_an_incoming_channel_is_what_it_was(
    attributes: dict[str, str], found: dict[str, Any]
) -> None:
    settings = incoming(attributes)
    assert {name: getattr(settings, name) for name in found} == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", ["t:0"]),
        ("0:5", ["t:0:5"]),
        ("0:-1, 1:0", ["t:0:-1", "t:1:0"]),
        ("u:3", ["u:3"]),
        ("u:3:7,2", ["u:3:7", "t:2"]),
    ],
)
def test_partitions_may_lack_a_topic_and_an_offset(text: str, found: list[str]) -> None:
    settings = incoming({"topic": "t", "assign-seek": text})
    assert [str(one).replace(":end", ":-1") for one in settings.assign] == found
    assert settings.topics == ()


@pytest.mark.parametrize("text", ["t", "t:x", "t:0:x", "t:0:1:2", ","])
def test_partitions_that_cannot_be_read_are_a_problem(text: str) -> None:
    said = only_problem(reading.channel("incoming", {"assign-seek": text}))
    assert "assign-seek" in said and "expected" in said


def test_dead_letters_and_delayed_retries_have_clients_of_their_own() -> None:
    orders = incoming(
        {
            "failure-strategy": "delayed-retry-topic",
            "delayed-retry-topic.topics": "o_1000,o_5000",
            "delayed-retry-topic.max-retries": "7",
            "delayed-retry-topic.timeout": "60000",
            "delayed-retry-topic.consumer.fetch.min.bytes": "9",
            "dead-letter-queue.topic": "dead",
            "dead-letter-queue.producer-client-id": "letters",
            "dead-letter-queue.compression.type": "gzip",
            "dead-letter-queue.bootstrap.servers": "localhost:9092",
            "dead-letter-queue.value.serializer": f"{SERIALIZATION}StringSerializer",
        }
    )
    retry, letters = orders.delayed_retry, orders.dead_letter_queue
    assert retry is not None and letters is not None
    assert (retry.topics, retry.max_retries, retry.timeout_s) == (("o_1000", "o_5000"), 7, 60)
    assert retry.client["fetch_min_bytes"] == 9
    assert (letters.topic, letters.client["client_id"], letters.client["compression_type"]) == (
        "dead",
        "letters",
        "gzip",
    )


def test_retries_of_a_poll_are_no_retries_of_a_handler() -> None:
    quiet = incoming({"retry": "true", "retry-attempts": "-1", "retry-max-wait": "30"})
    assert quiet.retry.max_attempts == 1
    lines = problems(
        reading.channel(
            "incoming", {"retry": "false", "retry-attempts": "3", "retry-max-wait": "5"}
        )
    )
    assert len(lines) == 3
    assert "calls of a handler are max_attempts in [incoming.X.retry]" in lines[1]


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ({"waitForWriteCompletion": "false"}, {"wait_for_write": False}),
        ({"waitForWriteCompletion": "true"}, {"wait_for_write": False}),
        ({}, {"wait_for_write": False}),
        ({"max-inflight-messages": "7"}, {"max_in_flight": 7}),
        ({"max-inflight-messages": "0"}, {"max_in_flight": 2**31 - 1}),
        ({"propagate-record-key": "on"}, {"propagate_key": True}),
        ({"propagate-headers": r"a, b\\,c"}, {"propagate_headers": ("a", "b,c")}),
        ({"delivery.timeout.ms": "1500"}, {"send_timeout_s": 1.5}),
        ({"transactional.id": "tx", "acks": "all"}, {"transactional_id": "tx"}),
        ({"reply.topic": "answers"}, {"reply_topic": "answers"}),
        ({"key.serializer": f"{SERIALIZATION}LongSerializer"}, {"key_serializer": "int64"}),
        ({"merge": "true"}, {}),
    ],
)
def test_an_outgoing_channel_is_what_it_was(
    attributes: dict[str, str], found: dict[str, Any]
) -> None:
    settings = outgoing(attributes)
    assert {name: getattr(settings, name) for name in found} == found


@pytest.mark.parametrize(
    ("attributes", "acks"),
    [
        ({}, 1),
        ({"acks": "all"}, "all"),
        ({"transactional.id": "t"}, None),
        ({"enable.idempotence": "true"}, None),
    ],
)
def test_acks_are_smallryes_one_unless_that_could_not_be(
    attributes: dict[str, str], acks: object
) -> None:
    assert outgoing(attributes).client.get("acks") == acks


@pytest.mark.parametrize(
    ("attributes", "client_id"),
    [
        ({}, "kafka-consumer-orders"),
        ({"client.id": "mine"}, "mine"),
        ({"client-id-prefix": "my-"}, "my-orders"),
        ({"client.id": "mine", "client-id-prefix": "my-"}, "my-mine"),
        ({"client.id": "5"}, "5"),
    ],
)
def test_the_client_is_called_as_smallrye_calls_it(
    attributes: dict[str, str], client_id: str
) -> None:
    assert incoming(attributes).client["client_id"] == client_id


def test_events_are_as_the_channel_says() -> None:
    assert leaves("incoming", {"cloud-events": "false"})["cloud_events"] is False
    assert "cloud_events" not in leaves("incoming", {"cloud-events": "true"})
    assert leaves("outgoing", {"cloud-events": "false"})["cloud_events"] is False
    said = leaves(
        "outgoing",
        {"cloud-events-type": "t", "cloud-events-source": "s", "cloud-events-mode": "structured"},
    )
    assert {key: value for key, value in said.items() if key.startswith("cloud")} == {
        "cloud_events.type": "t",
        "cloud_events.source": "s",
        "cloud_events.mode": "structured",
    }
    assert incoming({"cloud-events": "false"}).cloud_events is False
    assert outgoing({"cloud-events": "false"}).cloud_events is None
    assert outgoing({}).cloud_events == CloudEventsSettings()
    given = {"type": "t", "source": "s", "subject": "u", "mode": "structured"}
    events = outgoing({f"cloud-events-{name}": value for name, value in given.items()}).cloud_events
    assert events == CloudEventsSettings(
        every=True, type="t", source="s", subject="u", mode="structured"
    )
    lonely = only_problem(reading.channel("outgoing", {"cloud-events-type": "t"}))
    assert "without both cloud-events-type and cloud-events-source" in lonely


def test_a_schema_registry_is_every_channels() -> None:
    text = (
        "mp.messaging.connector.smallrye-kafka.schema.registry.url=http://r,https://s/apis/ccompat/v7\n"
        "mp.messaging.connector.smallrye-kafka.basic.auth.credentials.source=USER_INFO\n"
        "mp.messaging.connector.smallrye-kafka.basic.auth.user.info=me:hunter2\n"
        "mp.messaging.incoming.a.group.id=g\n"
        "mp.messaging.incoming.a.value.deserializer=io.confluent.kafka.serializers.KafkaAvroDeserializer\n"
        "mp.messaging.incoming.a.key.deserializer=io.confluent.kafka.serializers.KafkaAvroDeserializer\n"
        "mp.messaging.incoming.a.specific.avro.reader=true\n"
        "mp.messaging.outgoing.b.value.serializer=io.confluent.kafka.serializers.KafkaAvroSerializer\n"
        "mp.messaging.outgoing.b.auto.register.schemas=false\n"
        "mp.messaging.outgoing.b.value.subject.name.strategy=io.confluent.kafka.serializers.subject.RecordNameStrategy\n"
    )
    settings = reading.loaded(text)
    registry = settings.schema_registry
    assert registry.url == ("http://r", "https://s/apis/ccompat/v7")
    assert (registry.username, registry.password) == ("me", "hunter2")
    assert (settings.incoming["a"].value_deserializer, settings.incoming["a"].key_deserializer) == (
        "avro",
        "avro",
    )
    assert settings.outgoing["b"].value_serializer == "avro"
    assert settings.outgoing["b"].schema == SchemaSettings(subject="record", register=False)


@pytest.mark.parametrize(
    ("java", "name"),
    [
        (f"{SERIALIZATION}String", "string"),
        (f"{SERIALIZATION}UUID", "string"),
        (f"{SERIALIZATION}ByteArray", "bytes"),
        (f"{SERIALIZATION}ByteBuffer", "bytes"),
        (f"{SERIALIZATION}Bytes", "bytes"),
        (f"{SERIALIZATION}Integer", "int32"),
        (f"{SERIALIZATION}Long", "int64"),
        (f"{SERIALIZATION}Float", "float32"),
        (f"{SERIALIZATION}Double", "float64"),
        ("io.quarkus.kafka.client.serialization.ObjectMapper", "json"),
        ("io.quarkus.kafka.client.serialization.JsonObject", "json"),
        ("io.quarkus.kafka.client.serialization.JsonArray", "json"),
        ("io.quarkus.kafka.client.serialization.Buffer", "bytes"),
        ("io.vertx.kafka.client.serialization.JsonObject", "json"),
        ("io.vertx.kafka.client.serialization.Buffer", "bytes"),
        ("io.confluent.kafka.serializers.KafkaAvro", "avro"),
        ("io.confluent.kafka.serializers.protobuf.KafkaProtobuf", "protobuf"),
        ("io.confluent.kafka.serializers.json.KafkaJsonSchema", "json-schema"),
        ("io.cloudevents.kafka.CloudEvent", "cloudevents"),
    ],
)
def test_a_class_of_javas_names_a_format(java: str, name: str) -> None:
    registry = "mp.messaging.connector.smallrye-kafka.schema.registry.url=http://r"
    assert (
        incoming({"value.deserializer": f"{java}Deserializer"}, registry).value_deserializer == name
    )
    assert outgoing({"value.serializer": f"{java}Serializer"}, registry).value_serializer == name


@pytest.mark.parametrize(
    ("java", "said"),
    [
        (f"{SERIALIZATION}ShortDeserializer", "no format of two bytes"),
        (f"{SERIALIZATION}VoidDeserializer", "leave it out"),
        (f"{SERIALIZATION}StringDeserialiser", "did you mean"),
        (
            "org.acme.FruitDeserializer",
            "JSON goes into the type that the handler is annotated with",
        ),
        ("io.apicurio.registry.serde.avro.AvroKafkaDeserializer", "use Confluent's classes"),
        ("sting", "expected a serializer or deserializer of Java's, or json"),
    ],
)
def test_a_class_without_a_format_says_what_to_do(java: str, said: str) -> None:
    assert said in only_problem(reading.channel("incoming", {"value.deserializer": java}))


def test_formats_of_ours_may_stand_there_too() -> None:
    assert incoming({"value.deserializer": "json"}).value_deserializer == "json"
    assert incoming({"value.deserializer": "my.module:read"}).value_deserializer == "my.module:read"


def test_values_are_looked_up_from_the_channel_to_all_channels() -> None:
    orders = loaded(
        "kafka.group.id=all\nkafka.fetch.min.bytes=1\nkafka.auto.offset.reset=earliest\n"
        "mp.messaging.connector.smallrye-kafka.group.id=connector\n"
        "mp.messaging.connector.smallrye-kafka.fetch.min.bytes=2\n"
        "mp.messaging.connector.smallrye-kafka.linger.ms=9\n"
        "mp.messaging.incoming.orders.fetch.min.bytes=3\n"
        'mp.messaging.incoming."my.orders".topic=t\n'
        "mp.messaging.outgoing.invoices.topic=t\n"
    )
    one, two, out = (
        orders.incoming["orders"],
        orders.incoming["my.orders"],
        orders.outgoing["invoices"],
    )
    assert (one.group_id, one.client["fetch_min_bytes"], one.auto_offset_reset) == (
        "connector",
        3,
        "earliest",
    )
    assert (two.group_id, two.client["fetch_min_bytes"]) == ("connector", 2)
    assert out.client["linger_ms"] == 9


def test_the_environment_is_looked_at_as_smallrye_does() -> None:
    environ = {
        "KAFKA_BOOTSTRAP_SERVERS": "away:1",
        "KAFKA_SECURITY_PROTOCOL": "SSL",
        "KAFKA_HOME": "/opt/kafka",
        "MP_MESSAGING_INCOMING_ORDERS_AUTO_OFFSET_RESET": "earliest",
        "MP_MESSAGING_INCOMING_ORDERS_FETCH_MIN_BYTES": "7",
        "MP_MESSAGING_CONNECTOR_SMALLRYE_KAFKA_HEALTH_ENABLED": "false",
        "REACTIVE_KAFKA__INCOMING__ORDERS__COMMIT_INTERVAL": "1s",
    }
    settings = loaded(
        "mp.messaging.incoming.orders.group.id=g\nkafka.bootstrap.servers=localhost:9092", environ
    )
    orders = settings.incoming["orders"]
    assert settings.bootstrap_servers == orders.client["bootstrap_servers"] == "away:1"
    assert (orders.client["security_protocol"], orders.client["fetch_min_bytes"]) == ("SSL", 7)
    assert (orders.auto_offset_reset, orders.health_enabled, orders.commit_interval_s) == (
        "earliest",
        False,
        1.0,
    )


def test_a_variable_that_nothing_reads_is_a_problem() -> None:
    environ = {
        "MP_MESSAGING_INCOMING_ORDERS_COMIT_STRATEGY": "latest",
        "MP_MESSAGING_INCOMING_ORDER_TOPIC": "t",
    }
    lines = problems("mp.messaging.incoming.orders.group.id=g", environ)
    assert all("it names no attribute of a channel in " in line for line in lines)
    assert [line.split(":")[0] for line in lines] == [
        f"environment variable {name}" for name in sorted(environ)
    ]


def test_the_group_is_the_applications_or_one_that_nobody_has() -> None:
    named = loaded("quarkus.application.name=shop\nmp.messaging.incoming.orders.topic=t")
    assert named.incoming["orders"].group_id == "shop"
    assert named.warnings == ()
    path = written("\nmp.messaging.incoming.orders.topic=t")
    one, two = loading.loaded(path), loading.loaded(path)
    assert one.incoming["orders"].group_id != two.incoming["orders"].group_id
    (warning,) = one.warnings
    assert warning.startswith(f"{path}, line 2: mp.messaging.incoming.orders: set group.id")


def test_the_health_of_all_channels_has_a_switch_of_quarkus() -> None:
    settings = loaded(
        "quarkus.messaging.health.enabled=false\nmp.messaging.incoming.orders.group.id=g\n"
        "mp.messaging.incoming.orders.health-enabled=true\nmp.messaging.outgoing.invoices.topic=t"
    )
    assert not settings.incoming["orders"].health_enabled
    assert not settings.outgoing["invoices"].health_enabled


def test_a_channel_that_is_not_enabled_is_left_out_and_told() -> None:
    settings = loaded(
        "mp.messaging.incoming.orders.enabled=false\nmp.messaging.incoming.orders.nonsense=1"
    )
    assert settings.incoming == {}
    assert (
        "mp.messaging.incoming.orders.enabled = 'false': the channel is left out"
        in settings.warnings[0]
    )


def test_only_kafkas_channels_are_read() -> None:
    amqp = "mp.messaging.incoming.mails.connector=smallrye-amqp\n"
    said = only_problem(amqp)
    assert (
        "mp.messaging.incoming.mails.connector = 'smallrye-amqp': not supported: expected smallrye-kafka"
        in said
    )
    lines = problems(amqp + "mp.messaging.incoming.orders.group.id=g")
    assert (
        "connector is missing: set connector=smallrye-kafka; with several connectors (smallrye-amqp)"
        in lines[1]
    )
    kafka = "mp.messaging.incoming.orders.group.id=g\nmp.messaging.incoming.orders.connector=smallrye-kafka"
    assert len(problems(amqp + kafka)) == 1
    assert loaded(f"%test.{amqp}{kafka}").incoming.keys() == {"orders"}


def test_copies_with_properties_of_their_own_are_refused() -> None:
    text = "mp.messaging.incoming.orders.concurrency=2\nmp.messaging.incoming.orders$1.topic=t\nkafka.group.id=g"
    assert "the consumers of 'orders' are all alike" in only_problem(text)


def test_all_problems_come_in_one_report_in_the_order_of_their_lines() -> None:
    lines = problems(
        "kafka.bootstrap.server=x:1\n"
        "mp.messaging.incoming.orders.group.id=g\n"
        "mp.messaging.incoming.orders.comit-strategy=latest\n"
        "mp.messaging.incoming.orders.commit-strategy=lates\n"
        "mp.messaging.incoming.orders.health-enabled=maybe\n"
        "mp.messaging.incoming.orders.auto.commit.interval.ms=5s\n"
        "mp.messaging.incoming.orders.fetch.min.bytes=many\n"
        "mp.messaging.incoming.orders.ordered=keys\n"
        "mp.messaging.incoming.orders.topic=${TOPIC}\n"
        "mp.messaging.incoming.orders.interceptor.classes=org.acme.X\n"
        "mp.messaging.outgoing.invoices.nonsense=x\n"
        "mp.messaging.outgoing.invoices.partition=3\n"
        "mp.messaging.incomming.invoices.topic=x\n"
        "mp.messaging.incoming.lonely=x\n"
        "smallrye.config.locations=more.properties\n"
    )
    place = "application.properties, line"
    assert [line.partition(": ")[0] for line in lines] == [
        f"{place} {number}" for number in (1, *range(3, 16))
    ]
    told = [line.partition(": ")[2] for line in lines]
    assert told[0] == (
        "kafka.bootstrap.server = 'x:1': no property of Kafka's clients; did you mean 'bootstrap.servers'?"
    )
    assert told[1].endswith("unknown attribute; did you mean 'commit-strategy'?")
    assert told[2].endswith("did you mean 'latest'?")
    assert told[3].endswith("(yes, y, on, 1 and no, n, off, 0 are read, too)")
    assert told[4].endswith("= '5s': expected a whole number of milliseconds")
    assert told[5].endswith("= 'many': expected a whole number of bytes of at least 1")
    assert told[6].endswith("did you mean 'key'?")
    assert told[7].endswith(
        "= '${TOPIC}': ${TOPIC} is not set and has no default; set it, or write ${TOPIC:default}"
    )
    assert "Java classes cannot be loaded" in told[8]
    assert "unknown attribute" in told[9]
    assert told[10].endswith("not supported: return Record(value, partition=...)")
    assert told[11].endswith(
        "expected mp.messaging.incoming, outgoing or connector; did you mean 'incoming'?"
    )
    assert (
        'expected mp.messaging.incoming.<channel>.<attribute>, a name with dots in quotes: "a.b"'
        in told[12]
    )
    assert "name each further file with a --config of its own" in told[13]


def test_the_interval_of_auto_commits_is_that_of_any_commits_as_with_smallrye() -> None:
    for given in ({}, {"enable.auto.commit": "true"}):
        settings = reading.channel("incoming", {"auto.commit.interval.ms": "250", **given})
        assert loaded(settings).incoming["orders"].commit_interval_s == 0.25
    (ignored,) = loaded(reading.channel("outgoing", {"auto.commit.interval.ms": "250"})).warnings
    assert "it belongs to incoming channels" in ignored


def test_contradictions_are_found_as_in_any_file() -> None:
    both = only_problem(
        reading.channel("incoming", {"enable.auto.commit": "true", "commit-strategy": "throttled"})
    )
    assert "orders.enable.auto.commit = 'true': leave one of them out: with enable_auto" in both
    two = only_problem(reading.channel("incoming", {"topics": "a,b", "topic": "c"}))
    assert "topic and topics exclude each other" in two
    assert "batches are not ordered" in only_problem(
        reading.channel("incoming", {"batch": "true", "ordered": "key"})
    )


def test_a_checkpoint_is_kept_in_a_folder_that_is_named() -> None:
    orders = incoming(
        {
            "commit-strategy": "checkpoint",
            "checkpoint.file.state-dir": "/var/lib/my state",
            "checkpoint.unsynced-state-max-age.ms": "20000",
        }
    )
    assert orders.checkpoint is not None
    assert (orders.checkpoint.store, orders.checkpoint.unsynced_max_age_s) == (
        "file:///var/lib/my%20state",
        20,
    )
    assert (orders.ordering, orders.unprocessed_record_max_age_s) == ("partition", 0)
    base = {"commit-strategy": "checkpoint"}
    assert any("name a folder" in line for line in problems(reading.channel("incoming", base)))
    redis = reading.channel("incoming", {**base, "checkpoint.state-store": "quarkus-redis"})
    assert any("redis://host:6379/0" in line for line in problems(redis))
    relative = reading.channel("incoming", {**base, "checkpoint.file.state-dir": "state"})
    assert any("expected an absolute folder" in line for line in problems(relative))


def test_an_empty_host_check_says_something() -> None:
    tls = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    assert incoming(tls).client["ssl_check_hostname"] is False
    shared = "kafka.security.protocol=SSL\nkafka.ssl.endpoint.identification.algorithm=\n"
    assert incoming({}, shared).client["ssl_check_hostname"] is False


def test_properties_that_have_no_channel_are_told_or_not_ours() -> None:
    settings = loaded(
        "quarkus.http.port=8081\ngreeting.message=hello\nmp.messaging.incoming.orders.group.id=g\n"
        "smallrye.messaging.worker.pool.max-concurrency=3\n"
    )
    (warning,) = settings.warnings
    assert "worker pools are not read" in warning


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("smallrye.messaging.observation.enabled", "true", "all channels have metrics"),
        ("smallrye.messaging.observation.enabled", "false", "all channels have metrics"),
        ("smallrye.messaging.anything-else", "1", "without a counterpart here"),
        ("mp.messaging.emitter.default-buffer-size", "5", "emitters wait at max_in_flight"),
    ],
)
def test_each_switch_of_smallryes_is_ignored_with_a_warning_that_names_it(
    name: str, value: str, what: str
) -> None:
    text = f"{name}={value}\nmp.messaging.incoming.orders.group.id=g\n"
    (warning,) = loaded(text).warnings
    assert f"application.properties, line 1: {name} = '{value}': " in warning and what in warning


ADDRESSES = [
    ("PLAINTEXT://broker:9092", "broker:9092"),
    ("plaintext://broker:9092", "broker:9092"),
    ("SSL://a:1,SASL_SSL://b:2, SASL_PLAINTEXT://c:3", "a:1,b:2,c:3"),
    ("a:1,,b:2,", "a:1,b:2"),
    ("PLAINTEXT://[::1]:9092", "[::1]:9092"),
    ("[2001:db8::1]:9092,PLAINTEXT://b:2", "[2001:db8::1]:9092,b:2"),
    ("::1:9092", "[::1]:9092"),
    ("MY_LISTENER://broker:9092", "broker:9092"),
]


@pytest.mark.parametrize(("given", "taken"), ADDRESSES)
def test_addresses_are_taken_as_kafkas_clients_take_them(given: str, taken: str) -> None:
    shared = f"kafka.bootstrap.servers={given}\n"
    assert loaded(shared + reading.channel("incoming", {})).bootstrap_servers == taken
    assert incoming({}, shared).client["bootstrap_servers"] == taken
    assert incoming({"bootstrap.servers": given}).client["bootstrap_servers"] == taken
    connector = f"mp.messaging.connector.smallrye-kafka.bootstrap.servers={given}\n"
    assert incoming({}, connector).client["bootstrap_servers"] == taken
    environ = {"KAFKA_BOOTSTRAP_SERVERS": given}
    assert loaded(reading.channel("incoming", {}), environ).bootstrap_servers == taken
    letters = incoming(
        {"failure-strategy": "dead-letter-queue", "dead-letter-queue.bootstrap.servers": given}
    )
    assert letters.dead_letter_queue is not None
    assert letters.dead_letter_queue.client["bootstrap_servers"] == taken


@pytest.mark.parametrize(
    "given",
    ["PLAINTEXT://broker", "PLAINTEXT://", "broker:x", "http://user:pass@broker:9092", "a:1 b:2"],
)
def test_what_no_client_takes_for_an_address_is_a_problem(given: str) -> None:
    assert "host:port" in only_problem(
        f"kafka.bootstrap.servers={given}\n" + reading.channel("incoming", {})
    )


@pytest.mark.parametrize("place", ["kafka.", reading.PREFIX["incoming"]])
def test_a_protocol_in_an_address_that_is_not_the_one_that_counts_is_a_warning(place: str) -> None:
    text = f"{place}bootstrap.servers=SSL://broker:9092,PLAINTEXT://b:1\n" + reading.channel(
        "incoming", {}
    )
    (warning,) = loaded(text).warnings
    assert (
        "SSL has no effect in an address: security.protocol decides, and it is PLAINTEXT" in warning
    )
    ssl = f"{place}security.protocol=SSL\n{place}bootstrap.servers=SSL://broker:9092\n"
    assert loaded(ssl + reading.channel("incoming", {})).warnings == ()


CLIENT_OF = {"incoming": "consumer", "outgoing": "producer"}
OTHER = {"incoming": "outgoing", "outgoing": "incoming"}
OF_THE_OTHER_SIDE = [
    (side, name)
    for side, other in OTHER.items()
    for name in (
        *(name for name in names_of(other) if attribute(side, name) is None),
        *(
            one.kafka
            for one in PROPERTIES
            if one.sides == {CLIENT_OF[other]} and attribute(side, one.kafka) is None
        ),
    )
]
"""Side, and an attribute that only the other side has."""


@pytest.mark.parametrize(("side", "name"), dict.fromkeys(OF_THE_OTHER_SIDE))
def test_an_attribute_of_the_other_side_is_a_warning_as_smallrye_ignores_it(
    side: str, name: str
) -> None:
    connector = {"connector": "smallrye-kafka"}
    plain = loaded(reading.channel(side, connector))
    told = loaded(reading.channel(side, {**connector, name: "17"}))
    assert (told.incoming, told.outgoing) == (plain.incoming, plain.outgoing)
    (warning,) = told.warnings
    assert f"{reading.PREFIX[side]}{name} = " in warning
    assert f"it belongs to {OTHER[side]} channels, and SmallRye ignores it here" in warning
    variable = {alpha(reading.PREFIX[side] + name): "17"}
    (warning,) = loaded(reading.channel(side, connector), variable).warnings
    assert "has no effect" in warning


@pytest.mark.parametrize(
    "name",
    [
        "dead-letter-queue.group.id",
        "dead-letter-queue.fetch.min.bytes",
        "delayed-retry-topic.consumer.linger.ms",
        "delayed-retry-topic.consumer.value.serializer",
    ],
)
def test_a_property_of_the_other_client_is_a_warning_in_the_tables_of_failures(name: str) -> None:
    (warning,) = loaded(reading.channel("incoming", {name: "5"})).warnings
    assert (
        f"mp.messaging.incoming.orders.{name} = '5': has no effect: it is no property of a "
        in warning
    )


def test_a_misspelt_attribute_is_a_problem_whatever_the_other_side_has() -> None:
    assert "did you mean 'group.id'?" in only_problem(reading.channel("incoming", {"groupid": "g"}))


REFERENCED = [
    ("mp.messaging.topics.orders", "shop"),
    ("mp.messaging.incoming.orders.my-topic", "shop"),
    ("mp.messaging.incoming.names.of-orders", "shop"),
    ("mp.messaging.incoming.lonely", "shop"),
    ("mp.messaging.connector.smallrye-kafka.my-topic", "shop"),
    ("mp.messaging.connector.mine.topic", "shop"),
    ("mp.messaging.incomming.topic", "shop"),
    ("mp.messaging.incoming.orders.topicc", "shop"),
    ("kafka.topic.orders", "shop"),
    ("smallrye.messaging.topic", "shop"),
]


@pytest.mark.parametrize(("name", "value"), REFERENCED)
@pytest.mark.parametrize(
    "reference", ["${NAME}", "${nothing:${NAME}}", "%dev.${NAME}", "${${part}}"]
)
def test_a_property_that_another_one_refers_to_is_a_variable(
    name: str, value: str, reference: str
) -> None:
    topic, profile = reference.replace("NAME", name), ""
    if reference.startswith("%dev."):
        topic, profile = topic.removeprefix("%dev."), "%dev."
    settings = loaded(
        f"{name}={value}\npart={name}\nmp.messaging.incoming.orders.group.id=g\n"
        "mp.messaging.incoming.orders.connector=smallrye-kafka\n"
        f"{profile}mp.messaging.incoming.orders.topic={topic}\n"
    )
    assert settings.incoming.keys() == {"orders"}
    assert settings.incoming["orders"].topics == (("orders",) if profile else (value,))
    assert settings.warnings == ()


@pytest.mark.parametrize(
    "name",
    [
        "mp.messaging.topics.orders",
        "mp.messaging.incoming.names.of-orders",
        "mp.messaging.connector.mine.topic",
        "kafka.topic.orders",
    ],
)
def test_a_property_of_no_channel_with_a_connector_is_a_warning(name: str) -> None:
    settings = loaded(
        f"{name}=shop\nmp.messaging.incoming.orders.group.id=g\nmp.messaging.incoming.orders.connector=smallrye-kafka\n"
    )
    assert settings.incoming.keys() == {"orders"}
    (warning,) = settings.warnings
    assert f"application.properties, line 1: {name}: " in warning and "'shop'" not in warning


def test_a_channel_without_a_connector_is_one_unless_all_its_properties_are_variables() -> None:
    shared = "mp.messaging.incoming.common.auto.offset.reset=earliest\n"
    orders = (
        "mp.messaging.incoming.orders.group.id=g\nmp.messaging.incoming.orders.connector=smallrye-kafka\n"
        "mp.messaging.incoming.orders.auto.offset.reset=${mp.messaging.incoming.common.auto.offset.reset}\n"
    )
    settings = loaded(shared + orders)
    assert settings.incoming.keys() == {"orders"}
    assert settings.incoming["orders"].auto_offset_reset == "earliest"
    (warning,) = settings.warnings
    assert "'common' has no connector, so its properties are taken for variables" in warning
    assert loaded(shared + orders + "mp.messaging.incoming.common.group.id=g").incoming.keys() == {
        "common",
        "orders",
    }
    alone = orders.replace("mp.messaging.incoming.orders.connector=smallrye-kafka\n", "")
    assert loaded(shared + alone + "kafka.group.id=g").incoming.keys() == {"common", "orders"}


SECRETS = """
kafka.bootstrap.servers=kafka:9092
kafka.security.protocol=SASL_SSL
kafka.sasl.mechanism=PLAIN
kafka.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" {}
mp.messaging.incoming.orders.group.id=g
mp.messaging.incoming.orders.ssl.keystore.pasword=canary
mp.messaging.incoming.orders.sasl.pw=canary
mp.messaging.incoming.orders.auto.commit.interval.ms=${{nothing.${{canary.name}}}}
canary.name=canary
kafka.ssl.key.pasword=canary
mp.messaging.ssl.password=canary
mp.messaging.mine.sasl.pw=canary
mp.messaging.outgoing.invoices.group.password=canary
mp.messaging.outgoing.invoices.basic.auth.user.info=me:canary
mp.messaging.outgoing.other.basic.auth.user.info=canary
"""


@pytest.mark.parametrize(
    "line",
    [
        r"mp.messaging.a\n\u001b[31mb=x",
        r"kafka.a\n\u001b[31mb=x",
        r"smallrye.messaging.a\n\u001b[31mb=x",
        r"mp.messaging.connector.a\n\u001b[31mb.c=x",
        r"mp.messaging.outgoing.out.topic=t"
        "\n"
        r"mp.messaging.outgoing.out.group.id=a\n\u001b[31mb",
    ],
)
def test_a_warning_is_one_line_that_a_terminal_can_show(line: str) -> None:
    (warning,) = loaded(f"{line}\nmp.messaging.incoming.orders.group.id=g\n").warnings
    assert warning.isprintable()
    assert r"a\n\x1b[31mb" in warning


def test_no_warning_shows_a_secret() -> None:
    text = "mp.messaging.mine.pw=canary\nkafka.mine.pw=canary\nmp.messaging.incoming.orders.group.id=g\n"
    warnings = loaded(text).warnings
    assert len(warnings) == 2
    assert "canary" not in str(warnings) and "mp.messaging.mine.pw: " in str(warnings)


def test_no_problem_shows_a_secret() -> None:
    for jaas in ('password="canary" x', 'password="canary";'):
        text = "\n".join(problems(SECRETS.format(jaas)))
        assert "canary" not in text.replace("${canary.name}", "")
        assert "sasl.pw = ***" in text


def test_several_files_win_key_by_key(tmp_path: Any) -> None:
    properties = written(
        "mp.messaging.incoming.orders.group.id=g\nmp.messaging.incoming.orders.ordered=key\n"
    )
    toml = loading.write(
        tmp_path, "more.toml", "[incoming.orders]\nconcurrency = 7\n[http]\nport = 1\n"
    )
    settings = loading.loaded([properties, toml])
    orders = settings.incoming["orders"]
    assert (orders.group_id, orders.ordering, orders.concurrency, settings.http.port) == (
        "g",
        "key",
        7,
        1,
    )
    assert settings.source == f"{properties}, {toml}"
    assert loading.loaded([toml, properties]).incoming["orders"].concurrency == 500
