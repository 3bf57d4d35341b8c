"""Reads envelopes: CloudEvents in the JSON format. Pure."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterator

# It is implemented in C, and is missing in the stubs.
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.cloudevents import (
    RESERVED,
    STRUCTURED,
    invalid,
    is_json,
    valid_attributes,
)

_CHARSETS = ("utf-8", "utf8", "us-ascii")
_UNKNOWN_TYPE = "application/octet-stream"
"""The media type of bytes that name none. Without one they would pass for JSON."""
_SPACE = r"[ \t\n\r]*"
_NAME = re.compile(rf'"((?:[^"\\\x00-\x1f]|\\.)*)"{_SPACE}:{_SPACE}')
_OPEN = re.compile(rf"{_SPACE}\{{{_SPACE}(}}?){_SPACE}")
_NEXT = re.compile(rf"{_SPACE}([,}}]){_SPACE}")
# It is missing in the stubs, too.
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class Envelope(NamedTuple):
    """The parts of an event in structured mode.

    Attributes:
        data: The bytes that the data would be in binary mode: JSON as it is in the envelope, or
            text in UTF-8. None: the event has no data.
        text: The characters, if the data is a JSON string.
        media: The media type of the data; None: JSON, which needs no type in an envelope.
    """

    attributes: dict[str, Any]
    data: bytes | None
    text: str | None = None
    media: str | None = None


def envelope_of(value: bytes, content_type: bytes) -> Envelope:
    """Read an event in structured mode.

    Args:
        value: The value of the record.
        content_type: The record's content type; empty: no header names one.

    Raises:
        DecodeError: It is not a valid event.
    """
    if content_type:
        _check_format(content_type)
    try:
        text = value.decode("utf-8")
        members = dict(_members(text))
    except UnicodeDecodeError as error:
        raise invalid(f"its envelope is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise invalid("its envelope is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise invalid(f"its envelope is not valid JSON: {error}") from None
    except DecodeError:
        raise
    except ValueError as error:
        # Python does not read integers of thousands of digits.
        raise invalid(f"its envelope is not valid JSON: {type(error).__name__}") from None
    attributes = valid_attributes(
        {
            name: member
            for name, (member, _, _) in members.items()
            if member is not None and name not in RESERVED
        }
    )
    media = attributes.get("datacontenttype")
    data, start, end = members.get("data", (None, 0, 0))
    encoded, _, _ = members.get("data_base64", (None, 0, 0))
    if encoded is not None:
        if data is not None:
            raise invalid("it has both data and data_base64")
        try:
            decoded = b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise invalid("its data_base64 is not base64") from None
        return Envelope(attributes, decoded, media=media or _UNKNOWN_TYPE)
    if data is None:
        return Envelope(attributes, None, media=media)
    if not isinstance(data, str):
        return Envelope(attributes, text[start:end].encode("utf-8"), media=media)
    try:
        characters = data.encode("utf-8")
    except UnicodeEncodeError:
        # A lone surrogate, which JSON can hold as an escape.
        raise invalid("its data is a string that is not UTF-8") from None
    if is_json(media):
        return Envelope(attributes, text[start:end].encode("utf-8"), data, media)
    return Envelope(attributes, characters, data, media)


def _check_format(content_type: bytes) -> None:
    """Raise unless the content type says that the envelope is JSON in UTF-8."""
    media, *parameters = content_type.decode("latin-1").lower().split(";")
    suffix = media.strip()[len(STRUCTURED) :]
    if suffix.startswith("-batch"):
        raise invalid("it is a batch of events, which Kafka's binding does not have")
    if suffix not in ("", "+json"):
        raise invalid(
            "its envelope is not JSON: of all event formats only application/cloudevents+json is "
            "read"
        )
    for parameter in parameters:
        name, _, charset = parameter.partition("=")
        if name.strip() == "charset" and charset.strip().strip('"') not in _CHARSETS:
            raise invalid("its envelope is not in UTF-8, by the charset of its content type")


def _members(text: str) -> Iterator[tuple[str, tuple[Any, int, int]]]:
    """Yield the members of a JSON object: its name, then its value, start and end in the text.

    With the positions the data can be cut out of the text, so that the channel's own decoder reads
    the original JSON. A model is filled without a dict in between, and no number loses digits.
    """
    opening = _OPEN.match(text)
    if opening is None:
        raise invalid("its envelope is not a JSON object")
    position = opening.end()
    # "}" ends the object, a comma does not.
    delimiter = opening[1]
    while delimiter != "}":
        name_and_colon = _NAME.match(text, position)
        if name_and_colon is None:
            raise json.JSONDecodeError("a name and a colon are expected", text, position)
        name = name_and_colon[1]
        start = name_and_colon.end()
        if "\\" in name:
            name = scanstring(text, name_and_colon.start(1), True)[0]
        try:
            value, end = _scan(text, start)
        except StopIteration as stop:
            raise json.JSONDecodeError("a value is expected", text, stop.value) from None
        yield name, (value, start, end)
        following = _NEXT.match(text, end)
        if following is None:
            raise json.JSONDecodeError("a comma is expected, or the end", text, end)
        position = following.end()
        delimiter = following[1]
    if position != len(text):
        raise json.JSONDecodeError("something follows the object", text, position)
