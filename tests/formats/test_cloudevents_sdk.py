"""CloudEvents against the official SDK, which knows nothing of ours: each reads what the other
writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from cloudevents.core.bindings import kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent
from cloudevents.v1 import kafka as kafka_of_v1
from cloudevents.v1.http import CloudEvent as SdkEventOfV1
from cloudevents.v1.pydantic import CloudEvent as SdkModelOfV1
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import CloudEvent
from reactive_kafka.formats import (
    EventDefaults,
    EventWriter,
    RecordDecoder,
    decoder_for,
    encoder_for,
    event_of,
    is_event_type,
    record_decoder_for,
)

OWN = ("id", "source", "type", "subject", "dataschema", "datacontenttype", "time")
# What the specification allows in a string, quotes, percent signs, escapes and every script among
# it.
texts = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), min_size=1, max_size=20)
# The SDK takes any text where the specification has a URI reference; we take what is one.
references = st.builds(
    lambda scheme, segments, query: f"{scheme}/{'/'.join(segments)}{query}",
    st.sampled_from(["", "https://example.com", "urn:shop", "mailto:"]),
    st.lists(st.text("ab0.-_~!$&'()*+,;=:@ä字", max_size=5) | st.just("%20"), max_size=3),
    st.sampled_from(["", "?q=%7B1%7D", "#part"]),
)
zones = st.builds(
    timezone, st.integers(-14 * 60, 14 * 60).map(lambda minutes: timedelta(minutes=minutes))
)
times = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones)
names = st.from_regex("[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: name not in (*OWN, "specversion", "data", "data_base64", "partitionkey")
)
json_data = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**60), 2**60)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    ),
    min_size=1,
    max_size=4,
)
media_types = st.sampled_from(
    ["application/json", "application/vnd.shop.order+json; charset=utf-8"]
)


@st.composite
def attribute_sets(draw: st.DrawFn, *, extension: st.SearchStrategy[Any] = texts) -> dict[str, Any]:
    """The attributes of an event, those that it may lack drawn or left out."""
    found: dict[str, Any] = {
        "id": draw(texts),
        "source": draw(references),
        "type": draw(texts),
        "time": draw(times),
    }
    found |= draw(st.fixed_dictionaries({}, optional={"subject": texts, "dataschema": references}))
    return found | draw(st.dictionaries(names, extension, max_size=3))


def record(message: Any) -> Any:
    """A message of the SDK's as a record is read."""
    return SimpleNamespace(value=message.value, headers=tuple(message.headers.items()))


def payload_of(message: Any, payload_type: Any = Any, deserializer: str | None = None) -> Any:
    return reader(payload_type, deserializer)(record(message))


@cache
def reader(payload_type: Any, deserializer: str | None) -> RecordDecoder:
    return record_decoder_for(payload_type, deserializer, decoder_for(payload_type, deserializer))


def read(message: Any) -> CloudEvent:
    event = event_of(record(message), None)
    assert event is not None
    return event


def attributes_of(event: CloudEvent) -> dict[str, Any]:
    """Ours as the SDK has them."""
    own = {name: getattr(event, name) for name in OWN}
    return {name: value for name, value in {**own, **event.extensions}.items() if value is not None}


def written(event: Any, mode: Any, serializer: str | None = None) -> kafka.KafkaMessage:
    """What we make of an event, as the SDK reads it."""
    made = EventWriter(
        "orders", EventDefaults(mode=mode), encoder_for(serializer), serializer
    ).write(event, (), 0.0)
    headers = {name: value or b"" for name, value in made.headers}
    assert len(headers) == len(made.headers), "each name once"
    return kafka.KafkaMessage(headers=headers, key=None, value=made.value or b"")


def ours(attributes: Mapping[str, Any], data: Any) -> CloudEvent:
    own = {name: value for name, value in attributes.items() if name in OWN}
    return CloudEvent(
        data, **own, extensions={name: one for name, one in attributes.items() if name not in OWN}
    )


def without_specversion(event: Any) -> dict[str, Any]:
    found = dict(event.get_attributes())
    assert found.pop("specversion") == "1.0"
    return found


# -- what the SDK writes


@given(attribute_sets(), json_data, media_types)
def test_what_the_sdk_writes_in_binary_mode_is_read(
    attributes: dict[str, Any], data: Any, media: str
) -> None:
    message = kafka.to_binary(
        SdkEvent({**attributes, "datacontenttype": media}, data), JSONFormat()
    )
    assert attributes_of(read(message)) == {**attributes, "datacontenttype": media}
    assert (
        payload_of(message)
        == payload_of(message, dict, "json")
        == payload_of(message, Any, "cloudevents")
        == data
    )


@given(
    attribute_sets(extension=texts | st.booleans() | st.integers(-(2**31), 2**31 - 1)),
    json_data,
    media_types,
)
def test_what_the_sdk_writes_in_structured_mode_is_read(
    attributes: dict[str, Any], data: Any, media: str
) -> None:
    message = kafka.to_structured(
        SdkEvent({**attributes, "datacontenttype": media}, data), JSONFormat()
    )
    assert attributes_of(read(message)) == {**attributes, "datacontenttype": media}
    assert (
        payload_of(message)
        == payload_of(message, dict, "json")
        == payload_of(message, Any, "cloudevents")
        == data
    )


@given(attribute_sets(), st.binary())
def test_binary_data_of_the_sdk_is_read_in_both_modes(
    attributes: dict[str, Any], data: bytes
) -> None:
    event = SdkEvent({**attributes, "datacontenttype": "application/octet-stream"}, data)
    for message in (kafka.to_structured(event, JSONFormat()), kafka.to_binary(event, JSONFormat())):
        assert payload_of(message, bytes) == data
        assert payload_of(message, bytes, "cloudevents") == data
        if data:
            assert payload_of(message, Any, "cloudevents") == data


@given(
    attribute_sets(),
    texts,
    st.sampled_from(["text/plain", "text/plain; charset=utf-8", "application/xml"]),
)
def test_text_of_the_sdk_is_read_in_both_modes(
    attributes: dict[str, Any], data: str, media: str
) -> None:
    event = SdkEvent({**attributes, "datacontenttype": media}, data)
    structured, binary = (
        kafka.to_structured(event, JSONFormat()),
        kafka.to_binary(event, JSONFormat()),
    )
    assert payload_of(structured, str) == payload_of(binary, str) == data
    assert payload_of(structured, Any, "cloudevents") == data
    assert payload_of(binary, Any, "cloudevents") == (
        data if media.startswith("text/") else data.encode()
    )


@pytest.mark.parametrize("write", [kafka.to_structured, kafka.to_binary])
def test_an_event_of_the_sdk_without_data_has_none(write: Any) -> None:
    message = write(SdkEvent({"type": "t", "source": "/s"}), JSONFormat())
    assert payload_of(message, dict | None) is None
    assert read(message).type == "t"


@given(attribute_sets(), json_data)
def test_what_the_sdk_of_the_first_generation_writes_is_read(
    attributes: dict[str, Any], data: Any
) -> None:
    texts_only = {
        **attributes,
        "time": attributes["time"].isoformat(),
        "datacontenttype": "application/json",
    }
    event = SdkEventOfV1(texts_only, data)
    expected = {**attributes, "datacontenttype": "application/json"}
    binary = kafka_of_v1.to_binary(event)
    assert attributes_of(read(binary)) == expected
    assert payload_of(binary) == data
    # It puts the data's content type where the envelope's belongs: no header says that this is an
    # event.
    structured = kafka_of_v1.to_structured(event)
    assert event_of(record(structured), None) is None
    found = event_of(record(structured), None, is_demanded=True)
    assert found is not None
    assert attributes_of(found) == attributes
    assert payload_of(structured, Any, "cloudevents") == data


# -- what the SDK reads


@given(attribute_sets(), json_data, media_types)
def test_the_sdk_reads_what_we_write_in_binary_mode(
    attributes: dict[str, Any], data: Any, media: str
) -> None:
    event = kafka.from_kafka(
        written(ours({**attributes, "datacontenttype": media}, data), "binary"), JSONFormat()
    )
    assert without_specversion(event) == {**attributes, "datacontenttype": media}
    assert event.get_data() == data


@given(
    attribute_sets(extension=texts | st.booleans() | st.integers(-(2**31), 2**31 - 1)),
    json_data,
    media_types,
)
def test_the_sdk_reads_what_we_write_in_structured_mode(
    attributes: dict[str, Any], data: Any, media: str
) -> None:
    message = written(ours({**attributes, "datacontenttype": media}, data), "structured")
    event = kafka.from_kafka(message, JSONFormat())
    assert without_specversion(event) == {**attributes, "datacontenttype": media}
    assert event.get_data() == data


@given(attribute_sets(), st.binary(min_size=1))
def test_the_sdk_reads_binary_data_of_ours_in_structured_mode(
    attributes: dict[str, Any], data: bytes
) -> None:
    message = written(ours({**attributes, "datacontenttype": "image/png"}, data), "structured")
    assert kafka.from_kafka(message, JSONFormat()).get_data() == data
    assert (
        written(ours({**attributes, "datacontenttype": "image/png"}, data), "binary").value == data
    )


@given(attribute_sets(), texts)
def test_the_sdk_reads_text_of_ours_in_both_modes(attributes: dict[str, Any], data: str) -> None:
    for mode in ("binary", "structured"):
        event = kafka.from_kafka(written(ours(attributes, data), mode), JSONFormat())
        assert event.get_data() == data
        assert event.get_attributes()["datacontenttype"] == "text/plain; charset=utf-8"


def test_attributes_of_other_types_are_in_their_canonical_form() -> None:
    moment = datetime(2026, 7, 1, 12, tzinfo=UTC)
    extensions = {
        "yes": True,
        "no": False,
        "count": -5,
        "raw": b"\x00\xff",
        "due": moment,
        "partitionkey": "k",
    }
    event = CloudEvent({}, type="t", source="/s", id="1", time=moment, extensions=extensions)
    headers = written(event, "binary").headers
    expected = {
        "yes": "true",
        "no": "false",
        "count": "-5",
        "raw": "AP8=",
        "due": "2026-07-01T12:00:00Z",
    }
    assert {name: headers[f"ce_{name}"].decode() for name in expected} == expected
    envelope = json.loads(written(event, "structured").value)
    assert [envelope[name] for name in ("yes", "no", "count", "raw", "due")] == [
        True,
        False,
        -5,
        "AP8=",
        "2026-07-01T12:00:00Z",
    ]


# -- the SDK's own objects


@given(attribute_sets(), json_data, st.sampled_from(["binary", "structured"]))
def test_an_object_of_the_sdk_is_written_as_the_event_that_it_is(
    attributes: dict[str, Any], data: Any, mode: str
) -> None:
    attributes["datacontenttype"] = "application/json"
    for sent in (
        SdkEvent(dict(attributes), data),
        SdkEventOfV1({**attributes, "time": attributes["time"].isoformat()}, data),
        SdkModelOfV1.create(attributes, data),
    ):
        assert is_event_type(type(sent))
        event = kafka.from_kafka(written(sent, mode), JSONFormat())
        assert without_specversion(event) == attributes
        assert event.get_data() == data


@given(attribute_sets(), json_data, st.sampled_from(["binary", "structured"]))
def test_an_event_that_was_read_is_passed_on_as_it_was(
    attributes: dict[str, Any], data: Any, mode: str
) -> None:
    message = kafka.to_structured(
        SdkEvent({**attributes, "datacontenttype": "application/json"}, data), JSONFormat()
    )
    event = kafka.from_kafka(written(replace(read(message), data=data), mode), JSONFormat())
    assert without_specversion(event) == {**attributes, "datacontenttype": "application/json"}
    assert event.get_data() == data


def test_classes_that_only_look_like_events_are_none() -> None:
    class Own:
        def get_attributes(self) -> None: ...
        def get_data(self) -> None: ...

    class Extended(SdkEvent):
        pass

    assert is_event_type(Extended)
    assert not is_event_type(Own)
    assert not any(map(is_event_type, (dict, bytes, type(None), kafka.KafkaMessage)))
