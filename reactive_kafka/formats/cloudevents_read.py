"""CloudEvents in: which records are events, what makes one invalid, and the payload of one. Pure.

A record is an event in *structured* mode if its header ``content-type`` begins with
``application/cloudevents``: the value is an envelope of JSON. It is one in *binary* mode if it has
the header ``ce_specversion``, or all others that an event must have: the value is the event's data.
What says that it is an event and is an invalid one cannot be decoded.

Attributes are read twice where somebody looks at them: once to see that the event is valid, and
once for ``message.cloud_event``. To keep them would cost every message a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.cloudevents import (
    OWN_NAMES,
    STRUCTURED,
    CloudEvent,
    checked,
    invalid,
    is_json,
    parse_time,
)
from reactive_kafka.formats.cloudevents_envelope import envelope_of
from reactive_kafka.formats.format_names import EVENTS
from reactive_kafka.formats.guarded_decoder import Decoder
from reactive_kafka.formats.payload_type import payload_type_of
from reactive_kafka.records import HeaderPairs

PREFIX = "ce_"
CONTENT_TYPES = frozenset(("content-type", "Content-Type"))
_SIGNS = CONTENT_TYPES | {"ce_specversion", "ce_id"}
# Formats that take the characters of a JSON string, not its JSON.
_TEXTS = ("string", "bytes")


class Content(Protocol):
    """What is looked at of a record."""

    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> HeaderPairs: ...


RecordDecoder = Callable[[Content], object]
"""Record -> payload, raising what a decoder of its value raises."""


def record_decoder(
    decode: Decoder | None, payload_type: object, deserializer: str | None
) -> RecordDecoder:
    """What makes a payload of records with headers: those that are events, and by *decode* all
    others.

    Args:
        decode: The channel's decoder of values. None: they are passed on as they are. With
            ``cloudevents`` that by the annotation alone.
        payload_type: The handler's annotation.
        deserializer: The channel's, by name. None: the annotation decides. With ``cloudevents``
            what is no event cannot be decoded, and data that nothing is asked of is read by its own
            media type.
    """
    asked = payload_type_of(payload_type)
    is_demanded = deserializer == EVENTS
    takes_anything = is_demanded and asked.base in (Any, object) and not asked.constrained
    named = None if is_demanded else deserializer
    takes_text = (named or {str: "string", bytes: "bytes"}.get(asked.base)) in _TEXTS
    refusal = f"the event has no data, but the handler asks for {asked.name}: annotate {asked.name} | None to get None"

    def plain(value: bytes | None) -> object:
        return value if decode is None else decode(value)

    def payload(data: bytes | None, media: str | None, text: str | None = None) -> object:
        if data is None and not asked.accepts_none:
            raise DecodeError(refusal)
        if takes_anything and data is not None and not is_json(media):
            return text if text is not None else _by_media(data, media)
        return plain(text.encode("utf-8") if takes_text and text is not None else data)

    def of_event(record: Content) -> object:
        value = record.value
        headers = record.headers
        structured = _structured_type(headers)
        if structured is None and _is_binary(headers):
            attributes = checked(_attributes(headers))
            # Other writers have an empty value where an event has no data.
            return payload(
                value if value or takes_text else None, attributes.get("datacontenttype")
            )
        if value is None or (structured is None and not is_demanded):
            return plain(value)
        envelope = envelope_of(value, structured or b"")
        return payload(envelope.data, envelope.media, envelope.text)

    if is_demanded:
        return of_event

    def read(record: Content) -> object:
        for name, _ in record.headers:
            if name in _SIGNS:
                return of_event(record)
        return plain(record.value)

    return read


def value_decoder(read: RecordDecoder) -> Decoder:
    """What reads values of records without headers as *read* would."""
    return lambda value: read(Parts(value))


class Parts(NamedTuple):
    """The parts of a record that make it an event."""

    value: bytes | None
    headers: HeaderPairs = ()


def _by_media(data: bytes, media: str | None) -> object:
    """Data that is no JSON: text if its media type says so, else bytes."""
    if media is None or not media.lstrip().lower().startswith("text/"):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not UTF-8 text: {error.reason} at byte {error.start}") from None


def event_of(record: Content, payload: object, *, is_demanded: bool = False) -> CloudEvent | None:
    """The event that a record is, with *payload* as its data; None if it is none.

    Args:
        is_demanded: An envelope may come without a header that says so.

    Raises:
        DecodeError: It says that it is one, and is an invalid one.
    """
    value = record.value
    headers = record.headers
    structured = _structured_type(headers)
    if structured is None and _is_binary(headers):
        attributes: Mapping[str, Any] = checked(_attributes(headers))
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
    """Whether headers say that their record is an event, in either mode."""
    return _structured_type(headers) is not None or _is_binary(headers)


def _structured_type(headers: HeaderPairs) -> bytes | None:
    """The content type of an envelope; None: the value is none. The last header of a name counts,
    as in Kafka.
    """
    for name, value in reversed(headers):
        if name in CONTENT_TYPES:
            found = (value or b"").lstrip()
            return found if found[: len(STRUCTURED)].lower() == STRUCTURED else None
    return None


def _is_binary(headers: HeaderPairs) -> bool:
    names = {name for name, _ in headers}
    return "ce_specversion" in names or (
        "ce_id" in names and "ce_source" in names and "ce_type" in names
    )


def _attributes(headers: HeaderPairs) -> dict[str, str]:
    """The attributes of an event in binary mode."""
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
            raise invalid(f"its header for {_named(attribute)} is not UTF-8") from None
    return found


def _named(attribute: str) -> str:
    """An attribute, for a text that quotes nothing of a record's own."""
    return attribute if attribute in OWN_NAMES else "an extension"
