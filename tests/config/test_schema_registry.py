"""``[schema_registry]`` and the ``schema`` tables of channels: what is allowed, what contradicts,
what is shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reactive_kafka.config.dump import dump
from reactive_kafka.config.load import read_settings
from reactive_kafka.config.settings import Settings

URL = {"url": "http://registry:8081"}


def settings(**tables: Any) -> Settings:
    return read_settings(
        {"incoming": {"orders": {"group_id": "g"}}, **tables}, environ={}
    ).checked()


def problems(**tables: Any) -> str:
    reading = read_settings({"incoming": {"orders": {"group_id": "g"}}, **tables}, environ={})
    return "\n".join(reading.problems)


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("http://registry:8081", ("http://registry:8081",)),
        (
            "http://a:8081, https://b/apis/ccompat/v7/",
            ("http://a:8081", "https://b/apis/ccompat/v7/"),
        ),
        (["http://[::1]:8081", "http://127.0.0.1"], ("http://[::1]:8081", "http://127.0.0.1")),
        ("memory://", ("memory://",)),
    ],
)
def test_one_url_or_several(url: Any, urls: tuple[str, ...]) -> None:
    assert settings(schema_registry={"url": url}).schema_registry.url == urls


@pytest.mark.parametrize(
    "url",
    [
        "registry:8081",
        "ftp://registry",
        "http://",
        ["http://a", "http://a"],
        5,
        "memory://x",
        "http://registry:99999",
        "https://registry:0/apis",
        "http://a, http://[::1]:65536",
    ],
)
def test_what_is_no_url_of_a_registry_is_refused(url: Any) -> None:
    assert 'expected "http://host:8081"' in problems(schema_registry={"url": url})


def test_a_login_does_not_belong_into_the_url_and_is_not_shown() -> None:
    told = problems(schema_registry={"url": "http://ada:s3cret@registry:8081"})
    assert "they are keys, `username` and `password_file`" in told
    assert "s3cret" not in told


@pytest.mark.parametrize("key", ["value_deserializer", "key_deserializer"])
@pytest.mark.parametrize("format", ["avro", "json-schema", "protobuf"])
def test_a_format_with_schemas_needs_a_registry(key: str, format: str) -> None:
    incoming = {"orders": {"group_id": "g", key: format}}
    assert "write [schema_registry] url" in problems(incoming=incoming)
    assert problems(incoming=incoming, schema_registry=URL) == ""
    outgoing = {"out": {key.replace("deserializer", "serializer"): format}}
    assert "write [schema_registry] url" in problems(outgoing=outgoing)
    assert problems(outgoing=outgoing, schema_registry=URL) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": "t", "username": "u", "password": "p"}, "a token, or a user and a password"),
        ({"password": "p"}, "username is missing"),
        ({"username": "team:ada", "password": "p"}, "username = 'team:ada': no colon is allowed"),
        ({"ssl_keyfile": "/nowhere.key"}, "ssl_certfile"),
        ({"ssl_cafile": "/nowhere.crt"}, "there is no such file"),
        ({"timeout": 0}, "above 0"),
        ({"urls": "x"}, "did you mean 'url'?"),
    ],
)
def test_what_contradicts_is_told(given: dict[str, Any], said: str) -> None:
    assert said in problems(schema_registry={**URL, **given})


def test_secrets_come_from_files_and_are_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    file.chmod(0o600)
    found = settings(schema_registry={**URL, "username": "ada", "password_file": str(file)})
    assert found.schema_registry.password == "s3cret"
    assert dump(found)["schema_registry"] == {
        "url": ["http://registry:8081"],
        "username": "ada",
        "password": "***",
        "timeout": "5s",
    }
    assert "s3cret" not in repr(found)


def test_a_channels_schema_has_a_table() -> None:
    schema = {"file": "order.avsc", "subject": "topic-record", "register": False}
    found = settings(
        schema_registry=URL, outgoing={"out": {"value_serializer": "avro", "schema": schema}}
    )
    assert dump(found)["outgoing"]["out"]["schema"] == schema
    assert "schema" not in dump(settings())["incoming"]["orders"]
    told = problems(
        outgoing={"out": {"value_serializer": "avro", "schema": {"subject": "topics"}}},
        schema_registry=URL,
    )
    assert "did you mean 'topic'?" in told
    assert "does not belong here" in problems(kafka={"schema": {"file": "x.avsc"}})


def test_a_schema_without_a_format_that_has_one_is_told_to_have_no_effect() -> None:
    for side in ("incoming", "outgoing"):
        channel = {"group_id": "g"} if side == "incoming" else {}
        found = settings(**{side: {"x": {**channel, "schema": {"file": "x.avsc"}}}})
        assert "has no effect: it goes with the formats avro, json-schema, protobuf" in "\n".join(
            found.warnings
        )


def test_the_format_of_metadata_has_no_schema() -> None:
    incoming = {"orders": {"group_id": "g", "offset_metadata_deserializer": "avro"}}
    assert "offset_metadata_deserializer = 'avro': expected one of" in problems(
        incoming=incoming, schema_registry=URL
    )
