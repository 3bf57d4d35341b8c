"""The TOML that is printed of an ``application.properties`` loads as the same settings."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka.config.load import toml_of_quarkus
from reactive_kafka.config.settings import Settings
from tests.config import loading
from tests.config.microprofile.reading import written
from tests.config.microprofile.test_text import stored

Environ = dict[str, str]


def printed(text: str, environ: Environ | None = None) -> str:
    return toml_of_quarkus(written(text), environ or {})[0]


def same(settings: Settings) -> Settings:
    """Without what says where it was read."""
    return replace(settings, source="", warnings=())


def check_round_trip(text: str, environ: Environ | None = None) -> str:
    """Both say the same, in the same environment."""
    path = written(text)
    toml = toml_of_quarkus(path, environ or {})[0]
    again = loading.write(path.parent, "reactive-kafka.toml", toml)
    assert same(loading.loaded(again, environ)) == same(loading.loaded(path, environ))
    return toml


def test_what_is_printed_says_what_is_smallryes_default() -> None:
    lines = printed(
        "kafka.bootstrap.servers=kafka:9092\nmp.messaging.incoming.orders.group.id=g\n"
        'mp.messaging.incoming."my.orders".topics=a,b\nmp.messaging.incoming."my.orders".group.id=h\n'
        'mp.messaging.incoming."my.orders".failure-strategy=ignore\n'
    ).splitlines()
    assert lines[0].startswith("# What ") and lines[0].endswith(
        "application.properties means, profile prod."
    )
    assert lines[1:] == [
        "",
        "[kafka]",
        '"bootstrap.servers" = "kafka:9092"',
        "",
        "[incoming.orders]",
        'client_id = "kafka-consumer-orders"  # SmallRye\'s default',
        'group_id = "g"',
        'key_deserializer = "string"  # SmallRye\'s default',
        'ordering = "unordered"  # SmallRye\'s default',
        "",
        '[incoming."my.orders"]',
        'failure_strategy = "ignore"',
        'client_id = "kafka-consumer-my.orders"  # SmallRye\'s default',
        'topics = ["a", "b"]',
        'group_id = "h"',
        'key_deserializer = "string"  # SmallRye\'s default',
        'ordering = "unordered"  # SmallRye\'s default',
        "",
        '[incoming."my.orders".failure_routes]',
        'DecodeError = "fail"  # SmallRye\'s default',
    ]


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="canary";'


def test_a_secret_is_a_variable_and_never_its_text() -> None:
    text = (
        "kafka.security.protocol=SASL_SSL\nkafka.sasl.mechanism=PLAIN\nkafka.bootstrap.servers=kafka:9092\n"
        f"kafka.sasl.jaas.config={JAAS}\nmp.messaging.incoming.orders.group.id=g\n"
        "mp.messaging.incoming.orders.ssl.key.password=${KEY_PASSWORD}\n"
        "mp.messaging.incoming.orders.ssl.keystore.location=/dev/null\n"
        "mp.messaging.incoming.orders.ssl.truststore.location=/dev/null\n"
    )
    environ = {"KEY_PASSWORD": "canary", "KAFKA_SASL_JAAS_CONFIG": JAAS}
    toml = check_round_trip(text, environ)
    assert "canary" not in toml
    tables = tomllib.loads(toml)
    assert tables["kafka"]["sasl.jaas.config"] == "${KAFKA_SASL_JAAS_CONFIG}"
    assert tables["incoming"]["orders"]["ssl.key.password"] == "${KEY_PASSWORD}"
    assert "name a file with it in sasl.jaas.config.file" in toml
    alone = printed(text, {"KEY_PASSWORD": "canary"})
    assert tomllib.loads(alone)["kafka"]["sasl.jaas.config"] == "${KAFKA_SASL_JAAS_CONFIG}"
    assert "canary" not in alone


def test_what_looks_like_a_reference_is_none() -> None:
    toml = check_round_trip('mp.messaging.incoming.orders.group.id=$${x} "\\\\n\\u007f\\u0001😀\n')
    assert tomllib.loads(toml)["incoming"]["orders"]["group_id"] == '$${x} "\\n\x7f\x01😀'


def test_warnings_stand_above_it() -> None:
    toml = printed("mp.messaging.incoming.orders.topic=t\n")
    assert "# warning: " in toml.splitlines()[1]
    assert "set group.id or quarkus.application.name" in toml.splitlines()[1]


@pytest.mark.parametrize(
    "line",
    [
        "mp.messaging.incoming.orders.topic=t",
        "mp.messaging.incoming.orders.group.id=${quarkus.uuid}",
        "mp.messaging.incoming.orders.group.id=shop-${quarkus.uuid}",
        "kafka.group.id=${quarkus.uuid}",
    ],
)
def test_a_group_that_is_another_one_at_each_start_is_left_to_whoever_moves(line: str) -> None:
    path = written(f"mp.messaging.incoming.orders.auto.offset.reset=earliest\n{line}\n")
    one, two = (toml_of_quarkus(path, {})[0] for _ in range(2))
    assert one == two
    comment = '# group_id = "orders"  # SmallRye takes a new group at each start; set the one that all replicas share'
    assert comment in one.splitlines()
    again = loading.write(path.parent, "reactive-kafka.toml", one)
    assert "group_id" in loading.only_problem(again)
    uncommented = loading.write(
        path.parent, "reactive-kafka.toml", one.replace("# group_id", "group_id")
    )
    assert loading.loaded(uncommented).incoming["orders"].group_id == "orders"


def test_nothing_that_is_another_one_at_each_start_is_fixed() -> None:
    path = written(
        "mp.messaging.outgoing.out.connector=smallrye-kafka\n"
        "mp.messaging.outgoing.out.transactional.id=tx-${quarkus.uuid}\nmp.messaging.outgoing.out.acks=all\n"
        "mp.messaging.outgoing.out.client.id=${quarkus.uuid}\n"
    )
    one, two = (toml_of_quarkus(path, {})[0] for _ in range(2))
    assert one == two
    assert "# transactional_id = " in one and "# client_id = " in one


def test_our_own_variables_are_no_part_of_it() -> None:
    environ = {"REACTIVE_KAFKA__INCOMING__ORDERS__TOPIC": "elsewhere"}
    assert "elsewhere" not in printed("mp.messaging.incoming.orders.group.id=g\n", environ)


CHOICES: dict[str, dict[str, list[str]]] = {
    "incoming": {
        "topic": ["t", "my.topic"],
        "auto.offset.reset": ["earliest", "latest", "none"],
        "auto.commit.interval.ms": ["1", "1500", "60000", "90000"],
        "commit-strategy": ["throttled", "latest", "ignore"],
        "throttled.unprocessed-record-max-age.ms": ["0", "-5", "12345"],
        "ordered": ["key", "Partition"],
        "ordered.max-concurrency": ["1", "7"],
        "max.poll.records": ["1", "50", "1000"],
        "max-queue-size-factor": ["1", "3"],
        "concurrency": ["1", "3"],
        "failure-strategy": ["fail", "ignore", "dead-letter-queue", "delayed-retry-topic"],
        "dead-letter-queue.topic": ["dead"],
        "dead-letter-queue.linger.ms": ["5"],
        "delayed-retry-topic.topics": ["o_1000,o_2000"],
        "delayed-retry-topic.max-retries": ["0", "2"],
        "delayed-retry-topic.timeout": ["60000"],
        "delayed-retry-topic.consumer.fetch.min.bytes": ["5"],
        "health-enabled": ["true", "off"],
        "graceful-shutdown": ["true", "false"],
        "value.deserializer": [
            f"org.apache.kafka.common.serialization.{name}Deserializer"
            for name in ("Long", "String", "ByteArray")
        ],
        "client-id-prefix": ["p-"],
        "client.id": ["5", "mine"],
        "session.timeout.ms": ["30000"],
        "fetch.min.bytes": ["3"],
        "isolation.level": ["read_committed"],
    },
    "outgoing": {
        "topic": ["t", "2024"],
        "acks": ["1", "all", "-1"],
        "waitForWriteCompletion": ["true", "no"],
        "max-inflight-messages": ["0", "5"],
        "delivery.timeout.ms": ["1500"],
        "propagate-record-key": ["y"],
        "propagate-headers": ["a,b", r"a\,b, c"],
        "compression.type": ["none", "gzip"],
        "linger.ms": ["9"],
        "health-enabled": ["false"],
        "reply.topic": ["answers"],
    },
}
# Each can be part of a topic's name.
NAMES = st.sampled_from(["orders", "my.orders", "invoices-out", "2024"])


def channels(side: str) -> st.SearchStrategy[dict[str, dict[str, str]]]:
    attributes = {name: st.sampled_from(values) for name, values in CHOICES[side].items()}
    # A name is not always one.
    topic = {"topic": attributes.pop("topic")} if side == "incoming" else {}
    return st.dictionaries(
        NAMES, st.fixed_dictionaries(topic, optional=attributes), min_size=1, max_size=3
    )


# An example has up to six channels, each with attributes of its own.
@settings(max_examples=40)
@given(channels("incoming"), channels("outgoing"), st.booleans())
def test_any_channels_are_the_same_in_toml(
    incoming: dict[str, dict[str, str]], outgoing: dict[str, dict[str, str]], is_quoted: bool
) -> None:
    lines = ["quarkus.application.name=shop\n", "kafka.bootstrap.servers=a:1,b:2\n"]
    for side, given_channels in (("incoming", incoming), ("outgoing", outgoing)):
        for name, attributes in given_channels.items():
            quoted = f'"{name}"' if is_quoted or "." in name else name
            prefix = f"mp.messaging.{side}.{quoted}."
            attributes = {"connector": "smallrye-kafka", **attributes}
            if side == "outgoing":
                attributes.setdefault("topic", "t")
            lines += [stored(prefix + attribute, value) for attribute, value in attributes.items()]
    check_round_trip("".join(lines))


def test_the_file_is_not_there(tmp_path: Path) -> None:
    assert "there is no such file" in loading.only_problem(tmp_path / "application.properties")
