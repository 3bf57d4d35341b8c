"""The JSON format of CloudEvents: an envelope in bytes, taken apart. Pure."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterator

# Of the C scanner; not in the stubs.
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.cloudevents import RESERVED, STRUCTURED, checked, invalid, is_json

_CHARSETS = ("utf-8", "utf8", "us-ascii")
_UNKNOWN_TYPE = "application/octet-stream"
"""Stands for the media type that bytes do not have: they are not to be taken for JSON."""
_SPACE = r"[ \t\n\r]*"
_NAME = re.compile(rf'"((?:[^"\\\x00-\x1f]|\\.)*)"{_SPACE}:{_SPACE}')
_OPEN = re.compile(rf"{_SPACE}\{{{_SPACE}(}}?){_SPACE}")
_NEXT = re.compile(rf"{_SPACE}([,}}]){_SPACE}")
# As above.
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class Envelope(NamedTuple):
    """An event in structured mode, taken apart."""

    attributes: dict[str, Any]
    # In bytes as in binary mode: JSON as it stands there, text in UTF-8; None: there is none.
    data: bytes | None
    # The characters, where the data is a JSON string.
    text: str | None = None
    # The media type of the data; None: JSON, which needs none in an envelope.
    media: str | None = None


def envelope_of(value: bytes, content_type: bytes) -> Envelope:
    """An event in structured mode; the content type is empty where no header tells one."""
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
        # An integer of thousands of digits.
        raise invalid(f"its envelope is not valid JSON: {type(error).__name__}") from None
    attributes = checked(
        {
            name: found
            for name, (found, _, _) in members.items()
            if found is not None and name not in RESERVED
        }
    )
    media = attributes.get("datacontenttype")
    data, start, end = members.get("data", (None, 0, 0))
    encoded, _, _ = members.get("data_base64", (None, 0, 0))
    if encoded is not None:
        if data is not None:
            raise invalid("it has both data and data_base64")
        try:
            return Envelope(
                attributes, b64decode(encoded, validate=True), media=media or _UNKNOWN_TYPE
            )
        except (TypeError, ValueError, binascii.Error):
            raise invalid("its data_base64 is not base64") from None
    if data is None:
        return Envelope(attributes, None, media=media)
    if not isinstance(data, str):
        return Envelope(attributes, text[start:end].encode("utf-8"), media=media)
    try:
        characters = data.encode("utf-8")
    except UnicodeEncodeError:
        # Half of a pair, which JSON may hold as an escape.
        raise invalid("its data is a string that is not UTF-8") from None
    is_plain = not is_json(media)
    return Envelope(
        attributes, characters if is_plain else text[start:end].encode("utf-8"), data, media
    )


def _check_format(content_type: bytes) -> None:
    """See that an envelope is JSON in UTF-8, by its content type."""
    media, *parameters = content_type.decode("latin-1").lower().split(";")
    suffix = media.strip()[len(STRUCTURED) :]
    if suffix.startswith("-batch"):
        raise invalid("it is a batch of events, which Kafka's binding does not have")
    if suffix not in ("", "+json"):
        raise invalid(
            "its envelope is not JSON: of all event formats only application/cloudevents+json is read"
        )
    for parameter in parameters:
        name, _, charset = parameter.partition("=")
        if name.strip() == "charset" and charset.strip().strip('"') not in _CHARSETS:
            raise invalid("its envelope is not in UTF-8, by the charset of its content type")


def _members(text: str) -> Iterator[tuple[str, tuple[Any, int, int]]]:
    """The members of a JSON object: name -> value, and where in the text that begins and ends.

    The data is cut out as it stands there, so that the channel's own decoder reads JSON and not
    what we made of it: a model is filled without a dict in between, and no number loses digits.
    """
    opened = _OPEN.match(text)
    if opened is None:
        raise invalid("its envelope is not a JSON object")
    at = opened.end()
    last = opened[1]
    while last != "}":
        named = _NAME.match(text, at)
        if named is None:
            raise json.JSONDecodeError("a name and a colon are expected", text, at)
        name = named[1]
        start = named.end()
        if "\\" in name:
            name = scanstring(text, named.start(1), True)[0]
        try:
            value, end = _scan(text, start)
        except StopIteration as stop:
            raise json.JSONDecodeError("a value is expected", text, stop.value) from None
        yield name, (value, start, end)
        closed = _NEXT.match(text, end)
        if closed is None:
            raise json.JSONDecodeError("a comma is expected, or the end", text, end)
        at = closed.end()
        last = closed[1]
    if at != len(text):
        raise json.JSONDecodeError("something follows the object", text, at)
