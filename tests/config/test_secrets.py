from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.dump import dump
from reactive_kafka.config.secrets import Secret, is_secret, masked, may_be_secret, shown
from reactive_kafka.errors import ConfigError
from tests.config.loading import incoming, loaded, only_problem, problems, write

CANARY = "canary-8d1f"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="{CANARY}";'
SASL = {"security.protocol": "SASL_SSL", "sasl.username": "u"}


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl_password", "sasl.jaas.config", "AWS_SECRET", "apiToken", "x.access.key"]
)
def test_secrets_are_told_by_their_name(name: str) -> None:
    assert is_secret(name)
    assert shown(name, CANARY) == masked(name, [CANARY]) == "***"


@pytest.mark.parametrize("name", ["sasl_plain_pasword", "sasl.pw", "SECRT", "passwrd", "tokn"])
def test_a_misspelt_secret_counts_as_one(name: str) -> None:
    assert may_be_secret(name)


def test_ordinary_names_are_no_secrets() -> None:
    for name in ("topic", "group_id", "key_deserializer", "topics", "commit_interval", "session.timeout.ms"):
        assert not is_secret(name)
        assert not may_be_secret(name)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (f"spark://u:{CANARY}@host:7077", "spark://***@host:7077"),
        (f"http://{CANARY}@a/b@c", "http://***@c"),
        (f"u:{CANARY}@host:1", "***@host:1"),
        (f"vault://host/a?pw={CANARY}&ttl=5&Auth={CANARY}", "vault://host/a?pw=***&ttl=5&Auth=***"),
        (f"vault://host/a?pwd={CANARY};pass={CANARY}&key={CANARY}", "vault://host/a?pwd=***;pass=***&key=***"),
        (f"sqlite:///a.db?apikey={CANARY}&sslpassword={CANARY}", "sqlite:///a.db?apikey=***&sslpassword=***"),
        (
            "postgresql://db/x?author=me&passfile=/f&keepalives=1",
            "postgresql://db/x?author=me&passfile=/f&keepalives=1",
        ),
        ("spark://host:7077", "spark://host:7077"),
        ("me@example", "me@example"),
        ({"a": f"x://{CANARY}@y", "password": CANARY}, {"a": "x://***@y", "password": "***"}),
        ([f"x://{CANARY}@y"], ["x://***@y"]),
    ],
)
def test_the_user_part_of_urls_is_masked_anywhere(value: Any, seen: Any) -> None:
    assert masked("x", value) == seen


def test_a_secret_stays_hidden_under_any_name() -> None:
    assert masked("x", Secret(CANARY)) == "***"


@given(st.text(min_size=1), st.sampled_from(["a.password", "x"]))
def test_a_shown_value_is_one_printable_line(value: str, name: str) -> None:
    line = shown(name, value)
    assert line.isprintable()
    assert len(line) <= 80


def _secret_file(folder: Path) -> str:
    return str(write(folder, "secret", CANARY + "\n"))


def test_a_secret_from_anywhere_reaches_the_client_and_nobody_else(tmp_path: Path) -> None:
    """Row S3 of the faults."""
    file = _secret_file(tmp_path)
    given: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"sasl.password": CANARY}, {}),
        ({"sasl_plain_password": "${PW}"}, {"PW": CANARY}),
        ({"sasl_plain_password_file": file}, {}),
        ({"sasl.password.file": file}, {}),
        ({"sasl": {"password": {"file": file}}}, {}),
        ({"sasl-plain-password-file": "${FILE}"}, {"FILE": file}),
        ({"sasl.jaas.config": JAAS}, {}),
        ({"sasl.jaas.config.file": str(write(tmp_path, "jaas", JAAS))}, {}),
        ({}, {"REACTIVE_KAFKA__INCOMING__ORDERS__SASL_PLAIN_PASSWORD": CANARY}),
        ({}, {"REACTIVE_KAFKA__INCOMING__ORDERS__SASL__PASSWORD_FILE": file}),
    ]
    for properties, environ in given:
        settings = loaded(incoming(**SASL, **properties), environ)
        password = settings.incoming["orders"].client["sasl_plain_password"]
        assert (password, type(password)) == (CANARY, Secret)
        assert CANARY not in repr(settings)
        assert CANARY not in json.dumps(dump(settings))
        assert dump(settings)["incoming"]["orders"]["sasl_plain_password"] == "***"


def test_a_password_that_looks_like_a_number_or_a_reference_is_taken_as_it_is() -> None:
    for password in ("0123", "12345", "true", "1.50", "${HOME}", "[1]", "2026-11-21"):
        environ = {"REACTIVE_KAFKA__INCOMING__ORDERS__SASL_PLAIN_PASSWORD": password, "PW": password}
        assert loaded(incoming(**SASL), environ).incoming["orders"].client["sasl_plain_password"] == password
        through_reference = incoming(**SASL, sasl_plain_password="${PW}")
        assert loaded(through_reference, {"PW": password}).incoming["orders"].client["sasl_plain_password"] == password


def test_spark_properties_and_masters_hide_their_secrets() -> None:
    spark = {
        "master": f"spark://u:{CANARY}@host:7077",
        "conf": {"spark.ssl.keyPassword": CANARY, "fs.account.key": CANARY},
    }
    settings = loaded({"spark": spark})
    assert settings.spark.conf["spark.ssl.keyPassword"] == CANARY
    assert CANARY not in repr(settings)
    assert CANARY not in json.dumps(dump(settings))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.password": [CANARY]},
        {"sasl.password": {"x": CANARY}},
        {"sasl.pasword": CANARY},
        {"sasl_plain_passw0rd": CANARY},
        {"password": CANARY},
        {"api_token": CANARY},
        {"sasl.jaas.config": f"Login required password={CANARY};"},
        {"sasl.jaas.config": JAAS, "sasl.password": CANARY + "2"},
        {"sasl.password": CANARY, "sasl_plain_password": CANARY + "2"},
        {"ssl.keystore.password": "a", "ssl.key.password": CANARY},
        {"ssl.truststore.password": CANARY},
        {"sasl.oauthbearer.client.credentials.client.secret": CANARY},
        {"sasl_oauth_token_provider": CANARY},
        {"sasl.password": f"${{NOT_SET}}{CANARY}"},
        {"sasl_plain_password_file": f"/nowhere/{CANARY}"},
        {"bootstrap_servers": f"u:{CANARY}@host:9092"},
        {"bootstrap_servers": f"https://u:{CANARY}@host:9092"},
        {"topics": [{"password": CANARY}]},
        {"topic": f"x://u:{CANARY}@y"},
        {"schema": {"registry": {"secret": CANARY}}},
    ],
)
def test_no_error_shows_a_secret(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(incoming(**wrong))
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert "***" in str(caught.value)


def test_a_numeric_secret_is_not_shown_either() -> None:
    assert "4711" not in only_problem(incoming(**SASL, sasl_plain_password=4711))


def test_an_environment_problem_names_the_variable_only() -> None:
    name = "REACTIVE_KAFKA__INCOMING__ORDERS__SASL_PLAIN_PASSWORT"
    line = only_problem(incoming(), {name: CANARY})
    assert name in line
    assert "did you mean 'sasl_plain_password'?" in line
    assert CANARY not in line


def test_a_secret_file_that_is_odd_is_a_problem_of_its_key(tmp_path: Path) -> None:
    empty = str(write(tmp_path, "empty", "\n"))
    lines = problems(incoming(**SASL, **{"sasl.password.file": empty, "sasl_plain_username_file": 5}))
    assert "[incoming.orders] sasl.password.file = ***: the file is empty" in lines[0]
    assert "sasl_plain_username_file = 5: expected a string" in lines[1]


def test_only_free_text_may_stand_in_a_file() -> None:
    assert "unknown key" in only_problem(incoming(concurrency_file="/x"))


def test_a_partition_with_a_date_is_no_url_with_a_password() -> None:
    line = only_problem(incoming(assign=["t:4@2026-11-21"]))
    assert line.startswith("code: [incoming.orders] assign = ['t:4@2026-11-21']: ")
    assert "the time of 't:4@2026-11-21' has no zone" in line
