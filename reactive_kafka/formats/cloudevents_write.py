"""Writes CloudEvents: makes the value, headers and key of an event's record. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.cloudevents import (
    JSON_TYPE,
    OPTIONAL,
    OWN_NAMES,
    PARTITION_KEY,
    REQUIRED,
    SPECVERSION,
    CloudEvent,
    is_event_type,
    is_extension_name,
    is_integer,
    is_json,
    parse_time,
    show_time,
    text_problem,
)
from reactive_kafka.formats.cloudevents_read import CONTENT_TYPES, PREFIX, says_event
from reactive_kafka.formats.encoders import Encoder, pydantic_json
from reactive_kafka.formats.format_names import EVENTS, REGISTERED_FORMATS
from reactive_kafka.records import HeaderPairs

Mode = Literal["binary", "structured"]
ENVELOPE_TYPE = b"application/cloudevents+json; charset=UTF-8"
TEXT_TYPE = "text/plain; charset=utf-8"
_RAW = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDefaults:
    """The attributes that a channel adds to events without them.

    Attributes:
        mode: Where the attributes are written: into headers, or into an envelope in the value.
        insert_timestamp: An event without a time gets the time of sending.
    """

    mode: Mode = "binary"
    type: str | None = None
    source: str | None = None
    subject: str | None = None
    data_content_type: str | None = None
    data_schema: str | None = None
    insert_timestamp: bool = True


class EventRecord(NamedTuple):
    """The record of an event.

    Attributes:
        key: The event's partitionkey, for a record without a key.
    """

    value: bytes | None
    headers: HeaderPairs
    key: bytes | None = None


class EventWriter:
    """Makes the records of one channel's events.

    Args:
        name: The channel's name, for errors.
        defaults: The channel's ``cloud_events`` table.
        encode: Encodes the data of an event.
        serializer: The serializer that *encode* belongs to.
    """

    def __init__(
        self, name: str, defaults: EventDefaults, encode: Encoder, serializer: str | None
    ) -> None:
        self._table = f"[outgoing.{name}.cloud_events]"
        self._name = name
        self._defaults = defaults
        self._encode = encode
        self._serializer = None if serializer == EVENTS else serializer

    def write(self, value: Any, headers: HeaderPairs, now_s: float) -> EventRecord:
        """Return the record for a value, which may be an event or the data of one.

        A ``ce_`` header sets the attribute that it names, unless the event has it. A value whose
        headers already make it an event is only encoded. None is a tombstone. In structured mode
        that has no attributes.

        Args:
            value: What is sent.
            headers: The headers that it is sent with.
            now_s: The time of sending, in seconds since the epoch.

        Raises:
            EncodeError: It has no type or no source, or an attribute or its data cannot be written.
        """
        kind: Any = type(value)
        is_event = is_event_type(kind)
        if not is_event and says_event(headers):
            return EventRecord(self._encode(value), headers)
        is_structured = self._defaults.mode == "structured"
        if value is None and is_structured:
            return EventRecord(None, headers)
        try:
            given, others = _split_headers(headers)
        except UnicodeDecodeError:
            raise self._refused("one of its headers is an attribute, and not UTF-8") from None
        event = self._event(value) if is_event else CloudEvent(data=value)
        data = event.data
        encoded = bytes(data) if is_event and isinstance(data, _RAW) else self._encode(data)
        attributes = self._attributes(event, given, now_s)
        partition_key = attributes.get(PARTITION_KEY)
        key = None if partition_key is None else _in_header(partition_key).encode("utf-8")
        media = attributes.get("datacontenttype")
        if is_structured:
            envelope = self._envelope(attributes, data, encoded, media)
            return EventRecord(envelope, (("content-type", ENVELOPE_TYPE), *others), key)
        is_text = isinstance(data, str) and self._serializer not in REGISTERED_FORMATS
        if is_text and encoded is not None and media is not None and is_json(media):
            self._check_json(data, encoded)
        pairs = []
        for name, attribute in attributes.items():
            header = "content-type" if name == "datacontenttype" else PREFIX + name
            pairs.append((header, _in_header(attribute).encode("utf-8")))
        return EventRecord(encoded, (*pairs, *others), key)

    def _event(self, value: Any) -> CloudEvent:
        """Return an event of the official SDK as ours, and our own unchanged."""
        if isinstance(value, CloudEvent):
            return value
        attributes = {
            name: attribute
            for name, attribute in value.get_attributes().items()
            if attribute is not None
        }
        if attributes.pop("specversion", SPECVERSION) != SPECVERSION:
            raise self._refused(f"its specversion is not {SPECVERSION}")
        own = {name: attributes.pop(name) for name in (*REQUIRED, *OPTIONAL) if name in attributes}
        if isinstance(own.get("time"), str):
            try:
                own["time"] = parse_time(own["time"])
            except ValueError as error:
                raise self._refused(f"its time is {error}") from None
        return CloudEvent(data=value.get_data(), extensions=attributes, **own)

    def _attributes(
        self, event: CloudEvent, given: Mapping[str, str], now_s: float
    ) -> dict[str, Any]:
        """Return the attributes in their order.

        Each is the event's own, or else the one in the headers, or else the channel's default.

        Args:
            event: The event.
            given: The attributes in the headers.
            now_s: The time of sending, in seconds since the epoch.
        """
        defaults = self._defaults
        found: dict[str, Any] = {
            "specversion": SPECVERSION,
            "id": event.id or given.get("id") or str(uuid4()),
            "source": event.source or given.get("source") or defaults.source,
            "type": event.type or given.get("type") or defaults.type,
            "subject": event.subject or given.get("subject") or defaults.subject,
            "time": event.time or given.get("time"),
            "datacontenttype": event.datacontenttype
            or given.get("datacontenttype")
            or defaults.data_content_type,
            "dataschema": event.dataschema or given.get("dataschema") or defaults.data_schema,
        }
        for name in REQUIRED:
            if not found[name]:
                raise self._refused(
                    f"it has no {name}: give it one, or set {name} in {self._table}"
                )
        if found["time"] is None and defaults.insert_timestamp:
            found["time"] = datetime.fromtimestamp(now_s, UTC)
        if not found["datacontenttype"]:
            found["datacontenttype"] = self._implied_type(event.data)
        extensions = {name: text for name, text in given.items() if name not in OWN_NAMES}
        extensions.update(event.extensions)
        for name, extension in extensions.items():
            if not is_extension_name(name):
                raise self._refused(
                    f"{name!r} is not a valid extension name: only lower-case letters and digits "
                    "are allowed"
                )
            found[name] = extension
        attributes = {name: value for name, value in found.items() if value is not None}
        for name, value in attributes.items():
            problem = _problem(name, value)
            if problem:
                raise self._refused(f"its {name} {problem}")
        return attributes

    def _implied_type(self, data: Any) -> str | None:
        """Return the media type that follows from the serializer."""
        if data is None or isinstance(data, _RAW):
            return None
        if self._serializer == "json":
            return JSON_TYPE
        if self._serializer == "string":
            return TEXT_TYPE
        if self._serializer is None:
            return TEXT_TYPE if isinstance(data, str) else JSON_TYPE
        return None

    def _envelope(
        self, attributes: Mapping[str, Any], data: Any, encoded: bytes | None, media: str | None
    ) -> bytes:
        envelope: bytes = pydantic_json().to_json(
            {name: _in_json(attribute) for name, attribute in attributes.items()}
        )
        if encoded is None:
            return envelope
        # The data is inserted as bytes before the closing brace, because it is JSON already.
        return envelope[:-1] + self._data_member(data, encoded, media) + b"}"

    def _data_member(self, data: Any, encoded: bytes, media: str | None) -> bytes:
        """Return the data as a member of the envelope.

        JSON is inserted unchanged, text becomes a string, and anything else base64.
        """
        if isinstance(data, _RAW):
            return _base64(encoded)
        if media is not None and is_json(media):
            self._check_json(data, encoded)
            return b',"data":' + encoded
        if isinstance(data, str) and self._serializer not in REGISTERED_FORMATS:
            text: bytes = pydantic_json().to_json(encoded.decode("utf-8"))
            return b',"data":' + text
        return _base64(encoded)

    def _check_json(self, data: Any, encoded: bytes) -> None:
        """Raise EncodeError unless the encoded data is JSON, as its media type says."""
        try:
            pydantic_json().from_json(encoded, allow_inf_nan=False)
        except ValueError:
            raise self._refused(
                f"its datacontenttype says JSON, but its data ({type(data).__name__}) was not "
                'written as JSON: value_serializer = "json" writes JSON'
            ) from None

    def _refused(self, why: str) -> EncodeError:
        return EncodeError(f"channel {self._name!r}: no CloudEvent can be made of this: {why}")


def _split_headers(headers: HeaderPairs) -> tuple[dict[str, str], list[tuple[str, bytes | None]]]:
    """Return the attributes that headers name, and the other headers."""
    given: dict[str, str] = {}
    others: list[tuple[str, bytes | None]] = []
    for name, value in headers:
        if value is None:
            others.append((name, value))
        elif name in CONTENT_TYPES:
            given["datacontenttype"] = value.decode("utf-8")
        elif name.startswith(PREFIX):
            given[name[len(PREFIX) :]] = value.decode("utf-8")
        else:
            others.append((name, value))
    return given, others


def _problem(name: str, value: Any) -> str | None:
    """Return why an attribute cannot be written, in words that follow its name."""
    match value:
        case str():
            problem = text_problem(name, value)
            if problem:
                return problem
            if name == "time":
                try:
                    parse_time(value)
                except ValueError as error:
                    return f"is {error}"
        case datetime() if name == "time" or name not in OWN_NAMES:
            if value.utcoffset() is None:
                return "has no time zone"
            try:
                show_time(value)
            except OverflowError:
                return "is beyond the years that can be written"
        case _ if name in OWN_NAMES:
            return "is not a datetime" if name == "time" else "is not a string"
        case int():
            # A bool is an int, too, and fits.
            return None if is_integer(value) else "is an integer of more than 32 bits"
        case bytes():
            return None
        case _:
            kinds = "a string, a boolean, an integer, bytes or a datetime"
            return f"is not {kinds} but of type {type(value).__name__}"
    return None


def _in_header(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    shown = _in_json(value)
    return shown if isinstance(shown, str) else str(shown)


def _in_json(value: Any) -> str | bool | int:
    match value:
        case datetime():
            return show_time(value)
        case bytes():
            return b64encode(value).decode("ascii")
        case bool():
            return value
        case int():
            return int(value)
    # str.__str__ returns the value of a member of a string enum, where str() returns its name.
    return str.__str__(value)


def _base64(encoded: bytes) -> bytes:
    return b',"data_base64":"' + b64encode(encoded) + b'"'
