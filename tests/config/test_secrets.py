from __future__ import annotations

import ast
import copy
import json
import logging
import os
import pickle
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from pyspark import cloudpickle

import reactive_kafka
from reactive_kafka.config.config_files import exposure_of
from reactive_kafka.config.dump import dump
from reactive_kafka.config.secrets import (
    Secret,
    _without_secrets,
    is_secret,
    masked,
    may_be_secret,
    protect_spark,
    revealed,
    shown,
)
from reactive_kafka.errors import ConfigError
from tests.config.loading import incoming, loaded, only_problem, problems, write

CANARY = "canary-8d1f"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="{CANARY}";'
SASL = {"security.protocol": "SASL_SSL", "sasl.username": "u"}


@pytest.mark.parametrize(
    "name",
    ["sasl.password", "ssl_password", "sasl.jaas.config", "AWS_SECRET", "apiToken", "x.access.key"],
)
def test_secrets_are_told_by_their_name(name: str) -> None:
    assert is_secret(name)
    assert shown(name, CANARY) == masked(name, [CANARY]) == "***"


@pytest.mark.parametrize("name", ["sasl_plain_pasword", "sasl.pw", "SECRT", "passwrd", "tokn"])
def test_a_misspelt_secret_counts_as_one(name: str) -> None:
    assert may_be_secret(name)


def test_ordinary_names_are_no_secrets() -> None:
    for name in (
        "topic",
        "group_id",
        "key_deserializer",
        "topics",
        "commit_interval",
        "session.timeout.ms",
    ):
        assert not is_secret(name)
        assert not may_be_secret(name)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (f"spark://u:{CANARY}@host:7077", "spark://***@host:7077"),
        (f"http://{CANARY}@a/b@c", "http://***@c"),
        (f"u:{CANARY}@host:1", "***@host:1"),
        (f"vault://host/a?pw={CANARY}&ttl=5&Auth={CANARY}", "vault://host/a?pw=***&ttl=5&Auth=***"),
        (
            f"vault://host/a?pwd={CANARY};pass={CANARY}&key={CANARY}",
            "vault://host/a?pwd=***;pass=***&key=***",
        ),
        (
            f"sqlite:///a.db?apikey={CANARY}&sslpassword={CANARY}",
            "sqlite:///a.db?apikey=***&sslpassword=***",
        ),
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


@dataclass
class Holder:
    a: str


class Model(BaseModel):
    a: str


def raised_with(secret: Secret) -> str:
    try:
        raise ValueError(secret, f"not {secret}")
    except ValueError as error:
        return "".join(
            traceback.TracebackException.from_exception(error, capture_locals=True).format()
        )


@given(st.text(min_size=4).filter(lambda text: not set(text) <= set("'*[]{}: 1,")))
def test_only_one_way_shows_a_secrets_text(text: str) -> None:
    """Row S3 of the faults."""
    secret = Secret(text)
    ways = {
        "str": str(secret),
        "repr": repr(secret),
        "a format": f"{secret:>5} {secret!s}",
        "%": "%s" % secret,  # noqa: UP031 - what a log line does
        "json": json.dumps([secret, {secret: 1}]),
        "join": " ".join([secret]),
        "bytes": secret.encode().decode(),
        "pickle": repr(revealed(pickle.loads(pickle.dumps(secret)))),
        "its methods": secret.upper() + secret[:] + secret.strip(),
    }
    assert all("***" in shown for shown in ways.values())
    assert not [way for way, shown in ways.items() if text in shown]
    assert pickle.dumps(secret) == pickle.dumps(Secret("another one"))
    assert revealed(secret) == text
    assert type(revealed(secret)) is str


@pytest.mark.parametrize(
    "shown_by",
    [
        lambda secret: repr((secret.__getstate__(), secret.__reduce_ex__(4))),
        lambda secret: json.dumps(asdict(Holder(secret))) + f"{Holder(secret)}",
        lambda secret: Model(a=secret).model_dump_json(),
        lambda secret: TypeAdapter(dict[str, Any]).dump_json({"a": secret}).decode(),
        lambda secret: logging.LogRecord(
            "x", 10, "", 1, "%s %r", (secret, secret), None
        ).getMessage(),
        lambda secret: raised_with(secret),
        lambda secret: cloudpickle.dumps(secret).decode("latin-1"),
    ],
    ids=[
        "state",
        "dataclass",
        "pydantic",
        "pydantic Any",
        "log",
        "traceback with locals",
        "what Spark pickles with",
    ],
)
def test_no_library_shows_a_secrets_text(shown_by: Callable[[Secret], str]) -> None:
    """Row S3 of the faults."""
    text = shown_by(Secret(CANARY))
    assert "***" in text
    assert CANARY not in text


def test_a_secret_equals_its_text_and_copies_keep_it() -> None:
    secret = Secret(CANARY)
    assert secret == CANARY
    assert secret != "***"
    assert {secret} == {CANARY}
    assert [revealed(copy.copy(secret)), revealed(copy.deepcopy({"a": secret})["a"])] == [
        CANARY,
        CANARY,
    ]


def test_the_text_of_a_secret_is_taken_only_where_a_client_gets_it() -> None:
    """Row S3 of the faults. Whoever adds a place here has a client that needs the text, and shows
    it nowhere.
    """
    package = Path(reactive_kafka.__file__).parent
    places = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "revealed"
            if is_call or (isinstance(node, ast.Attribute) and node.attr == "_secret_text"):
                places.add(str(path.relative_to(package)))
    assert places == {
        "config/secrets.py",
        "http/guard.py",
        "http/members.py",
        "broker/aiokafka/client_arguments.py",
        "schemas/rest.py",
        "checkpoint/stores/opening.py",
        "spark/session/classic.py",
        "spark/session/conf.py",
        "spark/session/connect.py",
    }


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.azure.account.key.store.net",
        "spark.x.encryption.key",
        "spark.sslKey",
        "spark.my.token",
    ],
)
def test_sparks_properties_are_secrets_by_their_name(name: str) -> None:
    secret = protect_spark(name, 4711)
    assert (type(secret), revealed(secret)) == (Secret, "4711")
    assert protect_spark("spark.sql.keyspace", 1) == 1


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
        environ = {
            "REACTIVE_KAFKA__INCOMING__ORDERS__SASL_PLAIN_PASSWORD": password,
            "PW": password,
        }
        assert (
            loaded(incoming(**SASL), environ).incoming["orders"].client["sasl_plain_password"]
            == password
        )
        through_reference = incoming(**SASL, sasl_plain_password="${PW}")
        assert (
            loaded(through_reference, {"PW": password})
            .incoming["orders"]
            .client["sasl_plain_password"]
            == password
        )


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
    lines = problems(
        incoming(**SASL, **{"sasl.password.file": empty, "sasl_plain_username_file": 5})
    )
    assert f"[incoming.orders] sasl.password.file = {empty!r}: the file is empty" in lines[0]
    assert "sasl_plain_username_file = 5: expected a string" in lines[1]


def test_a_missing_secret_file_is_named_by_its_path() -> None:
    line = only_problem(incoming(**SASL, sasl_plain_password_file="/run/secrets/kafka"))
    assert line == (
        "code: [incoming.orders] sasl_plain_password_file = '/run/secrets/kafka': there is no such file"
    )


@pytest.mark.parametrize(
    ("mode", "who"),
    [
        (0o600, ""),
        (0o400, ""),
        (0o640, "its group"),
        (0o604, "everybody on this machine"),
        (0o646, "everybody"),
    ],
)
def test_a_secret_file_that_others_may_read_is_warned_of(
    mode: int, who: str, tmp_path: Path
) -> None:
    """Row J6 of the faults."""
    file = Path(_secret_file(tmp_path))
    file.chmod(mode)
    settings = loaded(incoming(**SASL, **{"sasl.password.file": str(file)}))
    assert len(settings.warnings) == bool(who)
    for warning in settings.warnings:
        assert "[incoming.orders] sasl.password.file = " in warning
        assert f"{who}" in warning
        assert f"(its mode is {mode:04o}): chmod 600 '{file}'" in warning
        assert CANARY not in warning


@pytest.mark.parametrize("name", ["ssl_keyfile", "ssl.key.location"])
def test_a_private_key_that_others_may_read_is_warned_of(name: str, tmp_path: Path) -> None:
    key = write(tmp_path, "key.pem", CANARY)
    certificate = write(tmp_path, "cert.pem", "")
    tls = {"security.protocol": "SSL", "ssl_certfile": str(certificate), name: str(key)}
    key.chmod(0o600)
    assert loaded(incoming(**tls)).warnings == ()
    key.chmod(0o644)
    (warning,) = loaded(incoming(**tls)).warnings
    assert f"[incoming.orders] {name} = " in warning
    assert warning.endswith(
        f"everybody on this machine may read or write it (its mode is 0644): chmod 600 '{key}'"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_root_may_give_a_secret_file_to_a_services_group(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(CANARY)
    file.chmod(0o640)
    os.chown(file, 65534, 65534)
    # Owned by another user: we read it by our group.
    assert exposure_of(str(file)) is None
    file.chmod(0o644)
    assert exposure_of(str(file)) is not None


def test_only_free_text_may_stand_in_a_file() -> None:
    assert "unknown key" in only_problem(incoming(concurrency_file="/x"))


def test_a_partition_with_a_date_is_no_url_with_a_password() -> None:
    line = only_problem(incoming(assign=["t:4@2026-11-21"]))
    assert line.startswith("code: [incoming.orders] assign = ['t:4@2026-11-21']: ")
    assert "the time of 't:4@2026-11-21' has no zone" in line


def test_all_partitions_of_a_topic_with_a_time_are_no_url_with_a_password() -> None:
    line = only_problem(incoming(assign=["t:*@yesterday..today"]))
    assert "'t:*@yesterday..today' cannot be read" in line
    assert "***" not in line


@given(st.text(alphabet="ab:/@, \n", max_size=24))
def test_the_user_part_of_a_url_is_what_it_always_was(text: str) -> None:
    # The same, square in the length of a word.
    plain = re.sub(r"(?<=://)\S*@|[^\s:/,]+:(?!//)\S*@", "***@", text)
    assert _without_secrets(text) == plain


@pytest.mark.parametrize("piece", ["a", "a:", "?", "=", "@", "://", "a@b:", "u:p@", ";a", "[", "é"])
def test_a_long_text_is_looked_at_in_no_time(piece: str) -> None:
    began = time.process_time()
    for text in (
        piece * 100_000,
        "x://" + piece * 100_000,
        "@" + piece * 100_000,
        piece * 100_000 + "@",
    ):
        shown("", text)
    assert time.process_time() - began < 5
