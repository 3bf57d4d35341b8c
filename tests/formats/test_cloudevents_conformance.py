"""CloudEvents' own examples: those of its conformance project, and those of the specification of
its JSON format.

Each event is read from a record as others write it, written by us, and compared with what the
example says.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml

from reactive_kafka import CloudEvent
from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import (
    EventDefaults,
    EventRecord,
    EventWriter,
    decoder_for,
    encoder_for,
    event_of,
    record_decoder_for,
)
from reactive_kafka.formats.cloudevents import is_json

FOLDER = Path(__file__).parent.parent / "specs" / "cloudevents"
ENVELOPE_SCHEMA = json.loads((FOLDER / "cloudevents.json").read_text())
STRUCTURED = "application/cloudevents+json; charset=utf-8"
BINARY_DATA = "... base64 encoded string ..."
"""What the specification writes where base64 would be."""


class Example(NamedTuple):
    """An event: its attributes as texts, and its data as bytes."""

    attributes: dict[str, str]
    data: bytes


def headers_of(attributes: dict[str, str]) -> list[tuple[str, bytes]]:
    """Attributes as Kafka's binding has them in binary mode."""
    return [
        ("content-type" if name == "datacontenttype" else f"ce_{name}", text.encode())
        for name, text in attributes.items()
    ]


def envelope_of(example: Example) -> bytes:
    """An event as the JSON format has it."""
    text = example.data.decode()
    data = json.loads(text) if is_json(example.attributes.get("datacontenttype")) else text
    return json.dumps({**example.attributes, "data": data}).encode()


def read(value: bytes, headers: Any) -> CloudEvent:
    """The event of a record, with its payload as a handler gets it that takes anything."""
    record: Any = SimpleNamespace(value=value, headers=tuple(headers))
    decode = record_decoder_for(Any, "cloudevents", decoder_for(Any, "cloudevents"))
    event = event_of(record, decode(record), is_demanded=True)
    assert event is not None
    return event


def written(event: CloudEvent, mode: Any) -> EventRecord:
    """An event as a channel writes it. Its serializer is JSON if the data of the event is; else the
    value decides.
    """
    is_bytes = isinstance(event.data, bytes)
    serializer = "json" if is_json(event.datacontenttype) and not is_bytes else "cloudevents"
    defaults = EventDefaults(insert_timestamp=False, mode=mode)
    return EventWriter("orders", defaults, encoder_for(serializer), serializer).write(
        event, (), 0.0
    )


def texts_of(event: CloudEvent) -> dict[str, str]:
    """The attributes of an event that was read, as texts."""
    found: dict[str, Any] = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": None if event.time is None else event.time.isoformat().replace("+00:00", "Z"),
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
        **event.extensions,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def is_same(data: Any, expected: bytes, media: str | None) -> bool:
    """Whether a payload is the data of an example: JSON by its value, text and bytes by what they
    hold.
    """
    if isinstance(data, bytes):
        return data == expected
    if is_json(media):
        return bool(data == json.loads(expected))
    return bool(data.encode() == expected)


def is_same_value(value: bytes | None, expected: bytes, media: str | None) -> bool:
    """Whether the value of a record is the data of an example."""
    assert value is not None
    return json.loads(value) == json.loads(expected) if is_json(media) else value == expected


def data_of(envelope: dict[str, Any]) -> Any:
    """Take the data out of an envelope: bytes if it is in base64."""
    if "data_base64" in envelope:
        return b64decode(envelope.pop("data_base64"))
    return envelope.pop("data")


# -- the conformance project


def feature() -> list[tuple[str, bytes, list[tuple[str, bytes]], dict[str, str], Any]]:
    """The scenarios of Kafka's binding: name, value and headers of a record, attributes and data of
    its event.
    """
    text = (FOLDER / "kafka-protocol-binding.feature").read_text()
    found = []
    for scenario in re.split(r"Scenario(?: Outline)?:", text)[1:]:
        name = scenario.partition("\n")[0].strip()
        payload, data = re.findall(r'"""\n(.*?)"""', scenario, re.DOTALL)
        tables = [
            [
                tuple(cell.strip() for cell in row.strip().strip("|").split("|"))
                for row in table.strip().split("\n")
            ]
            for table in re.findall(r"(?:^[ ]*\|.*\n?)+", scenario, re.MULTILINE)
        ]
        headers, attributes, *examples = ([*table[1:]] for table in tables)
        for (content_type,) in examples[0] if examples else [("",)]:
            filled = [
                (key, value.replace("<contentType>", content_type).encode())
                for key, value in headers
            ]
            found.append(
                (
                    f"{name} {content_type}",
                    payload.encode(),
                    filled,
                    dict(attributes),
                    json.loads(data),
                )
            )
    return found


@pytest.mark.parametrize(
    ("value", "headers", "attributes", "data"),
    [pytest.param(*rest, id=name) for name, *rest in feature()],
)
def test_a_record_of_kafkas_binding_is_the_event_that_its_scenario_says(
    value: bytes, headers: list[tuple[str, bytes]], attributes: dict[str, str], data: Any
) -> None:
    event = read(value, headers)
    assert texts_of(event) == attributes
    assert event.data == data


def test_no_scenario_of_kafkas_binding_is_missed() -> None:
    assert len(feature()) == 3


def conformance_events(file: str) -> list[Example]:
    """The events of a file of YAML."""
    found = []
    for document in yaml.load_all((FOLDER / file).read_text(), yaml.BaseLoader):
        attributes = dict(document["ContextAttributes"])
        extensions = attributes.pop("Extensions", {})
        found.append(Example({**attributes, **extensions}, document["Data"].encode()))
    return found


def examples(*files: str) -> list[Any]:
    return [
        pytest.param(event, id=f"{file}-{number}")
        for file in files
        for number, event in enumerate(conformance_events(file))
    ]


VALID = examples("v1.yaml", "v1_minimum.yaml")


@pytest.mark.parametrize("example", VALID)
def test_an_event_of_the_conformance_project_is_read_in_binary_mode(example: Example) -> None:
    event = read(example.data, headers_of(example.attributes))
    assert texts_of(event) == example.attributes
    assert is_same(event.data, example.data, event.datacontenttype)


@pytest.mark.parametrize("example", VALID)
def test_an_event_of_the_conformance_project_is_read_in_structured_mode(example: Example) -> None:
    event = read(envelope_of(example), [("content-type", STRUCTURED.encode())])
    assert texts_of(event) == example.attributes
    assert is_same(event.data, example.data, event.datacontenttype)


@pytest.mark.parametrize("example", VALID)
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_an_event_of_the_conformance_project_that_is_passed_on_is_the_same(
    example: Example, mode: str
) -> None:
    event = read(envelope_of(example), [("content-type", STRUCTURED.encode())])
    record = written(event, mode)
    assert record.value is not None
    # data without a media type is JSON in an envelope: what we write says so
    expected = {"datacontenttype": "application/json", **example.attributes}
    if mode == "binary":
        assert sorted(record.headers) == sorted(headers_of(expected))
        assert is_same_value(record.value, example.data, event.datacontenttype)
    else:
        envelope = json.loads(record.value)
        jsonschema.validate(envelope, ENVELOPE_SCHEMA)
        assert is_same(data_of(envelope), example.data, event.datacontenttype)
        assert envelope == expected


@pytest.mark.parametrize("example", examples("v03.yaml"))
def test_an_event_of_another_version_is_refused(example: Example) -> None:
    for value, headers in (
        (example.data, headers_of(example.attributes)),
        (envelope_of(example), [("content-type", STRUCTURED.encode())]),
    ):
        with pytest.raises(DecodeError, match=r"its specversion is not 1\.0"):
            read(value, headers)


# -- the specification of the JSON format


class Pair(NamedTuple):
    """An envelope of the specification, and the same event in binary mode: its attributes and
    data.
    """

    envelope: bytes
    attributes: dict[str, str]
    data: bytes


def pairs() -> list[Pair]:
    """The examples of the section on envelopes, each followed by its form in HTTP's binary mode."""
    section = (
        (FOLDER / "json-format.md")
        .read_text()
        .partition("### 3.2. Examples")[2]
        .partition("## 4.")[0]
    )
    blocks = re.findall(r"```(?:JSON)?\n(.*?)\n```", section, re.DOTALL)
    found = []
    for envelope, binary in zip(blocks[::2], blocks[1::2], strict=True):
        head, _, data = binary.partition("\n\n")
        lines = dict(line.split(": ", 1) for line in head.split("\n"))
        attributes = {
            name.removeprefix("ce-").replace("content-type", "datacontenttype"): lines[name]
            for name in lines
        }
        found.append(
            Pair(envelope.replace(BINARY_DATA, "AP8=").encode(), attributes, as_bytes(data))
        )
    return found


def as_bytes(data: str) -> bytes:
    return b64decode("AP8=") if data == "...raw binary bytes..." else data.encode()


def test_no_example_of_the_json_format_is_missed() -> None:
    assert len(pairs()) == 6


@pytest.mark.parametrize("pair", pairs())
def test_an_envelope_of_the_specification_is_the_event_that_it_shows(pair: Pair) -> None:
    jsonschema.validate(json.loads(pair.envelope), ENVELOPE_SCHEMA)
    event = read(pair.envelope, [("content-type", STRUCTURED.encode())])
    implied = {} if isinstance(event.data, bytes) else {"datacontenttype": "application/json"}
    assert {**implied, **texts_of(event)} == pair.attributes
    assert is_same(event.data, pair.data, event.datacontenttype)
    assert isinstance(event.data, bytes) == (b"data_base64" in pair.envelope)


@pytest.mark.parametrize("pair", pairs())
def test_an_envelope_of_the_specification_becomes_the_record_that_it_shows(pair: Pair) -> None:
    record = written(read(pair.envelope, [("content-type", STRUCTURED.encode())]), "binary")
    assert sorted(record.headers) == sorted(headers_of(pair.attributes))
    assert is_same_value(
        record.value, pair.data, pair.attributes.get("datacontenttype", "application/octet-stream")
    )


@pytest.mark.parametrize("pair", [pair for pair in pairs() if "datacontenttype" in pair.attributes])
def test_an_event_of_the_specification_in_binary_mode_comes_back_in_an_envelope(pair: Pair) -> None:
    event = read(pair.data, headers_of(pair.attributes))
    assert texts_of(event) == pair.attributes
    record = written(event, "structured")
    assert record.value is not None
    envelope = json.loads(record.value)
    jsonschema.validate(envelope, ENVELOPE_SCHEMA)
    # the data of a type that is neither JSON nor text is bytes, and bytes are in base64
    assert is_same(data_of(envelope), pair.data, pair.attributes["datacontenttype"])
    assert envelope == pair.attributes


def test_the_schema_of_the_specification_and_we_refuse_the_same_envelopes() -> None:
    good = json.loads(pairs()[0].envelope)
    for name in ("id", "source", "specversion", "type"):
        values: tuple[Any, ...] = (None, "", 7, {})
        for value in values:
            changed = {**good, name: value}
            assert not jsonschema.Draft7Validator(ENVELOPE_SCHEMA).is_valid(changed)
            with pytest.raises(DecodeError, match=rf"\b{name}\b"):
                read(json.dumps(changed).encode(), [("content-type", STRUCTURED.encode())])


def test_a_batch_is_refused_by_name() -> None:
    section = (FOLDER / "json-format.md").read_text().partition("### 4.3. Examples")[2]
    for batch in re.findall(r"```JSON\n(.*?)\n```", section, re.DOTALL):
        with pytest.raises(DecodeError, match="it is a batch of events"):
            read(batch.encode(), [("content-type", b"application/cloudevents-batch+json")])


def test_times_of_the_examples_are_moments() -> None:
    event = read(pairs()[0].envelope, [("content-type", STRUCTURED.encode())])
    assert event.time == datetime(2018, 4, 5, 17, 31, tzinfo=UTC)
