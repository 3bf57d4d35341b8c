"""The data module says what Kafka says, and Java's classes read and write the same bytes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka.broker.jars import find_java, kafka_jars
from reactive_kafka.broker.wire.codec import decode, default_of, encode
from reactive_kafka.broker.wire.schema import WireField, WireMessage, versions_of
from tests.broker.wire import kafka_definitions
from tests.broker.wire.drawn_values import APIS, MESSAGES

PROGRAM = Path(__file__).parent / "WireRoundTrip.java"
# Of each message in each version.
DRAWN = 5
TEXTS = ("", "a", "orders", "ä€😀", "x" * 300)
BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}

Line = tuple[WireMessage, int, bytes]


@pytest.mark.kafka
def test_the_module_is_what_the_definitions_of_kafka_say() -> None:
    assert kafka_definitions.MODULE.read_text(encoding="utf-8") == kafka_definitions.module()


@pytest.mark.kafka
def test_a_definition_with_a_new_word_is_refused() -> None:
    definition = {**kafka_definitions.definitions()["HeartbeatRequest"], "compression": "none"}
    with pytest.raises(ValueError, match="HeartbeatRequest: read Kafka's README on compression"):
        kafka_definitions.message(definition)


def test_each_request_has_its_own_key_and_the_versions_of_its_response() -> None:
    assert len({api.key for api in APIS.values()}) == len(APIS)
    for api in APIS.values():
        assert api.request.versions == api.response.versions
        for version in versions_of(api.request.versions):
            flexible = [versions_of(message.flexible) for message in (api.request, api.response)]
            assert (version in flexible[0]) == (version in flexible[1])


# -- Java


def drawn(fields: Sequence[WireField], version: int, dice: random.Random) -> dict[str, Any]:
    """Random values of the fields that a version has."""
    return {
        field.name: drawn_value(field, version, dice)
        for field in fields
        if version in versions_of(field.versions)
    }


def drawn_value(field: WireField, version: int, dice: random.Random) -> Any:
    if version in versions_of(field.nullable) and dice.random() < 0.3:
        return None
    if version in versions_of(field.tagged) and dice.random() < 0.3:
        return default_of(field)
    if field.type.startswith("[]"):
        return [drawn_plain(field, version, dice) for _ in range(dice.choice((0, 1, 3)))]
    return drawn_plain(field, version, dice)


def drawn_plain(field: WireField, version: int, dice: random.Random) -> Any:
    name = field.type.removeprefix("[]")
    if field.fields:
        return drawn(field.fields, version, dice)
    if name in BITS:
        highest = 2 ** BITS[name] - 1
        lowest = 0 if name.startswith("u") else -highest - 1
        return dice.choice((lowest, highest, dice.randint(lowest, highest)))
    if name == "string":
        return dice.choice(TEXTS)
    if name == "bool":
        return dice.random() < 0.5
    if name == "float64":
        return dice.random()
    if name == "uuid":
        return dice.randbytes(16)
    return dice.randbytes(dice.choice((0, 1, 200)))


def lines(dice: random.Random) -> list[Line]:
    """Some values of each message in each version, and all defaults."""
    found = []
    for message in MESSAGES.values():
        for version in versions_of(message.versions):
            needed = {field.name: b"" for field in message.fields if field.type == "records"}
            found.append((message, version, encode(message, version, needed)))
            for _ in range(DRAWN):
                values = drawn(message.fields, version, dice)
                found.append((message, version, encode(message, version, values)))
    return found


@pytest.mark.kafka
def test_java_reads_what_we_write_and_writes_the_same_bytes() -> None:
    sent = lines(random.Random(37))
    run = [find_java(), "-cp", f"{kafka_jars()}/*", str(PROGRAM)]
    text = "\n".join(
        f"{message.name} {version} {content.hex()}" for message, version, content in sent
    )
    done = subprocess.run(run, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    wrong = []
    for (message, version, content), written in zip(sent, done.stdout.splitlines(), strict=True):
        if written != content.hex():
            values = decode(message, version, content)
            wrong.append(f"{message.name} v{version} {values}: {content.hex()}, Java: {written}")
    assert wrong == []
