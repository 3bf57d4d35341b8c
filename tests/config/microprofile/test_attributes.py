"""Every attribute of SmallRye's is mapped, or refused by name."""

from __future__ import annotations

import pytest

from reactive_kafka.config.microprofile.smallrye_attributes import ATTRIBUTES, Attribute, attribute
from tests.config.microprofile import reading
from tests.config.microprofile.reading import PREFIX, only_problem

# The names in the @ConnectorAttribute annotations of SmallRye's KafkaConnector, main of July 2026,
# with their aliases.
THEIRS = {
    "both": "bootstrap.servers topic health-enabled health-readiness-enabled health-readiness-topic-verification "
    "health-readiness-timeout health-topic-verification-enabled health-topic-verification-timeout "
    "health-topic-verification-startup-disabled health-topic-verification-readiness-disabled tracing-enabled "
    "cloud-events kafka-configuration client-id-prefix lazy-client",
    "incoming": "topics pattern assign-seek key.deserializer value.deserializer group.id enable.auto.commit "
    "retry retry-attempts retry-max-wait broadcast auto.offset.reset failure-strategy commit-strategy "
    "throttled.unprocessed-record-max-age.ms ordered ordered.max-concurrency throttled.ordered "
    "throttled.ordered.max-concurrency checkpoint.state-store checkpoint.state-type "
    "checkpoint.unsynced-state-max-age.ms dead-letter-queue.topic dead-letter-queue.producer-client-id "
    "dead-letter-queue.key.serializer dead-letter-queue.value.serializer delayed-retry-topic.topics "
    "delayed-retry-topic.max-retries delayed-retry-topic.timeout partitions requests consumer-rebalance-listener.name "
    "key-deserialization-failure-handler value-deserialization-failure-handler fail-on-deserialization-failure "
    "graceful-shutdown poll-timeout pause-if-no-requests batch max-queue-size-factor share-group share-group.enabled "
    "share-group.unprocessed-record-max-age.ms share-group.failure-acknowledgement-type "
    "share-group.failure-deserialization-acknowledgement-type "
    # of every connector's channels, and what its code reads beside its attributes
    "connector enabled concurrency pausable initially-paused pausable.late-subscription pausable.buffer-size "
    "pausable.buffer-strategy auto.commit.interval.ms checkpoint.file.state-dir",
    "outgoing": "key.serializer value.serializer acks buffer.memory retries key partition waitForWriteCompletion "
    "max-inflight-messages cloud-events-source cloud-events-default-source cloud-events-type cloud-events-default-type "
    "cloud-events-subject cloud-events-default-subject cloud-events-data-content-type "
    "cloud-events-default-data-content-type cloud-events-data-schema cloud-events-default-data-schema "
    "cloud-events-insert-timestamp cloud-events-default-timestamp cloud-events-mode close-timeout merge "
    "propagate-record-key propagate-headers key-serialization-failure-handler value-serialization-failure-handler "
    "interceptor-bean pooled-producer pooled-producer.enabled pooled-producer.initial-pool-size "
    "pooled-producer.max-pool-size connector enabled transactional.id delivery.timeout.ms",
}
NATIVE = ("fetch.min.bytes", "max.poll.records")
"""Those that Kafka's client has itself."""


@pytest.mark.parametrize("side", ["incoming", "outgoing"])
def test_no_attribute_of_smallryes_is_forgotten(side: str) -> None:
    assert [
        name
        for name in (THEIRS["both"] + " " + THEIRS[side]).split()
        if attribute(side, name) is None
    ] == []


@pytest.mark.parametrize("name", NATIVE)
def test_what_kafkas_client_has_itself_is_a_property_of_it(name: str) -> None:
    assert reading.incoming({name: "7"}).client[name.replace(".", "_")] == 7


REFUSED = [(side, one) for one in ATTRIBUTES if one.is_refused for side in sorted(one.sides)]


def with_one(side: str, one: Attribute, value: str) -> str:
    return reading.channel(side, {"connector": "smallrye-kafka", one.name: value})


@pytest.mark.parametrize(("side", "one"), REFUSED, ids=lambda value: getattr(value, "name", value))
def test_a_refused_attribute_is_named_with_what_to_use_instead(side: str, one: Attribute) -> None:
    other = {"true": "false", "false": "true"}.get(one.default, "17")
    said = only_problem(with_one(side, one, other))
    assert said.startswith("application.properties, line ")
    assert f"{PREFIX[side]}{one.name} = '{other}': not supported: {one.instead}" in said
    assert len(one.instead.split()) > 2


@pytest.mark.parametrize(
    ("side", "one"),
    [pair for pair in REFUSED if pair[1].default],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_refused_attribute_may_say_its_default(side: str, one: Attribute) -> None:
    plain, said = (
        reading.loaded(with_one(side, one, "")),
        reading.loaded(with_one(side, one, one.default)),
    )
    assert (said.incoming, said.outgoing) == (plain.incoming, plain.outgoing)


@pytest.mark.parametrize(
    ("side", "name", "value"),
    [
        ("incoming", "pausable", "true"),
        ("incoming", "health-topic-verification-enabled", "true"),
        ("incoming", "health-readiness-topic-verification", "true"),
        ("incoming", "specific.avro.reader", "true"),
        ("outgoing", "merge", "true"),
    ],
)
def test_what_is_always_so_may_be_said_and_must_be_a_boolean(
    side: str, name: str, value: str
) -> None:
    text = reading.channel(side, {name: value})
    plain = reading.loaded(reading.channel(side, {"health-enabled": "true"}))
    assert (reading.loaded(text).incoming, reading.loaded(text).outgoing) == (
        plain.incoming,
        plain.outgoing,
    )
    assert "expected true or false" in only_problem(reading.channel(side, {name: "perhaps"}))


def test_an_attribute_is_mapped_or_has_a_rule_or_is_refused() -> None:
    for one in ATTRIBUTES:
        assert bool(one.ours) != bool(one.instead), one
