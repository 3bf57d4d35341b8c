"""CloudEvents 1.0: what an event is, as a value; its times, and whose objects are events. Knows no
Kafka.

Source: the CloudEvents specification 1.0.2, its JSON format and its Kafka protocol binding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from reactive_kafka.errors import DecodeError

SPECVERSION = "1.0"
# Beside specversion, which has one value only.
REQUIRED = ("id", "source", "type")
OPTIONAL = ("subject", "time", "datacontenttype", "dataschema")
OWN_NAMES = frozenset(("specversion", *REQUIRED, *OPTIONAL))
# Members of the JSON format that are no attributes.
RESERVED = frozenset(("data", "data_base64"))
JSON_TYPE = "application/json"
# How the content type of an envelope begins.
STRUCTURED = b"application/cloudevents"
PARTITION_KEY = "partitionkey"
_JSON = re.compile(r"\s*[^/;\s]+/(?:[^/;\s]+\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt](?:[01][0-9]|2[0-3]):[0-9]{2}:(?P<second>[0-9]{2})(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_EXTENSION_NAME = re.compile("[a-z0-9]+")
_INT32 = range(-(2**31), 2**31)
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`{|}~-]+"
_WITH_A_FORM = frozenset(("source", "dataschema", "datacontenttype"))
_MEDIA_TYPE = re.compile(rf"\s*{_TOKEN}/{_TOKEN}\s*(?:;.*)?", re.DOTALL)
# characters of every script may be in it unescaped, as Java's SDK takes them; a second "#" may not
_NOT_IN_URI = re.compile(r'[\x00-\x20"<>\\^`{|}\x7f-\xa0\s]|%(?![0-9A-Fa-f]{2})|#.*#')
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|[^:/?#]*(?:[/?#]|\Z)")
_MOST_SHOWN = 40
_ALLOWED = "a string, a boolean or an integer of 32 bits is allowed"
# The official package; it is never imported here.
_SDK = "cloudevents"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent:
    """A CloudEvent 1.0: what ``message.cloud_event`` is, and what a handler returns, or an emitter
    sends, as one.

    In one that is sent, ``type`` and ``source`` may be left to the outgoing channel's
    ``cloud_events`` table, and so may ``id`` and ``time``: a random id, and the time of sending.
    ``dataclasses.replace(event, ...)`` passes on an event that was read; give it ``id=""`` if it
    becomes another event.

    Args:
        data: What the event tells: the message's payload, or the value that the channel's
            serializer writes. Bytes are written as they are.
        type: What kind of event it is: ``com.example.order.placed``.
        source: The context in which it happened, a URI or a part of one.
        id: Together with ``source`` it names the event.
        subject: What in that context it is about.
        time: When it happened, aware.
        datacontenttype: The media type of the data; None in one that is sent: by the serializer.
        dataschema: The URI of the data's schema.
        extensions: Further attributes, by names of lower-case letters and digits: strings,
            booleans, integers of 32 bits, and in one that is sent also bytes and aware datetimes.
            Those of an event in binary mode are strings.
    """

    data: Any = field(default=None, kw_only=False)
    type: str = ""
    source: str = ""
    id: str = ""
    subject: str | None = None
    time: datetime | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)


def _is_event_type(kind: type) -> bool:
    if issubclass(kind, CloudEvent):
        return True
    has_methods = callable(getattr(kind, "get_attributes", None)) and callable(
        getattr(kind, "get_data", None)
    )
    return has_methods and any(base.__module__.partition(".")[0] == _SDK for base in kind.__mro__)


is_event_type: Callable[[Any], bool] = lru_cache(maxsize=1024)(_is_event_type)
"""Whether objects of a class are events: ours, or the official SDK's, of its first or second
generation.
"""


def is_json(datacontenttype: str | None) -> bool:
    """Whether data of this media type is JSON; without a type the JSON format takes it as such."""
    return datacontenttype is None or _JSON.fullmatch(datacontenttype) is not None


def parse_time(text: str) -> datetime:
    """The moment that a timestamp names; parts of a microsecond are dropped.

    Raises:
        ValueError: It is not as RFC 3339 has it, with a zone, or Python has no such moment.
    """
    form = _TIME.fullmatch(text)
    if form is None:
        raise ValueError("no timestamp with a zone")
    text = text.upper()
    at = form.start("second")
    try:
        if form["second"] != "60":
            return datetime.fromisoformat(text)
        # a leap second, which Python does not have
        return datetime.fromisoformat(f"{text[:at]}59{text[at + 2 :]}") + timedelta(seconds=1)
    except (ValueError, OverflowError):
        # The error's own text quotes it.
        raise ValueError("no moment that Python has") from None


def show_time(moment: datetime) -> str:
    """An aware datetime as RFC 3339 has it.

    Raises:
        OverflowError: In UTC it would be before the first year or after the last.
    """
    offset = moment.utcoffset() or timedelta(0)
    # Zones of before 1900 have seconds, which the text has no place for.
    if offset % timedelta(minutes=1):
        moment = (moment.replace(tzinfo=None) - offset).replace(tzinfo=UTC)
    text = moment.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def checked(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes that make a valid event, without those that are empty."""
    if attributes.get("specversion") != SPECVERSION:
        is_missing = "specversion" not in attributes
        raise invalid(
            "it has no specversion" if is_missing else f"its specversion is not {SPECVERSION}"
        )
    for name in REQUIRED:
        if not isinstance(value := attributes.get(name), str) or not value:
            raise invalid(
                f"it has no {name}" if value in (None, "") else f"its {name} is not a string"
            )
    for name in OPTIONAL:
        if (value := attributes.get(name)) is None:
            continue
        if not isinstance(value, str):
            raise invalid(f"its {name} is not a string")
        if not value:
            del attributes[name]
        elif name == "time":
            try:
                parse_time(value)
            except ValueError as error:
                raise invalid(f"its time is {error}") from None
    for name, value in attributes.items():
        if name not in OWN_NAMES:
            _check_extension(name, value)
        elif (name in _WITH_A_FORM or not value.isascii()) and (
            problem := text_problem(name, value)
        ):
            raise invalid(f"its {name} {problem}")
    return attributes


@lru_cache(maxsize=1024)
def is_extension_name(name: str) -> bool:
    """Whether an extension may be called that. Longer names than 20 characters are allowed, though
    advised against.
    """
    return (
        name not in OWN_NAMES
        and name not in RESERVED
        and _EXTENSION_NAME.fullmatch(name) is not None
    )


def is_integer(value: int) -> bool:
    """Whether an attribute may be this integer."""
    return value in _INT32


@lru_cache(maxsize=1024)
def is_uri_reference(text: str) -> bool:
    """Whether a text is a URI, or a part of one that can be resolved: a colon in its first segment
    ends a scheme.
    """
    return _NOT_IN_URI.search(text) is None and _SCHEME.match(text) is not None


@lru_cache(maxsize=1024)
def is_media_type(text: str) -> bool:
    """Whether a text is a type and a subtype, with or without parameters."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def text_problem(name: str, value: str) -> str | None:
    """Why the text of an attribute is invalid, as words to put after its name.

    A ``dataschema`` may be relative, which the specification does not allow and writers do.
    """
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            # Half of a pair, which JSON may hold as an escape.
            return "cannot be written in UTF-8"
    if name in ("source", "dataschema") and not is_uri_reference(value):
        return "is not a URI reference (RFC 3986)"
    if name == "datacontenttype" and not is_media_type(value):
        return "is not a media type (RFC 2046), such as application/json"
    return None


def _check_extension(name: str, value: Any) -> None:
    """DecodeError: an event that was read has no such extension."""
    if not is_extension_name(name):
        raise invalid(
            f"{name[:_MOST_SHOWN]!r} is no name of an extension: lower-case letters and digits are"
        )
    match value:
        case str():
            if problem := text_problem(name, value):
                raise invalid(f"its {name[:_MOST_SHOWN]} {problem}")
            return
        case bool():
            return
        case int():
            if is_integer(value):
                return
            kind = "an integer of more than 32 bits"
        case float():
            kind = "a number with a fraction or an exponent"
        case dict():
            kind = "an object"
        case _:
            kind = "an array"
    raise invalid(f"its {name[:_MOST_SHOWN]} is {kind}: {_ALLOWED}")


def invalid(why: str) -> DecodeError:
    """The error of what says that it is an event; the text names attributes and quotes no value."""
    return DecodeError(f"not a valid CloudEvent: {why}")
