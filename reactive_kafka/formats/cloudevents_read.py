"""Reads CloudEvents: finds out which records are events, and returns their payload. Pure.

A record is an event in *structured* mode if its header ``content-type`` begins with
``application/cloudevents``: its value is an envelope of JSON. It is an event in *binary* mode if it
has the header ``ce_specversion``, or all other headers that an event must have: its value is the
event's data. A record that claims to be an event and is an invalid one cannot be decoded.

The attributes are read once to check the event, and again if the handler asks for
``message.cloud_event``. To keep them would cost every message a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.cloudevents import (
    OWN_NAMES,
    STRUCTURED,
    CloudEvent,
    invalid,
    is_json,
    parse_time,
    valid_attributes,
)
from reactive_kafka.formats.cloudevents_envelope import envelope_of
from reactive_kafka.formats.format_names import EVENTS
from reactive_kafka.formats.guarded_decoder import Decoder
from reactive_kafka.formats.payload_type import PayloadType, payload_type_of
from reactive_kafka.records import HeaderPairs

PREFIX = "ce_"
CONTENT_TYPES = frozenset(("content-type", "Content-Type"))
# A record without any of these headers is not an event.
_EVENT_HEADERS = CONTENT_TYPES | {"ce_specversion", "ce_id"}
# Formats that read the characters of a JSON string, not its JSON.
_TEXT_FORMATS = ("string", "bytes")


class Content(Protocol):
    """The parts of a record that are read here."""

    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> HeaderPairs: ...


RecordDecoder = Callable[[Content], object]
"""Record -> payload. It raises what the decoder of the value raises."""


class ValueAndHeaders(NamedTuple):
    """The parts of a record that make it an event."""

    value: bytes | None
    headers: HeaderPairs = ()


def record_decoder(
    decode: Decoder | None, annotation: object, deserializer: str | None
) -> RecordDecoder:
    """Return what reads records with headers: events here, and all others by *decode*.

    Args:
        decode: The channel's decoder of values; None: values are passed on unchanged. With the
            deserializer ``cloudevents`` it is the decoder for the annotation alone.
        annotation: The handler's annotation.
        deserializer: The channel's deserializer; None: the annotation decides. With ``cloudevents``
            a record that is not an event cannot be decoded, and if the annotation asks for nothing,
            the data is read by its own media type.
    """
    payload_type = payload_type_of(annotation)
    events_only = deserializer == EVENTS
    takes_anything = (
        events_only and payload_type.base in (Any, object) and not payload_type.is_constrained
    )
    takes_text = _takes_text(payload_type, deserializer)
    name = payload_type.name
    refusal = (
        f"the event has no data, but the handler asks for {name}: annotate {name} | None to get "
        "None"
    )

    def read_value(value: bytes | None) -> object:
        return value if decode is None else decode(value)

    def read_data(data: bytes | None, media: str | None, text: str | None = None) -> object:
        if data is None and not payload_type.accepts_none:
            raise DecodeError(refusal)
        if takes_anything and data is not None and not is_json(media):
            return text if text is not None else _read_by_media(data, media)
        if takes_text and text is not None:
            return read_value(text.encode("utf-8"))
        return read_value(data)

    def read_event(record: Content) -> object:
        value = record.value
        headers = record.headers
        structured = _structured_type(headers)
        if structured is None and _is_binary(headers):
            attributes = valid_attributes(_attributes(headers))
            # Other writers leave the value empty if an event has no data.
            data = value if value or takes_text else None
            return read_data(data, attributes.get("datacontenttype"))
        if value is None or (structured is None and not events_only):
            return read_value(value)
        envelope = envelope_of(value, structured or b"")
        return read_data(envelope.data, envelope.media, envelope.text)

    if events_only:
        return read_event

    def read(record: Content) -> object:
        for name, _ in record.headers:
            if name in _EVENT_HEADERS:
                return read_event(record)
        return read_value(record.value)

    return read


def _takes_text(payload_type: PayloadType, deserializer: str | None) -> bool:
    """Return whether the handler gets the characters of a JSON string in an envelope."""
    if deserializer is None or deserializer == EVENTS:
        return payload_type.base in (str, bytes)
    return deserializer in _TEXT_FORMATS


def value_decoder(read: RecordDecoder) -> Decoder:
    """Return a decoder that reads values as *read* does for records without headers."""
    return lambda value: read(ValueAndHeaders(value))


def _read_by_media(data: bytes, media: str | None) -> object:
    """Return data that is not JSON: text if its media type says so, otherwise bytes."""
    if media is None or not media.lstrip().lower().startswith("text/"):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8 text: {error.reason} at byte {error.start}") from None


def event_of(record: Content, payload: object, *, is_demanded: bool = False) -> CloudEvent | None:
    """Return the event that a record is, with *payload* as its data; None: it is not an event.

    Args:
        record: The record.
        payload: What the record was decoded to.
        is_demanded: The channel reads events only, so an envelope needs no header that says so.

    Raises:
        DecodeError: The record claims to be an event, and is an invalid one.
    """
    value = record.value
    headers = record.headers
    structured = _structured_type(headers)
    if structured is None and _is_binary(headers):
        attributes: Mapping[str, Any] = valid_attributes(_attributes(headers))
    elif value is None or (structured is None and not is_demanded):
        return None
    else:
        attributes = envelope_of(value, structured or b"").attributes
    time = attributes.get("time")
    return CloudEvent(
        data=payload,
        id=attributes["id"],
        source=attributes["source"],
        type=attributes["type"],
        subject=attributes.get("subject"),
        time=None if time is None else parse_time(time),
        datacontenttype=attributes.get("datacontenttype"),
        dataschema=attributes.get("dataschema"),
        extensions={name: value for name, value in attributes.items() if name not in OWN_NAMES},
    )


def says_event(headers: HeaderPairs) -> bool:
    """Return whether headers say that their record is an event, in either mode."""
    return _structured_type(headers) is not None or _is_binary(headers)


def _structured_type(headers: HeaderPairs) -> bytes | None:
    """Return the content type of an envelope; None: the value is not an envelope.

    Of several headers with one name the last one counts, as in Kafka.
    """
    for name, value in reversed(headers):
        if name in CONTENT_TYPES:
            content_type = (value or b"").lstrip()
            if content_type[: len(STRUCTURED)].lower() == STRUCTURED:
                return content_type
            return None
    return None


def _is_binary(headers: HeaderPairs) -> bool:
    names = {name for name, _ in headers}
    if "ce_specversion" in names:
        return True
    return "ce_id" in names and "ce_source" in names and "ce_type" in names


def _attributes(headers: HeaderPairs) -> dict[str, str]:
    """Return the attributes of an event in binary mode."""
    found: dict[str, str] = {}
    for name, value in headers:
        if value is None:
            continue
        if name.startswith(PREFIX):
            attribute = name[len(PREFIX) :]
        elif name in CONTENT_TYPES:
            attribute = "datacontenttype"
        else:
            continue
        try:
            found[attribute] = value.decode("utf-8")
        except UnicodeDecodeError:
            # The name of an extension is left out: an error must not quote the record.
            shown = attribute if attribute in OWN_NAMES else "an extension"
            raise invalid(f"its header for {shown} is not UTF-8") from None
    return found
