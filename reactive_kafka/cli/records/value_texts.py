"""Values as text in the formats of channels: written by ``produce``, read by ``tail``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from reactive_kafka.cli.errors import WrongUsage
from reactive_kafka.cli.records.record_json import bytes_of_json, json_bytes, read_json
from reactive_kafka.errors import EncodeError
from reactive_kafka.formats import SchemaSource, decoder_for, encoder_for, framed_decoder
from reactive_kafka.formats.cloudevents_read import ValueAndHeaders
from reactive_kafka.formats.encoders import write_json
from reactive_kafka.formats.format_names import EVENTS, FLOATS, INTEGERS, REGISTERED_FORMATS
from reactive_kafka.records import RawRecord


def refuse_events(name: str | None) -> None:
    """Raise WrongUsage for CloudEvents, which are whole records and not values."""
    if name == EVENTS:
        raise WrongUsage(
            f"the format {EVENTS!r} is of whole records: use --json, which has their headers"
        )


def line_writer(name: str | None, source: SchemaSource) -> Callable[[bytes], bytes | None]:
    """Return what turns a line into the value of a record.

    Without a format, and with ``bytes``, ``string`` and ``json``, the value is the line itself. The
    last two check it first. The function raises ValueError, and SchemaMissing for the formats with
    schemas.

    Raises:
        WrongUsage: The format is of whole records.
        FormatError: The format is unknown.
    """
    refuse_events(name)
    encode = encoder_for(name, source)
    if name in (None, "bytes"):
        return bytes
    if name == "json":
        return _checked_json
    if name == "string":
        return lambda line: encode(_text(line))
    if name in INTEGERS:
        return lambda line: encode(_number(line, int))
    if name in FLOATS:
        return lambda line: encode(_number(line, float))
    if name in REGISTERED_FORMATS:
        return lambda line: encode(read_json(line))
    # A function of the user's own.
    return lambda line: encode(_text(line))


def json_writer(name: str | None, source: SchemaSource) -> Callable[[Any], bytes | None]:
    """Return what turns the value in an object of ``produce --json`` into bytes.

    Without a format it is text, or base64. With one it is the value itself. The function raises
    ValueError, and SchemaMissing for the formats with schemas.

    Raises:
        WrongUsage: The format is of whole records.
        FormatError: The format is unknown.
    """
    refuse_events(name)
    encode = encoder_for(name, source)
    if name is None:
        return lambda found: bytes_of_json(found, "value")
    if name == "bytes":
        return lambda found: encode(bytes_of_json(found, "value"))
    return encode


def _checked_json(line: bytes) -> bytes:
    read_json(line)
    return line


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise EncodeError(f"not UTF-8: {error.reason} at byte {error.start}") from None


def _number(line: bytes, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(line)
    except ValueError:
        raise EncodeError(f"expected a number, which {line[:40]!r} is not") from None


def value_reader(name: str | None, source: SchemaSource) -> Callable[[RawRecord], object]:
    """Return what reads the value of a record. Without a format it is the bytes.

    The function raises DecodeError, and SchemaMissing for the formats with schemas.

    Raises:
        WrongUsage: The format is of whole records.
        FormatError: The format is unknown.
    """
    refuse_events(name)
    decode = None if name is None else decoder_for(Any, name, source)
    if decode is None:
        return lambda record: record.value
    if name not in REGISTERED_FORMATS:
        return lambda record: None if record.value is None else decode(record.value)
    # A header may name the schema of the value.
    read_framed = framed_decoder(decode)

    def read(record: RawRecord) -> object:
        if record.value is None:
            return None
        return read_framed(ValueAndHeaders(record.value, record.headers))

    return read


def as_line(value: object) -> bytes:
    """Return a value as what ``tail`` prints: bytes and text as they are, the rest as JSON."""
    if value is None:
        return b"null"
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return _number_name(value).encode()
    return _json_text(value)


def as_json_data(value: object) -> Any:
    """Return a value as JSON data, for ``tail --json``."""
    if value is None or isinstance(value, bytes):
        return json_bytes(value)
    if isinstance(value, str):
        return value
    return json.loads(_json_text(value))


def _json_text(value: object) -> bytes:
    """Write JSON, also of decoded values that JSON cannot express: their names stand for them."""
    try:
        data = write_json(value)
    except EncodeError:
        data = write_json(_expressed(value))
    return data or b"null"


def _expressed(value: object) -> object:
    """Return a value with text in place of NaN, infinities, and bytes that are not UTF-8."""
    if isinstance(value, float) and not math.isfinite(value):
        return _number_name(value)
    if isinstance(value, bytes):
        return json_bytes(value)
    if isinstance(value, Mapping):
        return {key: _expressed(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_expressed(item) for item in value]
    return value


def _number_name(number: float) -> str:
    """Return the name of a number that JSON does not have, as Protobuf's JSON spells it."""
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
