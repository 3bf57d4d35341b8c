"""A channel's client properties in Java's words: each is translated, left out, or refused by
name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.session.java_client import kafka_options, sink_options
from tests.config.loading import loaded
from tests.config.values import (
    outgoing_settings,
    properties_of_consumers,
    properties_of_producers,
    secret_of,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

CA = "-----BEGIN CERTIFICATE-----\nY2E=\n-----END CERTIFICATE-----"
OTHER_CA = "-----BEGIN CERTIFICATE-----\nb3RoZXI=\n-----END CERTIFICATE-----"
OURS = "-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----"
LOCKED_KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\na2V5\n-----END ENCRYPTED PRIVATE KEY-----"
# Openssl's default.
PBES2_KEY = LOCKED_KEY.replace("a2V5", "MFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAg=")
OLD_KEY = "-----BEGIN RSA PRIVATE KEY-----\na2V5\n-----END RSA PRIVATE KEY-----"
FILES = {
    "ca.pem": f"for people\n{CA}\n{OTHER_CA}\n",
    "ours.pem": f"{OURS}\n",
    "ours.key": f"{KEY}\n",
    "locked.key": LOCKED_KEY,
    "pbes2.key": PBES2_KEY,
    "old.key": OLD_KEY,
    "both.pem": f"{KEY}\n{OURS}\n{CA}\n",
    "nothing.pem": "nothing",
}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file", path)
    return FILES[path]


def channel(**client: Any) -> IncomingSettings:
    return IncomingSettings(name="clicks", topics=("clicks",), group_id="g", client=client)


def options(**client: Any) -> dict[str, str]:
    return kafka_options(channel(**client), read)


def test_without_properties_only_the_isolation_level_is_said() -> None:
    assert options() == {"kafka.isolation.level": "read_uncommitted"}


def test_properties_of_the_connection_are_passed_and_those_of_a_group_member_are_not() -> None:
    client = {
        "isolation_level": "read_committed",
        "request_timeout_ms": 9_000,
        "check_crcs": False,
        "max_partition_fetch_bytes": 2_097_152,
        "client_rack": "a",
        "client_id": "mine",
        "bootstrap_servers": "kafka:9092",
        "session_timeout_ms": 9_000,
        "group_instance_id": "one",
        "max_poll_interval_ms": 9_000,
        "assignors": ("range",),
    }
    assert options(**client) == {
        "kafka.isolation.level": "read_committed",
        "kafka.request.timeout.ms": "9000",
        "kafka.check.crcs": "false",
        "kafka.max.partition.fetch.bytes": "2097152",
        "kafka.client.rack": "a",
    }


REFUSED_BY_SPARK = re.compile(
    r"kafka\.(group\.id|auto\.offset\.reset|(key|value)\.deserializer|enable\.auto\.commit|interceptor\.classes)"
)


@pytest.mark.parametrize("name", properties_of_consumers())
def test_every_property_of_a_consumer_is_translated_left_out_or_refused_by_name(name: str) -> None:
    client: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        name: "value",
    }
    client |= (
        {"ssl_cafile": "ca.pem", "ssl_certfile": "both.pem"} if name.startswith("ssl_") else {}
    )
    client |= {"ssl_keyfile": "ours.key"} if name == "ssl_keyfile" else {}
    client |= {name: "SSL"} if name == "security_protocol" else {}
    client |= {name: "PLAIN"} if name == "sasl_mechanism" else {}
    try:
        made = options(**client)
    except ConfigError as refused:
        assert f"channel 'clicks': {name} = 'value'" in str(refused)
        assert 'mode = "ranges"' in str(refused)
    else:
        assert not any(REFUSED_BY_SPARK.fullmatch(option) for option in made)


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
def test_user_and_password_become_a_login_module(mechanism: str, module: str) -> None:
    made = options(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="bill",
        sasl_plain_password=secret_of("s3cret"),
    )
    assert made["kafka.security.protocol"] == "SASL_PLAINTEXT"
    assert made["kafka.sasl.mechanism"] == mechanism
    assert made["kafka.sasl.jaas.config"] == f'{module} required username="bill" password="s3cret";'
    assert not any("truststore" in name for name in made)


def test_plain_is_the_mechanism_where_none_is_named() -> None:
    made = options(
        security_protocol="SASL_SSL", sasl_plain_username="bill", sasl_plain_password="x"
    )
    assert made["kafka.sasl.mechanism"] == "PLAIN"


def java_string(quoted: str) -> str:
    """What java.io.StreamTokenizer reads out of a quoted string."""
    assert quoted[0] == quoted[-1] == '"'
    inside, value = iter(quoted[1:-1]), ""
    for char in inside:
        assert char not in '"\n\r', "the string would have ended"
        if char == "\\":
            char = next(inside)
            assert char in 'nr\\"', "an escape of another meaning"
            char = {"n": "\n", "r": "\r"}.get(char, char)
        value += char
    return value


SECRETS = st.text(st.sampled_from("\\\"'\n\r;= n0") | st.characters(), min_size=1)


@given(user=SECRETS, password=SECRETS)
def test_whatever_is_in_a_password_java_reads_it_back(user: str, password: str) -> None:
    made = options(
        security_protocol="SASL_SSL",
        sasl_plain_username=user,
        sasl_plain_password=secret_of(password),
    )
    config = made["kafka.sasl.jaas.config"]
    strings = r'"(?:\\.|[^"\\])*"'
    match = re.fullmatch(
        rf"{re.escape(PLAIN)} required username=({strings}) password=({strings});",
        config,
        re.DOTALL,
    )
    assert match is not None
    assert (java_string(match[1]), java_string(match[2])) == (user, password)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER"])
def test_a_mechanism_that_executors_cannot_use_is_refused(mechanism: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"clicks.*sasl_mechanism = '{mechanism}'.*use one of them, or use mode"
    ):
        options(security_protocol="SASL_SSL", sasl_mechanism=mechanism)


def test_all_that_is_refused_stands_in_one_error() -> None:
    with pytest.raises(ConfigError) as refused:
        options(security_protocol="SSL", ssl_context=object(), ssl_capath="/etc/ca", strange="x")
    assert len(refused.value.problems) == 3
    for name in ("ssl_context", "ssl_capath", "strange"):
        assert f"{name} = " in str(refused.value)


def test_certificates_and_keys_travel_as_text() -> None:
    made = options(
        security_protocol="SSL",
        ssl_cafile="ca.pem",
        ssl_certfile="ours.pem",
        ssl_keyfile="ours.key",
        ssl_password="x",
    )
    assert made == {
        "kafka.security.protocol": "SSL",
        "kafka.isolation.level": "read_uncommitted",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": f"{CA}\n{OTHER_CA}",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": OURS,
        "kafka.ssl.keystore.key": KEY,
    }


def test_one_file_may_hold_the_key_and_its_certificates() -> None:
    made = options(security_protocol="SSL", ssl_certfile="both.pem")
    assert made["kafka.ssl.keystore.certificate.chain"] == f"{OURS}\n{CA}"
    assert made["kafka.ssl.keystore.key"] == KEY


def test_an_encrypted_key_comes_with_its_password() -> None:
    made = options(
        security_protocol="SSL",
        ssl_certfile="ours.pem",
        ssl_keyfile="locked.key",
        ssl_password=secret_of("opensesame"),
    )
    assert made["kafka.ssl.keystore.key"] == LOCKED_KEY
    assert made["kafka.ssl.key.password"] == "opensesame"


def test_certificates_may_be_given_as_text_and_the_check_of_the_host_be_off() -> None:
    made = options(security_protocol="SASL_SSL", ssl_cadata=CA, ssl_check_hostname=False)
    assert made["kafka.ssl.truststore.certificates"] == CA
    assert made["kafka.ssl.endpoint.identification.algorithm"] == ""


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (
            {"ssl_cafile": "gone.pem"},
            r"ssl_cafile = 'gone.pem': .*the file cannot be read: .*No such file",
        ),
        ({"ssl_cafile": "nothing.pem"}, r"ssl_cafile = .*no certificate in PEM form"),
        ({"ssl_certfile": "ours.pem"}, r"ssl_certfile = .*no private key in PEM form"),
        (
            {"ssl_certfile": "ours.pem", "ssl_keyfile": "ca.pem"},
            r"ssl_keyfile = .*no private key in PEM form",
        ),
        (
            {"ssl_certfile": "nothing.pem", "ssl_keyfile": "ours.key"},
            r"ssl_certfile = .*no certificate in PEM form",
        ),
        (
            {"ssl_certfile": "ours.pem", "ssl_keyfile": "old.key"},
            r"ssl_keyfile = .*PKCS #8.*openssl pkcs8 -topk8",
        ),
        (
            {"ssl_certfile": "ours.pem", "ssl_keyfile": "locked.key"},
            r"ssl_keyfile = .*encrypted: set ssl_password",
        ),
        (
            {"ssl_certfile": "ours.pem", "ssl_keyfile": "pbes2.key", "ssl_password": "x"},
            r"ssl_keyfile = .*PBES2: make one with openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(client: Mapping[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        options(security_protocol="SSL", **client)


def test_an_error_says_where_the_key_stands_and_no_secret() -> None:
    settings = loaded(
        {
            "kafka": {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "bill",
                "sasl.password": "s3cret",
                "ssl_capath": "/",
            },
            "incoming": {"clicks": {"group_id": "g", "spark": {"mode": "ranges"}}},
        }
    ).incoming["clicks"]
    with pytest.raises(ConfigError) as refused:
        kafka_options(settings, read)
    assert "[kafka] ssl_capath" in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(settings)


WHO = "batch.send(df, 'totals')"
REFUSED_BY_THE_SINK = re.compile(r"kafka\.((key|value)\.serializer|transactional\.id)")


def to_write(more: Mapping[str, Any] | None = None, **client: Any) -> dict[str, str]:
    settings = outgoing_settings(name="totals", topic="totals", client=client, **(more or {}))
    return sink_options(settings, WHO, read)


def test_a_producer_waits_as_long_as_the_channel_and_gets_its_properties() -> None:
    assert to_write(
        {"send_timeout_s": 60.0, "linger_s": 0.02}, acks="all", max_batch_size=65_536
    ) == {
        "kafka.acks": "all",
        "kafka.batch.size": "65536",
        "kafka.linger.ms": "20",
        "kafka.max.block.ms": "60000",
        "kafka.delivery.timeout.ms": "60000",
    }


def test_a_producer_waits_no_less_than_java_allows() -> None:
    made = to_write({"send_timeout_s": 2.0}, request_timeout_ms=9_000, linger_ms=100)
    assert made["kafka.max.block.ms"] == "2000"
    assert made["kafka.delivery.timeout.ms"] == "9100"


def test_a_producer_that_waits_for_a_month_has_a_time_that_java_reads() -> None:
    made = to_write({"send_timeout_s": 30 * 86_400.0})
    assert made["kafka.max.block.ms"] == "2592000000"
    # It is an int in Java, and a larger one fails each job in its tasks, as bad data does.
    assert made["kafka.delivery.timeout.ms"] == str(2**31 - 1)


def test_a_producer_logs_in_and_trusts_as_the_channel_does() -> None:
    made = to_write(
        security_protocol="SASL_SSL",
        sasl_plain_username="bill",
        sasl_plain_password=secret_of("s3cret"),
        ssl_cafile="ca.pem",
    )
    assert made["kafka.security.protocol"] == "SASL_SSL"
    assert made["kafka.ssl.truststore.certificates"] == f"{CA}\n{OTHER_CA}"
    assert made["kafka.sasl.jaas.config"] == f'{PLAIN} required username="bill" password="s3cret";'


@pytest.mark.parametrize("name", properties_of_producers())
def test_every_property_of_a_producer_is_translated_left_out_or_refused_by_name(name: str) -> None:
    value = {"linger_ms": 7, "request_timeout_ms": 7, "security_protocol": "SSL"}.get(name, "value")
    files = {"ssl_certfile": "both.pem", "ssl_cafile": "ca.pem", "ssl_keyfile": "ours.key"}
    client: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        **(files if name.startswith("ssl_") else {}),
        name: files.get(name, value),
    }
    try:
        made = to_write(**client)
    except ConfigError as refused:
        assert f"{WHO}: {name} = 'value': " in str(refused)
        assert "or send from a handler" in str(refused)
    else:
        assert not any(REFUSED_BY_THE_SINK.fullmatch(option) for option in made)
