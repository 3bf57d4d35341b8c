"""CloudEvents 1.0: the event as a value, and the rules for its attributes. Knows no Kafka.

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
# Without specversion, which has only one value.
REQUIRED = ("id", "source", "type")
OPTIONAL = ("subject", "time", "datacontenttype", "dataschema")
OWN_NAMES = frozenset(("specversion", *REQUIRED, *OPTIONAL))
# Members of the JSON format that are not attributes.
RESERVED = frozenset(("data", "data_base64"))
JSON_TYPE = "application/json"
# The content type of an envelope begins with this.
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
# Attributes whose text must have a certain form.
_WITH_A_FORM = frozenset(("source", "dataschema", "datacontenttype"))
_MEDIA_TYPE = re.compile(rf"\s*{_TOKEN}/{_TOKEN}\s*(?:;.*)?", re.DOTALL)
# Unescaped characters of any script are allowed, as in Java's SDK. A second "#" is not.
_NOT_IN_URI = re.compile(r'[\x00-\x20"<>\\^`{|}\x7f-\xa0\s]|%(?![0-9A-Fa-f]{2})|#.*#')
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|[^:/?#]*(?:[/?#]|\Z)")
_MOST_SHOWN = 40
_ALLOWED = "a string, a boolean or an integer of 32 bits is allowed"
# The official SDK's package, which is never imported here.
_SDK = "cloudevents"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent:
    """A CloudEvent 1.0, read (``message.cloud_event``) or to be sent by a handler or an emitter.

    An event to be sent may leave out ``type`` and ``source`` if the outgoing channel's
    ``cloud_events`` table has them. It may leave out ``id`` and ``time``, too: the id is random
    then, and the time that of sending. ``dataclasses.replace(event, ...)`` passes on an event that
    was read. Give it ``id=""`` if it becomes another event.

    Args:
        data: The content of the event: the message's payload, or the value that the channel's
            serializer writes. Bytes are written unchanged.
        type: What kind of event it is: ``com.example.order.placed``.
        source: The context in which it happened, a URI reference.
        id: Together with ``source`` it identifies the event.
        subject: What it is about, within the source.
        time: When it happened, an aware datetime.
        datacontenttype: The media type of the data. None in an event to be sent: it follows from
            the serializer.
        dataschema: The URI of the data's schema.
        extensions: Further attributes, by names of lower-case letters and digits: strings,
            booleans, integers of 32 bits, and in an event to be sent also bytes and aware
            datetimes. Those of an event that was read in binary mode are strings.
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
    for method in ("get_attributes", "get_data"):
        if not callable(getattr(kind, method, None)):
            return False
    return any(base.__module__.partition(".")[0] == _SDK for base in kind.__mro__)


is_event_type: Callable[[Any], bool] = lru_cache(maxsize=1024)(_is_event_type)
"""Whether objects of a class are events: ours, or those of the official SDK, version 1 or 2."""


def is_json(datacontenttype: str | None) -> bool:
    """Return whether data of this media type is JSON. The JSON format needs no type for it."""
    return datacontenttype is None or _JSON.fullmatch(datacontenttype) is not None


def parse_time(text: str) -> datetime:
    """Return the moment of a timestamp, to the microsecond.

    Raises:
        ValueError: The text is not in the form of RFC 3339 with a zone, or Python has no such
            moment.
    """
    form = _TIME.fullmatch(text)
    if form is None:
        raise ValueError("no timestamp with a zone")
    text = text.upper()
    try:
        if form["second"] != "60":
            return datetime.fromisoformat(text)
        # Python does not have leap seconds: read the second before it.
        start = form.start("second")
        earlier = f"{text[:start]}59{text[start + 2 :]}"
        return datetime.fromisoformat(earlier) + timedelta(seconds=1)
    except (ValueError, OverflowError):
        # The cause is left out, because its text quotes the record.
        raise ValueError("no moment that Python has") from None


def show_time(moment: datetime) -> str:
    """Return an aware datetime in the form of RFC 3339.

    Raises:
        OverflowError: In UTC it would be before the first year or after the last.
    """
    offset = moment.utcoffset() or timedelta(0)
    # Offsets from before 1900 have seconds, which RFC 3339 does not have.
    if offset % timedelta(minutes=1):
        moment = (moment.replace(tzinfo=None) - offset).replace(tzinfo=UTC)
    text = moment.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def valid_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return *attributes* without the empty optional ones.

    Raises:
        DecodeError: They do not make a valid event.
    """
    if "specversion" not in attributes:
        raise invalid("it has no specversion")
    if attributes["specversion"] != SPECVERSION:
        raise invalid(f"its specversion is not {SPECVERSION}")
    for name in REQUIRED:
        value = attributes.get(name)
        if value is None or value == "":
            raise invalid(f"it has no {name}")
        if not isinstance(value, str):
            raise invalid(f"its {name} is not a string")
    for name in OPTIONAL:
        value = attributes.get(name)
        if value is None:
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
        elif name in _WITH_A_FORM or not value.isascii():
            problem = text_problem(name, value)
            if problem:
                raise invalid(f"its {name} {problem}")
    return attributes


@lru_cache(maxsize=1024)
def is_extension_name(name: str) -> bool:
    """Return whether an extension may have this name.

    Names of more than 20 characters are allowed; the specification advises against them.
    """
    return (
        name not in OWN_NAMES
        and name not in RESERVED
        and _EXTENSION_NAME.fullmatch(name) is not None
    )


def is_integer(value: int) -> bool:
    """Return whether an attribute may be this integer."""
    return value in _INT32


@lru_cache(maxsize=1024)
def is_uri_reference(text: str) -> bool:
    """Return whether a text is a URI, or a relative reference.

    A colon in its first segment must end a scheme.
    """
    return _NOT_IN_URI.search(text) is None and _SCHEME.match(text) is not None


@lru_cache(maxsize=1024)
def is_media_type(text: str) -> bool:
    """Return whether a text is a type and a subtype, with or without parameters."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def text_problem(name: str, value: str) -> str | None:
    """Return why the text of an attribute is invalid, in words that follow the attribute's name.

    A ``dataschema`` may be relative. The specification forbids that, but writers do it.
    """
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            # A lone surrogate, which JSON can hold as an escape.
            return "cannot be written in UTF-8"
    if name in ("source", "dataschema") and not is_uri_reference(value):
        return "is not a URI reference (RFC 3986)"
    if name == "datacontenttype" and not is_media_type(value):
        return "is not a media type (RFC 2046), such as application/json"
    return None


def _check_extension(name: str, value: Any) -> None:
    """Raise DecodeError if an event that was read cannot have this extension."""
    if not is_extension_name(name):
        raise invalid(
            f"{name[:_MOST_SHOWN]!r} is not a valid extension name: only lower-case letters and "
            "digits are allowed"
        )
    match value:
        case str():
            problem = text_problem(name, value)
            if problem:
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
    """Return the error for an invalid event. *why* must not quote values."""
    return DecodeError(f"not a valid CloudEvent: {why}")
