"""CloudEvents out: the value, headers and key of the record that an event becomes, in either mode.
Pure.
"""

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
    """What a channel gives to events that do not say it themselves."""

    mode: Mode = "binary"
    type: str | None = None
    source: str | None = None
    subject: str | None = None
    data_content_type: str | None = None
    data_schema: str | None = None
    # An event without a time gets that of sending.
    insert_timestamp: bool = True


class EventRecord(NamedTuple):
    """The record that an event becomes."""

    value: bytes | None
    headers: HeaderPairs
    # For a record that has none; the event's partitionkey.
    key: bytes | None = None


class EventWriter:
    """Makes records of the events of one channel.

    Args:
        name: The channel's, for errors.
        encode: Makes bytes of an event's data, by *serializer*.
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
        """The record for a value that is sent with *headers* at *now_s* (seconds since the epoch).

        A ``ce_`` header is the attribute that it names, where the value is no event that has it. A
        value whose headers say already that it is an event is written as it is. None is a
        tombstone: without attributes in structured mode.

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
            given, others = _taken_out(headers)
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
            envelope: bytes = pydantic_json().to_json(
                {name: _in_json(one) for name, one in attributes.items()}
            )
            member = b"" if encoded is None else self._member(data, encoded, media)
            return EventRecord(
                envelope[:-1] + member + b"}", (("content-type", ENVELOPE_TYPE), *others), key
            )
        is_text = isinstance(data, str) and self._serializer not in REGISTERED_FORMATS
        if is_text and encoded is not None and media is not None and is_json(media):
            self._check_json(data, encoded)
        pairs = [
            (
                "content-type" if name == "datacontenttype" else PREFIX + name,
                _in_header(one).encode("utf-8"),
            )
            for name, one in attributes.items()
        ]
        return EventRecord(encoded, (*pairs, *others), key)

    def _event(self, value: Any) -> CloudEvent:
        if isinstance(value, CloudEvent):
            return value
        attributes = {name: one for name, one in value.get_attributes().items() if one is not None}
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
        """The attributes in their order: the event's own, else what the headers name, else the
        channel's.
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
        found["datacontenttype"] = found["datacontenttype"] or self._implied(event.data)
        more = {name: one for name, one in given.items() if name not in OWN_NAMES}
        for name, one in {**more, **event.extensions}.items():
            if not is_extension_name(name):
                raise self._refused(
                    f"{name!r} is no name of an extension: lower-case letters and digits are"
                )
            found[name] = one
        for name, one in found.items():
            if one is not None and (problem := _problem(name, one)):
                raise self._refused(f"its {name} {problem}")
        return {name: one for name, one in found.items() if one is not None}

    def _implied(self, data: Any) -> str | None:
        """The media type of data for which nobody has named one: by what has made bytes of it."""
        if data is None or isinstance(data, _RAW):
            return None
        if self._serializer == "json":
            return JSON_TYPE
        if self._serializer == "string" or (self._serializer is None and isinstance(data, str)):
            return TEXT_TYPE
        return JSON_TYPE if self._serializer is None else None

    def _member(self, data: Any, encoded: bytes, media: str | None) -> bytes:
        """The data as a member of the envelope: JSON as it is, text as a string, anything else in
        base64.
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
        """EncodeError: the media type says JSON, and the bytes are none."""
        try:
            pydantic_json().from_json(encoded, allow_inf_nan=False)
        except ValueError:
            why = f"its datacontenttype says JSON, and what was made of its data ({type(data).__name__}) is none"
            raise self._refused(f'{why}: value_serializer = "json" writes JSON') from None

    def _refused(self, why: str) -> EncodeError:
        return EncodeError(f"channel {self._name!r}: no CloudEvent can be made of this: {why}")


def _taken_out(headers: HeaderPairs) -> tuple[dict[str, str], list[tuple[str, bytes | None]]]:
    """The attributes that headers name, and the other headers."""
    given: dict[str, str] = {}
    others = []
    for name, value in headers:
        if value is not None and (name in CONTENT_TYPES or name.startswith(PREFIX)):
            attribute = "datacontenttype" if name in CONTENT_TYPES else name[len(PREFIX) :]
            given[attribute] = value.decode("utf-8")
        else:
            others.append((name, value))
    return given, others


def _problem(name: str, value: Any) -> str | None:
    """Why an attribute cannot be written, as what follows its name."""
    match value:
        case str():
            if problem := text_problem(name, value):
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
            # A bool, too.
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
    # Of an enumeration of strings, too.
    return str.__str__(value)


def _base64(encoded: bytes) -> bytes:
    return b',"data_base64":"' + b64encode(encoded) + b'"'
