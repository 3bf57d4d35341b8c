"""The rules of CloudEvents: which records are events, which are invalid, what their payload is,
what is written.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import CloudEvent
from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats import (
    EventDefaults,
    EventRecord,
    EventWriter,
    decoder_for,
    encoder_for,
    event_of,
    record_decoder_for,
)
from reactive_kafka.formats.cloudevents import is_json, parse_time, show_time
from tests.formats.types import OrderData, OrderModel, OrderStruct

BINARY = (
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/shop"),
    ("ce_type", b"order"),
)
STRUCTURED = (("content-type", b"application/cloudevents+json; charset=UTF-8"),)
ENVELOPE = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order"}
SAID: dict[str, Any] = {"type": "order", "source": "/shop"}


def record(value: Any, headers: Any) -> Any:
    if isinstance(value, dict):
        value = json.dumps(value).encode()
    return SimpleNamespace(value=value, headers=headers)


def payload(
    value: Any, headers: Any, payload_type: Any = Any, deserializer: str | None = None
) -> Any:
    """What a handler gets of a record with headers."""
    decode = decoder_for(payload_type, deserializer)
    return record_decoder_for(payload_type, deserializer, decode)(record(value, headers))


def problem(
    value: Any, headers: Any, payload_type: Any = Any, deserializer: str | None = None
) -> str:
    with pytest.raises(DecodeError) as raised:
        payload(value, headers, payload_type, deserializer)
    return str(raised.value)


# -- which records are events


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/cloudevents+json",
        b"application/cloudevents+json; charset=UTF-8",
        b"application/cloudevents+json;charset=utf-8",
        b'Application/CloudEvents+JSON ; charset="utf-8"',
        b"application/cloudevents",
        b"  application/cloudevents+json",
    ],
)
@pytest.mark.parametrize("name", ["content-type", "Content-Type"])
def test_a_content_type_makes_a_record_an_envelope(name: str, content_type: bytes) -> None:
    headers = (("trace", b"7"), (name, content_type))
    assert payload({**ENVELOPE, "data": {"id": 1}}, headers) == {"id": 1}


@pytest.mark.parametrize(
    "headers",
    [
        (("trace", b"1"),),
        (("content-type", b"application/json"),),
        (("content-type", None),),
        # The last counts.
        (("content-type", b"application/cloudevents+json"), ("content-type", b"application/json")),
        # Of a name of its own, maybe.
        (("ce_id", b"1"), ("ce_source", b"/shop")),
        (("ce_type", b"x"),),
    ],
)
def test_other_headers_make_none(headers: Any) -> None:
    value = {**ENVELOPE, "data": 1}
    assert payload(value, headers) == value
    assert event_of(record(value, headers), value) is None


def test_an_envelope_may_repeat_its_attributes_in_headers_that_do_not_count() -> None:
    value = {**ENVELOPE, "data": {"id": 1}}
    headers = (*STRUCTURED, ("ce_specversion", b"0.3"), ("ce_id", b"other"))
    assert payload(value, headers) == {"id": 1}
    event = event_of(record(value, headers), None)
    assert event is not None
    assert event.id == "1"


def test_an_event_has_its_attributes_and_extensions() -> None:
    headers = (
        *BINARY,
        ("ce_subject", b"Bestellung 5 %20"),
        ("ce_time", b"2026-07-01T12:00:00.5+02:00"),
        ("content-type", b"application/json"),
        ("ce_dataschema", b"/schema"),
        ("ce_tenant", "grün".encode()),
        ("ce_none", None),
        ("trace", b"7"),
        ("ce_tenant", b"last"),
    )
    assert event_of(record(b"{}", headers), {}) == CloudEvent(
        {},
        id="1",
        source="/shop",
        type="order",
        subject="Bestellung 5 %20",
        datacontenttype="application/json",
        time=datetime(2026, 7, 1, 12, 0, 0, 500_000, timezone(timedelta(hours=2))),
        dataschema="/schema",
        extensions={"tenant": "last"},
    )
    envelope = {
        **ENVELOPE,
        "subject": None,
        "time": "2026-07-01T12:00:00Z",
        "count": 5,
        "done": True,
        "none": None,
    }
    assert event_of(record(envelope, STRUCTURED), None) == CloudEvent(
        id="1",
        source="/shop",
        type="order",
        time=datetime(2026, 7, 1, 12, tzinfo=UTC),
        extensions={"count": 5, "done": True},
    )


# -- which are invalid


def changed(**changes: Any) -> dict[str, Any]:
    envelope = {**ENVELOPE, **changes}
    return {name: value for name, value in envelope.items() if value is not ...}


ALLOWED = "a string, a boolean or an integer of 32 bits is allowed"
OR_MORE = f"exponent: {ALLOWED}"
INVALID_ENVELOPES = [
    (changed(id=...), "it has no id"),
    (changed(id=""), "it has no id"),
    (changed(source=None), "it has no source"),
    (changed(type=...), "it has no type"),
    (changed(type=5), "its type is not a string"),
    (changed(specversion=...), "it has no specversion"),
    (changed(specversion="0.3"), "its specversion is not 1.0"),
    (changed(specversion=1.0), "its specversion is not 1.0"),
    (changed(subject=["x"]), "its subject is not a string"),
    (changed(source=""), "it has no source"),
    (changed(source="a secret"), "its source is not a URI reference (RFC 3986)"),
    (changed(source="/a%2"), "its source is not a URI reference (RFC 3986)"),
    (changed(source="10.0.0.1:80/a"), "its source is not a URI reference (RFC 3986)"),
    (changed(source="/a#b#c"), "its source is not a URI reference (RFC 3986)"),
    (changed(source={"secret": 1}), "its source is not a string"),
    (changed(id="\ud800"), "its id cannot be written in UTF-8"),
    (changed(dataschema="{secret}"), "its dataschema is not a URI reference (RFC 3986)"),
    (
        changed(datacontenttype="json"),
        "its datacontenttype is not a media type (RFC 2046), such as application/json",
    ),
    (
        changed(datacontenttype="a/b c"),
        "its datacontenttype is not a media type (RFC 2046), such as application/json",
    ),
    (changed(datacontenttype=5), "its datacontenttype is not a string"),
    (changed(price=42.42), f"its price is a number with a fraction or an exponent: {ALLOWED}"),
    (changed(price=1.0), f"its price is a number with a fraction or an exponent: {ALLOWED}"),
    (
        b'{"price": 1e3, ' + json.dumps(ENVELOPE).encode()[1:],
        f"its price is a number with a fraction or an {OR_MORE}",
    ),
    (
        b'{"price": NaN, ' + json.dumps(ENVELOPE).encode()[1:],
        f"its price is a number with a fraction or an {OR_MORE}",
    ),
    (changed(order={}), f"its order is an object: {ALLOWED}"),
    (changed(order={"secret": 1}), f"its order is an object: {ALLOWED}"),
    (changed(lines=[]), f"its lines is an array: {ALLOWED}"),
    (changed(lines=["secret"]), f"its lines is an array: {ALLOWED}"),
    (changed(count=2**31), f"its count is an integer of more than 32 bits: {ALLOWED}"),
    (changed(count=-(2**31) - 1), f"its count is an integer of more than 32 bits: {ALLOWED}"),
    (changed(tenant="\ud800"), "its tenant cannot be written in UTF-8"),
    (
        changed(Tenant="secret"),
        "'Tenant' is not a valid extension name: only lower-case letters and digits are allowed",
    ),
    (
        changed(my_tenant=1),
        "'my_tenant' is not a valid extension name: only lower-case letters and digits are allowed",
    ),
    (
        changed(**{"": 1}),
        "'' is not a valid extension name: only lower-case letters and digits are allowed",
    ),
    (
        changed(tenänt=1),
        "'tenänt' is not a valid extension name: only lower-case letters and digits are allowed",
    ),
    (changed(time="secret"), "its time is no timestamp with a zone"),
    (changed(time="2026-07-01T12:00:00"), "its time is no timestamp with a zone"),
    (changed(time="2026-13-01T12:00:00Z"), "its time is no moment that Python has"),
    (changed(data=1, data_base64="AA=="), "it has both data and data_base64"),
    (changed(data_base64="secret!"), "its data_base64 is not base64"),
    (changed(data_base64=5), "its data_base64 is not base64"),
    (changed(data_base64="AA"), "its data_base64 is not base64"),
    (changed(data_base64="A_8="), "its data_base64 is not base64"),
    (changed(data_base64={}), "its data_base64 is not base64"),
    (b"[]", "its envelope is not a JSON object"),
    (b"", "its envelope is not a JSON object"),
    (b"secret", "its envelope is not a JSON object"),
    (b"\xff{}", "its envelope is not UTF-8: invalid start byte at byte 0"),
    (
        b'{"id": "secret"',
        "its envelope is not valid JSON: a comma is expected, or the end: line 1 column 16 (char 15)",
    ),
    (b'{"id": }', "its envelope is not valid JSON: a value is expected: line 1 column 8 (char 7)"),
    (
        b'{"id" 5}',
        "its envelope is not valid JSON: a name and a colon are expected: line 1 column 2 (char 1)",
    ),
    (
        b"{5: 5}",
        "its envelope is not valid JSON: a name and a colon are expected: line 1 column 2 (char 1)",
    ),
    (
        b'{"id": 5,}',
        "its envelope is not valid JSON: a name and a colon are expected: line 1 column 10 (char 9)",
    ),
    (
        b'{"id": 5} x',
        "its envelope is not valid JSON: something follows the object: line 1 column 11 (char 10)",
    ),
    (
        b"{} x",
        "its envelope is not valid JSON: something follows the object: line 1 column 4 (char 3)",
    ),
    (b'{"data": ' + b"[" * 100_000, "its envelope is nested too deeply"),
    (b'{"data": ' + b"9" * 10_000 + b"}", "its envelope is not valid JSON: ValueError"),
    (json.dumps({**ENVELOPE, "data": "\ud800"}).encode(), "its data is a string that is not UTF-8"),
]


@pytest.mark.parametrize(
    ("value", "said"), INVALID_ENVELOPES, ids=[said for _, said in INVALID_ENVELOPES]
)
def test_an_invalid_envelope_cannot_be_decoded(value: Any, said: str) -> None:
    found = problem(value, STRUCTURED)
    assert found == f"not a valid CloudEvent: {said}"
    assert "secret" not in found
    with pytest.raises(DecodeError):
        event_of(record(value, STRUCTURED), None)


@pytest.mark.parametrize(
    ("content_type", "said"),
    [
        (
            b"application/cloudevents-batch+json",
            "it is a batch of events, which Kafka's binding does not have",
        ),
        (b"application/cloudevents+avro", "its envelope is not JSON: of all event formats only "),
        (
            b"application/cloudevents+json; charset=latin-1",
            "its envelope is not in UTF-8, by the charset of ",
        ),
    ],
)
def test_an_envelope_of_another_format_is_refused(content_type: bytes, said: str) -> None:
    found = problem({**ENVELOPE, "data": 1}, (("content-type", content_type),))
    assert found.startswith(f"not a valid CloudEvent: {said}")


def without(name: str) -> tuple[tuple[str, bytes], ...]:
    return tuple(header for header in BINARY if header[0] != name)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (without("ce_id"), "it has no id"),
        (without("ce_source"), "it has no source"),
        (without("ce_type"), "it has no type"),
        (without("ce_specversion"), "it has no specversion"),
        ((*without("ce_type"), ("ce_type", b"")), "it has no type"),
        ((*without("ce_specversion"), ("ce_specversion", b"0.3")), "its specversion is not 1.0"),
        ((*BINARY, ("ce_time", b"yesterday")), "its time is no timestamp with a zone"),
        ((*BINARY, ("ce_subject", b"\xff")), "its header for subject is not UTF-8"),
        ((*BINARY, ("ce_secret", b"\xff")), "its header for an extension is not UTF-8"),
        ((*without("ce_id"), ("ce_id", b"")), "it has no id"),
        ((*without("ce_source"), ("ce_source", b"")), "it has no source"),
        (
            (*without("ce_source"), ("ce_source", b"my shop")),
            "its source is not a URI reference (RFC 3986)",
        ),
        ((*BINARY, ("ce_dataschema", b"<a>")), "its dataschema is not a URI reference (RFC 3986)"),
        (
            (*BINARY, ("content-type", b"json")),
            "its datacontenttype is not a media type (RFC 2046), such as applicati",
        ),
        (
            (*BINARY, ("ce_Tenant", b"a")),
            "'Tenant' is not a valid extension name: only lower-case letters and digits are allowed",
        ),
        (
            (*BINARY, ("ce_my-tenant", b"a")),
            "'my-tenant' is not a valid extension name: only lower-case letters and digits are allowed",
        ),
        (
            (*BINARY, ("ce_", b"a")),
            "'' is not a valid extension name: only lower-case letters and digits are allowed",
        ),
        (
            (*BINARY, ("ce_data", b"a")),
            "'data' is not a valid extension name: only lower-case letters and digits are allowed",
        ),
    ],
)
def test_an_invalid_event_in_headers_cannot_be_decoded(headers: Any, said: str) -> None:
    assert problem(b"{}", headers).startswith(f"not a valid CloudEvent: {said}")
    with pytest.raises(DecodeError):
        event_of(record(b"{}", headers), None)


@pytest.mark.parametrize(
    "attributes",
    [
        {"count": 2**31 - 1},
        {"count": -(2**31)},
        {"done": False},
        {"note": ""},
        {"note": None},
        {"averylongnameofmorethantwentycharacters": "x"},
        {"4711": "x"},
        {"source": "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"},
        {"source": "mailto:shop@example.com"},
        {"source": "https://[::1]:80/shop?q=%20#part"},
        {"source": "arn:aws:s3:::bucket"},
        {"source": "1-555-123-4567"},
        {"source": "/käse"},
        {"source": "#"},
        {"dataschema": "schemas/order.json"},
        {"dataschema": None},
        {"datacontenttype": "application/vnd.shop+json; charset=utf-8"},
        {"datacontenttype": "text/plain;"},
        {"datacontenttype": ""},
        {"subject": ""},
    ],
)
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_what_the_specification_allows_is_an_event(mode: str, attributes: dict[str, Any]) -> None:
    envelope = changed(**attributes)
    if mode == "structured":
        found = event_of(record(envelope, STRUCTURED), None)
    else:
        names = {
            name: "content-type" if name == "datacontenttype" else f"ce_{name}" for name in envelope
        }
        headers = [
            (names[name], str(value).encode())
            for name, value in envelope.items()
            if value is not None
        ]
        found = event_of(record(b"{}", tuple(headers)), None)
    assert found is not None
    assert found.type == "order"


odd_members = (
    st.none()
    | st.text()
    | st.integers()
    | st.lists(st.none())
    | st.sampled_from([*ENVELOPE.values(), "AA=="])
)
odd_envelopes = st.dictionaries(
    st.sampled_from([*ENVELOPE, "data", "data_base64", "time"]), odd_members
)


@given(
    st.binary()
    | st.text().map(str.encode)
    | odd_envelopes.map(lambda odd: json.dumps(ENVELOPE | odd).encode()),
    st.sampled_from([STRUCTURED, BINARY, (*BINARY, *STRUCTURED)]),
    st.sampled_from([None, "cloudevents"]),
)
def test_nothing_but_a_decode_error_comes_of_any_bytes(
    value: bytes, headers: Any, deserializer: str | None
) -> None:
    try:
        payload(value, headers, str, deserializer)
        event_of(record(value, headers), None, is_demanded=True)
    except DecodeError:
        pass


# -- the payload


@pytest.mark.parametrize("payload_type", [OrderModel, OrderData, OrderStruct])
def test_data_goes_into_the_model_in_both_modes(payload_type: Any) -> None:
    expected = payload_type(id=1)
    for data, data_base64 in (({"id": 1}, ...), (..., b64encode(b'{"id": 1}').decode())):
        envelope = changed(data=data, data_base64=data_base64)
        assert payload(envelope, STRUCTURED, payload_type) == expected
        assert payload(envelope, STRUCTURED, payload_type, "cloudevents") == expected
    assert payload(b'{"id": 1}', BINARY, payload_type) == expected
    assert payload(b'{"id": 1}', BINARY, payload_type, "cloudevents") == expected


def test_data_that_does_not_fit_is_told_as_of_any_record() -> None:
    assert problem(changed(data={"id": "x"}), STRUCTURED, OrderStruct).startswith(
        "does not fit OrderStruct: "
    )


def test_json_data_reaches_the_decoder_as_it_stands_in_the_envelope() -> None:
    data = b'{ "a" : 0.10000000000000000000001, "b": "\\u00e9" , "c":[1e5]}'
    value = json.dumps(ENVELOPE)[:-1].encode() + b' , "data" :\n ' + data + b"\n} "
    assert payload(value, STRUCTURED, bytes) == data


@pytest.mark.parametrize(
    ("changes", "payload_type", "deserializer", "expected"),
    [
        # A JSON string is its characters for who asks for text.
        ({"data": "text"}, str, None, "text"),
        ({"data": "text"}, Any, None, "text"),
        ({"data": "grün"}, bytes, None, "grün".encode()),
        ({"data": "5"}, Any, "string", "5"),
        ({"data": {"a": 1}}, str, None, '{"a": 1}'),
        ({"data": 5}, int, None, 5),
        ({"data": "<a/>", "datacontenttype": "application/xml"}, str, None, "<a/>"),
        ({"data": "<a/>", "datacontenttype": "application/xml"}, Any, "cloudevents", "<a/>"),
        ({"data_base64": b64encode(b"\x00\xff").decode()}, bytes, None, b"\x00\xff"),
        ({"data_base64": b64encode((5).to_bytes(8, "big")).decode()}, int, "int", 5),
        (
            {"data_base64": b64encode(b"\xff").decode(), "datacontenttype": "image/png"},
            Any,
            "cloudevents",
            b"\xff",
        ),
        (
            {"data_base64": b64encode(b"hi").decode(), "datacontenttype": "text/plain"},
            Any,
            "cloudevents",
            "hi",
        ),
        # the JSON format forbids to take bytes for JSON that nothing says to be JSON
        ({"data_base64": b64encode(b"\xff").decode()}, Any, "cloudevents", b"\xff"),
        ({"data_base64": b64encode(b'{"a":1}').decode()}, Any, "cloudevents", b'{"a":1}'),
        ({"data_base64": b64encode(b'{"a":1}').decode()}, dict, "cloudevents", {"a": 1}),
        (
            {"data": {"a": 1}, "datacontenttype": "application/x+json; v=1"},
            Any,
            "cloudevents",
            {"a": 1},
        ),
        ({}, dict | None, None, None),
        ({"data": None}, dict | None, None, None),
        ({"data": None}, Any, None, None),
    ],
)
def test_the_data_of_an_envelope(
    changes: Any, payload_type: Any, deserializer: str | None, expected: Any
) -> None:
    assert payload(changed(**changes), STRUCTURED, payload_type, deserializer) == expected


@pytest.mark.parametrize("payload_type", [dict, bytes, str])
def test_an_event_without_data_is_refused_by_who_wants_some(payload_type: Any) -> None:
    name = payload_type.__name__
    said = f"the event has no data, but the handler asks for {name}: annotate {name} | None to get None"
    assert problem(ENVELOPE, STRUCTURED, payload_type) == said
    assert problem(None, BINARY, payload_type) == said


def test_a_tombstone_keeps_the_attributes_that_are_in_headers() -> None:
    assert payload(None, BINARY, dict | None) is None
    event = event_of(record(None, BINARY), None)
    assert event is not None
    assert event.type == "order"
    assert payload(None, STRUCTURED, dict | None) is None
    assert event_of(record(None, STRUCTURED), None, is_demanded=True) is None
    # So others write an event without data.
    assert payload(b"", BINARY, dict | None) is None
    assert payload(b"", BINARY, str) == ""


def test_a_channel_of_events_takes_no_other_records() -> None:
    said = "not a valid CloudEvent: it has no specversion"
    for headers in ((), (("trace", b"1"),), (("content-type", b"application/json"),)):
        assert problem({"id": 1}, headers, Any, "cloudevents") == said
        assert payload(None, headers, Any, "cloudevents") is None
        # A writer without the header.
        assert payload(changed(data=5), headers, Any, "cloudevents") == 5
    with pytest.raises(
        DecodeError, match="not a valid CloudEvent: its envelope is not a JSON object"
    ):
        decoder_for(bytes, "cloudevents")(b"x")  # type: ignore[misc]
    assert decoder_for(bytes, "cloudevents")(json.dumps(changed(data=5)).encode()) == b"5"  # type: ignore[misc]


# -- times and media types


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-01T12:00:00Z", datetime(2026, 7, 1, 12, tzinfo=UTC)),
        ("2026-07-01t12:00:00z", datetime(2026, 7, 1, 12, tzinfo=UTC)),
        (
            "2026-07-01T12:00:00.123456789-05:30",
            datetime(2026, 7, 1, 12, 0, 0, 123_456, timezone(-timedelta(hours=5, minutes=30))),
        ),
        ("2026-06-30T23:59:60Z", datetime(2026, 7, 1, tzinfo=UTC)),
        (
            "2026-06-30T23:59:60.5+01:00",
            datetime(2026, 7, 1, 0, 0, 0, 500_000, timezone(timedelta(hours=1))),
        ),
    ],
)
def test_a_timestamp_is_read(text: str, moment: datetime) -> None:
    assert parse_time(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-07-01",
        "2026-07-01T12:00:00",
        "2026-07-01 12:00:00Z",
        "20260701T120000Z",
        "2026-W27-3T12:00:00Z",
        "2026-07-01T24:00:00Z",
        "2026-07-01T12:60:00Z",
        "2026-07-01T12:00:61Z",
        "9999-12-31T23:59:60Z",
        "0000-01-01T00:00:00Z",
        "2026-07-01T12:00:00+25:00",
        "٢٠٢٦-07-01T12:00:00Z",
        "2026-07-01T12:00:00Z\n",
    ],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(no timestamp with a zone|no moment that Python has)$"):
        parse_time(text)


def test_a_zone_with_seconds_is_written_in_utc() -> None:
    assert (
        show_time(datetime(1890, 1, 1, tzinfo=timezone(timedelta(minutes=53, seconds=28))))
        == "1889-12-31T23:06:32Z"
    )


@pytest.mark.parametrize(
    ("media", "said"),
    [
        (None, True),
        ("application/json", True),
        ("text/json", True),
        ("application/geo+json; x=1", True),
        ("APPLICATION/JSON", True),
        ("application/xml", False),
        ("application/jsonx", False),
        ("json", False),
        ("application/x-json", False),
        ("", False),
    ],
)
def test_which_media_types_are_json(media: str | None, said: bool) -> None:
    assert is_json(media) is said


# -- what is written


def write(
    value: Any, headers: Any = (), serializer: str | None = None, **defaults: Any
) -> EventRecord:
    writer = EventWriter("orders", EventDefaults(**defaults), encoder_for(serializer), serializer)
    return writer.write(value, headers, 1_782_907_200.0)


def envelope_of(
    value: Any, serializer: str | None = None, headers: Any = (), **defaults: Any
) -> dict[str, Any]:
    made = write(value, headers, serializer, mode="structured", **defaults)
    assert made.headers == STRUCTURED
    found: dict[str, Any] = json.loads(made.value or b"")
    return found


def test_a_value_becomes_an_event_by_the_channels_defaults() -> None:
    said = {**SAID, "subject": "s", "data_schema": "/schema"}
    made = write({"id": 1}, [("trace", b"7")], **said)
    headers = dict(made.headers)
    assert len(headers.pop("ce_id") or b"") == 36
    assert headers == {
        "ce_specversion": b"1.0",
        "ce_source": b"/shop",
        "ce_type": b"order",
        "ce_subject": b"s",
        "ce_time": b"2026-07-01T12:00:00Z",
        "content-type": b"application/json",
        "ce_dataschema": b"/schema",
        "trace": b"7",
    }
    assert (made.value, made.key) == (b'{"id":1}', None)
    assert "ce_time" not in dict(write({}, insert_timestamp=False, **SAID).headers)
    assert (
        dict(write({}, data_content_type="text/json", **SAID).headers)["content-type"]
        == b"text/json"
    )


def test_an_id_is_new_for_each_event() -> None:
    assert len({dict(write({}, **SAID).headers)["ce_id"] for _ in range(10)}) == 10


def test_what_an_event_says_itself_goes_first_then_headers_then_the_channel() -> None:
    defaults = {"type": "d", "source": "d", "subject": "d"}
    headers = [
        ("ce_source", b"h"),
        ("ce_subject", b"h"),
        ("ce_tenant", b"h"),
        ("content-type", b"text/json"),
    ]
    envelope = envelope_of(CloudEvent({}, subject="e"), headers=headers, **defaults)
    told = ("type", "source", "subject", "tenant", "datacontenttype")
    assert [envelope[name] for name in told] == ["d", "h", "e", "h", "text/json"]
    assert envelope_of({}, headers=headers, **defaults)["subject"] == "h"


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (("ce_data", b"a"), "'data' is not a valid extension name"),
        (("ce_Tenant", b"a"), "'Tenant' is not a valid extension name"),
        (("ce_tenant", b"\xff"), "one of its headers is an attribute, and not UTF-8"),
        (("ce_time", b"today"), "its time is no timestamp with a zone"),
    ],
)
def test_a_header_that_is_no_attribute_is_refused(header: Any, said: str) -> None:
    with pytest.raises(EncodeError, match=said):
        write({}, [header], **SAID)


def test_what_is_an_event_already_is_written_as_it_is() -> None:
    for headers in (BINARY, STRUCTURED):
        assert write(b"{}", headers, mode="structured", **SAID) == (b"{}", headers, None)


@pytest.mark.parametrize(
    ("value", "serializer", "member", "media"),
    [
        ({"a": 1}, None, {"data": {"a": 1}}, "application/json"),
        ("text", None, {"data": "text"}, "text/plain; charset=utf-8"),
        ("text", "string", {"data": "text"}, "text/plain; charset=utf-8"),
        ("text", "json", {"data": "text"}, "application/json"),
        (5, None, {"data": 5}, "application/json"),
        (5, "int", {"data_base64": "AAAAAAAAAAU="}, None),
        (b"\xff", None, {"data_base64": "/w=="}, None),
        (bytearray(b"\xff"), "bytes", {"data_base64": "/w=="}, None),
        (CloudEvent(b"\xff"), "json", {"data_base64": "/w=="}, None),
        (
            CloudEvent("<a/>", datacontenttype="application/xml"),
            None,
            {"data": "<a/>"},
            "application/xml",
        ),
        (
            CloudEvent('{"a":1}', datacontenttype="application/json"),
            None,
            {"data": {"a": 1}},
            "application/json",
        ),
        (
            CloudEvent("a", datacontenttype="application/json"),
            "json",
            {"data": "a"},
            "application/json",
        ),
        (CloudEvent(), None, {}, None),
        ({"a": 1}, f"{__name__}:encode", {"data_base64": "AQ=="}, None),
        (
            OrderModel(id=1),
            "cloudevents",
            {"data": {"id": 1, "who": "", "at": None, "counts": {}}},
            "application/json",
        ),
    ],
)
def test_the_data_in_an_envelope(
    value: Any, serializer: str | None, member: Any, media: str | None
) -> None:
    envelope = envelope_of(value, serializer, **SAID)
    assert {name: envelope[name] for name in ("data", "data_base64") if name in envelope} == member
    assert envelope.get("datacontenttype") == media


def encode(value: object) -> bytes:
    return b"\x01"


def test_none_is_a_tombstone_which_has_attributes_in_headers_only() -> None:
    # What has no envelope needs no type either.
    assert write(None, mode="structured") == (None, (), None)
    made = write(None, **SAID)
    assert made.value is None
    assert dict(made.headers)["ce_type"] == b"order"
    assert write(CloudEvent(**SAID)).value is None


def test_a_partition_key_is_the_key_and_stays_an_attribute() -> None:
    event = CloudEvent({}, **SAID, extensions={"partitionkey": "grün"})
    assert write(event).key == "grün".encode()
    assert dict(write(event).headers)["ce_partitionkey"] == "grün".encode()
    assert write(event, mode="structured").key == "grün".encode()


class Status(StrEnum):
    PLACED = "placed"


def test_an_enumeration_of_strings_is_its_value() -> None:
    event = CloudEvent({}, type=Status.PLACED, source="/shop", extensions={"status": Status.PLACED})
    assert dict(write(event).headers)["ce_type"] == b"placed"
    assert envelope_of(event)["status"] == "placed"


NAIVE, BEFORE = datetime(2026, 7, 1), datetime(1, 1, 1, tzinfo=timezone(timedelta(seconds=30)))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            CloudEvent({}, source="/s"),
            "it has no type: give it one, or set type in [outgoing.orders.cloud_events]",
        ),
        (
            CloudEvent({}, type="t"),
            "it has no source: give it one, or set source in [outgoing.orders.cloud_events]",
        ),
        (CloudEvent({}, **SAID, time=NAIVE), "its time has no time zone"),
        (CloudEvent({}, **SAID, time=BEFORE), "its time is beyond the years that can be written"),
        (CloudEvent({}, **SAID, time="today"), "its time is no timestamp with a zone"),
        (CloudEvent({}, **SAID, time=5), "its time is not a datetime"),
        (CloudEvent({}, **SAID, subject=5), "its subject is not a string"),
        (CloudEvent({}, **SAID, id=5), "its id is not a string"),
        (
            CloudEvent({}, type="t", source="my shop"),
            "its source is not a URI reference (RFC 3986)",
        ),
        (
            CloudEvent({}, **SAID, dataschema="a b"),
            "its dataschema is not a URI reference (RFC 3986)",
        ),
        (
            CloudEvent({}, **SAID, datacontenttype="json"),
            "its datacontenttype is not a media type (RFC 2046)",
        ),
        (CloudEvent({}, **SAID, subject="\ud800"), "its subject cannot be written in UTF-8"),
        (
            CloudEvent({}, **SAID, extensions={"Tenant": "a"}),
            "'Tenant' is not a valid extension name: only lower-case letters ",
        ),
        (CloudEvent({}, **SAID, extensions={"data": "a"}), "'data' is not a valid extension name"),
        (CloudEvent({}, **SAID, extensions={"id": "a"}), "'id' is not a valid extension name"),
        (
            CloudEvent({}, **SAID, extensions={"a": 1.5}),
            "its a is not a string, a boolean, an integer, bytes or a ",
        ),
        (
            CloudEvent({}, **SAID, extensions={"a": 2**31}),
            "its a is an integer of more than 32 bits",
        ),
        (CloudEvent({}, **SAID, extensions={"a": NAIVE}), "its a has no time zone"),
    ],
)
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_what_cannot_be_an_event_is_refused(mode: Any, event: CloudEvent, said: str) -> None:
    with pytest.raises(EncodeError) as raised:
        write(event, mode=mode)
    assert str(raised.value).startswith(
        f"channel 'orders': no CloudEvent can be made of this: {said}"
    )


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_text_that_is_said_to_be_json_and_is_none_is_refused(mode: Any) -> None:
    event = CloudEvent("hello", datacontenttype="application/json", **SAID)
    with pytest.raises(
        EncodeError,
        match=r"its datacontenttype says JSON, but its data .str. was not written as JSON",
    ):
        write(event, mode=mode)
