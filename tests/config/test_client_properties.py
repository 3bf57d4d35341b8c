from __future__ import annotations

import inspect
import ssl
from typing import Any

import aiokafka
import pytest

from reactive_kafka.config.client_properties import PROPERTIES, REFUSED, SIDES
from tests.config.loading import incoming, loaded, only_problem, outgoing, problems

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p\\"w=;";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required password=pw username='u';"
TLS = {"security.protocol": "SSL"}


def consumer(**properties: Any) -> dict[str, Any]:
    """What the consumer's client gets for raw *properties*, without the brokers."""
    client = dict(loaded(incoming(**properties)).incoming["orders"].client)
    assert client.pop("bootstrap_servers") == "localhost:9092"
    return client


def producer(**properties: Any) -> dict[str, Any]:
    client = dict(loaded(outgoing(**properties)).outgoing["invoices"].client)
    assert client.pop("bootstrap_servers") == "localhost:9092"
    return client


def test_every_keyword_of_aiokafka_is_a_property_a_key_of_ours_or_refused() -> None:
    ours = {
        "self",
        "topics",
        "bootstrap_servers",
        "group_id",
        "auto_offset_reset",
        "enable_auto_commit",
        "auto_commit_interval_ms",
        "transactional_id",
    }
    ours |= {
        "key_deserializer",
        "value_deserializer",
        "key_serializer",
        "value_serializer",
        "partitioner",
        # We join groups by ourselves.
        "partition_assignment_strategy",
        # Of aiokafka 0.15. Refused with everything that begins with "metrics".
        "metrics_collector",
    }
    refused = {name.replace(".", "_") for name in REFUSED}
    for client in (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer):
        keywords = inspect.signature(client.__init__).parameters.keys()
        assert keywords - ours - refused - SIDES.keys() == set()


@pytest.mark.parametrize("name", ["session.timeout.ms", "session_timeout_ms", "session-timeout-ms"])
def test_both_names_of_a_property_mean_the_same(name: str) -> None:
    assert consumer(**{name: 6000}) == {"session_timeout_ms": 6000}


def test_a_dotted_name_may_be_written_as_nested_tables() -> None:
    nested = {
        "session": {"timeout": {"ms": 6000}},
        "retry": {"backoff": {"ms": 50}, "max_attempts": 2},
    }
    channel = loaded(incoming(**nested)).incoming["orders"]
    assert channel.client == {
        "bootstrap_servers": "localhost:9092",
        "session_timeout_ms": 6000,
        "retry_backoff_ms": 50,
    }
    assert channel.retry.max_attempts == 2


def test_both_names_with_one_value_are_fine_and_with_two_an_error() -> None:
    assert consumer(**{"session.timeout.ms": 6000, "session_timeout_ms": 6000}) == {
        "session_timeout_ms": 6000
    }
    line = only_problem(incoming(**{"session.timeout.ms": 6000, "session_timeout_ms": 7000}))
    assert (
        "[incoming.orders] session_timeout_ms = 7000: [incoming.orders] session.timeout.ms = 6000 (code) has another"
        in line
    )


@pytest.mark.parametrize(
    ("written", "client"),
    [
        ({"client.id": "me"}, {"client_id": "me"}),
        ({"fetch.wait.max.ms": 5}, {"fetch_max_wait_ms": 5}),
        ({"isolation.level": "read_committed"}, {"isolation_level": "read_committed"}),
        (
            {"partition.assignment.strategy": "range,sticky"},
            {"assignors": ("range", "sticky")},
        ),
        (
            {
                "partition.assignment.strategy": [
                    "org.apache.kafka.clients.consumer.RoundRobinAssignor"
                ]
            },
            {"assignors": ("roundrobin",)},
        ),
        ({"assignors": "cooperative-sticky"}, {"assignors": ("cooperative-sticky",)}),
        ({"assignors": ["my.rules:by_rack"]}, {"assignors": ("my.rules:by_rack",)}),
        ({"enable.auto.commit": False}, {}),
        ({"max.poll.records": 50}, {"max_poll_records": 50}),
        ({"check_crcs": False, "client.rack": "a"}, {"check_crcs": False, "client_rack": "a"}),
        (
            TLS | {"ssl.truststore.type": "PEM", "ssl.truststore.location": __file__},
            {"security_protocol": "SSL", "ssl_cafile": __file__},
        ),
        (
            TLS
            | {
                "ssl.truststore.certificates": CERTIFICATE,
                "ssl.endpoint.identification.algorithm": "",
            },
            {"security_protocol": "SSL", "ssl_cadata": CERTIFICATE, "ssl_check_hostname": False},
        ),
        (
            TLS
            | {
                "ssl.keystore.location": __file__,
                "ssl.key.location": __file__,
                "ssl.key.password": "pw",
            },
            {
                "security_protocol": "SSL",
                "ssl_certfile": __file__,
                "ssl_keyfile": __file__,
                "ssl_password": "pw",
            },
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.jaas.config": PLAIN},
            {
                "security_protocol": "SASL_SSL",
                "sasl_plain_username": "u",
                "sasl_plain_password": 'p"w=;',
            },
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": SCRAM,
            },
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "u",
                "sasl_plain_password": "pw",
            },
        ),
    ],
)
def test_a_consumers_property_comes_out_as_aiokafka_takes_it(
    written: dict[str, Any], client: dict[str, Any]
) -> None:
    assert consumer(**written) == client


@pytest.mark.parametrize(
    ("written", "client"),
    [
        ({"acks": "all"}, {"acks": "all"}),
        ({"acks": -1}, {"acks": "all"}),
        ({"acks": "1"}, {"acks": 1}),
        ({"compression.type": "none"}, {"compression_type": None}),
        ({"compression_type": "zstd"}, {"compression_type": "zstd"}),
        ({"batch.size": 1, "linger.ms": 0}, {"max_batch_size": 1, "linger_ms": 0}),
    ],
)
def test_a_producers_property_comes_out_as_aiokafka_takes_it(
    written: dict[str, Any], client: dict[str, Any]
) -> None:
    assert producer(**written) == client


def test_an_ssl_context_from_code_is_passed_on() -> None:
    context = ssl.create_default_context()
    assert consumer(**TLS, ssl_context=context)["ssl_context"] is context


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("session.timeout.ms", "6000", "expected a whole number of milliseconds"),
        ("session.timeout.ms", 2**31, "expected a whole number of milliseconds"),
        ("max.poll.records", 0, "at least 1"),
        ("check.crcs", "yes", "expected true or false"),
        ("security.protocol", "ssl", 'one of "PLAINTEXT", "SSL"'),
        ("isolation.level", "committed", "did you mean 'read_committed'?"),
        (
            "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.StickiestAssignor",
            'expected "range"',
        ),
        ("partition.assignment.strategy", [["range"]], 'expected "range"'),
        ("assignors", [], 'expected "range"'),
        ("ssl.truststore.type", "JKS", "JKS and PKCS12 stores cannot be read"),
        ("ssl.keystore.location", "me.p12", "JKS and PKCS12 stores cannot be read"),
        ("ssl.truststore.certificates", "ca.pem", "in PEM form"),
        ("ssl.endpoint.identification.algorithm", ["https"], 'expected "https"'),
        (
            "sasl.jaas.config",
            PLAIN.replace("username", "junk username"),
            "PlainLoginModule or ScramLoginModule",
        ),
        ("sasl.jaas.config", "com.example.Login required;", "PlainLoginModule or ScramLoginModule"),
        (
            "sasl.jaas.config",
            PLAIN.replace("username", "user"),
            "PlainLoginModule or ScramLoginModule",
        ),
        ("sasl_oauth_token_provider", "my:provider", "given in code"),
        ("enable.auto.commit", "yes", "expected true or false"),
        (
            "auto.commit.interval.ms",
            5,
            "needs enable_auto_commit = true; without it use commit_interval",
        ),
        (
            "auto_commit_interval_ms",
            5,
            "needs enable_auto_commit = true; without it use commit_interval",
        ),
        ("auto.commit.interval.ms", 0, "expected a whole number of milliseconds of at least 1"),
        ("auto.commit.interval.ms", -1, "expected a whole number of milliseconds of at least 1"),
        ("auto.commit.interval.ms", "5s", "expected a whole number of milliseconds of at least 1"),
        ("auto_commit_interval_ms", 2.5, "expected a whole number of milliseconds of at least 1"),
        ("auto.commit.interval.mss", 5, "unknown key; did you mean 'auto.commit.interval.ms'?"),
        ("session.timeout.mss", 5, "unknown key; did you mean 'session.timeout.ms'?"),
        ("session_timeout", 5, "unknown key; did you mean 'session_timeout_ms'?"),
        ("linger.ms", 5, "does not belong here but in [outgoing.X] or [kafka]"),
    ],
)
def test_a_wrong_property_is_one_problem_that_says_what_to_do(
    name: str, value: Any, said: str
) -> None:
    line = only_problem(incoming(**{name: value}))
    assert line.startswith(f"code: [incoming.orders] {name} = ")
    assert said in line


AUTO = {"enable.auto.commit": True}
AUTO_INTERVALS = ("auto.commit.interval.ms", "auto_commit_interval_ms", "auto-commit-interval-ms")


@pytest.mark.parametrize("name", AUTO_INTERVALS)
def test_kafkas_interval_of_auto_commits_is_ours_in_milliseconds_where_there_are_such(
    name: str,
) -> None:
    channel = loaded(incoming(**AUTO, **{name: 250})).incoming["orders"]
    assert channel.commit_interval_s == 0.25
    assert channel.client == {"bootstrap_servers": "localhost:9092"}, (
        "we commit, and not the client"
    )
    of_all = {**incoming(**AUTO), "kafka": {"bootstrap_servers": "a:1", name: 250}}
    assert loaded(of_all).incoming["orders"].commit_interval_s == 0.25


@pytest.mark.parametrize("name", AUTO_INTERVALS)
def test_kafkas_interval_of_auto_commits_and_ours_must_say_the_same(name: str) -> None:
    assert (
        loaded(incoming(**AUTO, commit_interval="5s", **{name: 5_000}))
        .incoming["orders"]
        .commit_interval_s
        == 5
    )
    for given in ({"commit_interval": "5s", name: 6_000}, {name: 6_000, "commit_interval": "5s"}):
        line = only_problem(incoming(**AUTO, **given))
        assert "commit_interval = '5s'" in line
        assert f"{name} = 6000" in line
        assert "has another value" in line
    line = only_problem(
        incoming(**AUTO, **{"auto.commit.interval.ms": 1, "auto_commit_interval_ms": 2})
    )
    assert "auto.commit.interval.ms = 1" in line
    assert "auto_commit_interval_ms = 2" in line


@pytest.mark.parametrize("name", AUTO_INTERVALS)
def test_kafkas_interval_of_auto_commits_is_refused_where_it_would_say_when_something_else_commits(
    name: str,
) -> None:
    of_all = {**incoming(), "kafka": {"bootstrap_servers": "a:1", name: 250}}
    line = only_problem(of_all)
    assert line.startswith(f"code: [kafka] {name} = 250")
    assert "without it use commit_interval" in line
    own = {**incoming(commit_interval="1s"), "kafka": {"bootstrap_servers": "a:1", name: 250}}
    assert loaded(own).incoming["orders"].commit_interval_s == 1, (
        "a channel of those that it is not for"
    )
    line = only_problem(outgoing(**{name: 250}))
    assert "does not belong here but in [incoming.X] or [kafka]" in line


@pytest.mark.parametrize(
    "name",
    [
        *sorted(REFUSED),
        "sasl.login.retry.backoff.ms",
        "metrics.num.samples",
        "metrics_collector",
    ],
)
def test_a_property_without_an_equal_is_refused_by_name_in_every_spelling(name: str) -> None:
    for spelling in (name, name.replace(".", "_"), name.replace(".", "-")):
        assert "aiokafka has no such property; " in only_problem({"kafka": {spelling: 1}})


def test_defaults_of_all_channels_go_to_the_clients_that_have_them() -> None:
    settings = loaded(
        {
            "kafka": {
                "bootstrap_servers": "a:1",
                "client.id": "me",
                "linger_ms": 5,
                "fetch.min.bytes": 9,
            },
            "incoming": {"orders": {"group_id": "g", "client_id": "own"}},
            "outgoing": {"invoices": {"bootstrap.servers": "b:2"}},
        }
    )
    assert settings.incoming["orders"].client == {
        "bootstrap_servers": "a:1",
        "client_id": "own",
        "fetch_min_bytes": 9,
    }
    assert settings.outgoing["invoices"].client == {
        "bootstrap_servers": "b:2",
        "client_id": "me",
        "linger_ms": 5,
    }
    assert settings.bootstrap_servers == "a:1"


def test_a_spelling_belongs_to_one_property_only() -> None:
    spellings = [
        spelling.replace(".", "_")
        for prop in PROPERTIES
        for spelling in {name.replace(".", "_") for name in (prop.name, prop.kafka, *prop.also)}
    ]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("group_id", "group_id = 'caf\\udce9'"),
        ("client_id", "client_id = 'caf\\udce9'"),
        ("client_rack", "client_rack = 'caf\\udce9'"),
        ("group_instance_id", "group_instance_id = 'caf\\udce9'"),
        ("sasl_password", "sasl_password = ***"),
    ],
)
def test_a_variable_in_another_encoding_is_refused_at_the_start(key: str, shown: str) -> None:
    """No broker could be sent it, and each attempt would look like a broker that is away."""
    name = f"REACTIVE_KAFKA__INCOMING__ORDERS__{key.upper()}"
    lines = problems(incoming(), {name: b"caf\xe9".decode("utf-8", "surrogateescape")})
    [line] = [line for line in lines if "UTF-8" in line]
    assert line.startswith(
        f"environment variable {name}: [incoming.orders] {shown}: expected a string that is not "
        "empty"
    )
    assert line.endswith("; UTF-8 does not have its character 4")
