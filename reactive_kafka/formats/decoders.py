"""Chooses the decoder of a channel, from the handler's annotation and the deserializer.

Values of the formats without a schema are text (strict UTF-8), bytes, JSON, and numbers, which are
big-endian as Kafka's Java client writes them.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.cloudevents_read import (
    RecordDecoder,
    ValueAndHeaders,
    record_decoder,
    value_decoder,
)
from reactive_kafka.formats.format_names import (
    EVENTS,
    FLOATS,
    INTEGERS,
    REGISTERED_FORMATS,
    FormatError,
    unknown_format,
)
from reactive_kafka.formats.guarded_decoder import Decoder, Explain, Read, guarded
from reactive_kafka.formats.payload_type import PayloadType, is_union, payload_type_of
from reactive_kafka.formats.registered.channel_schemas import SchemaSource
from reactive_kafka.formats.registered.codecs import registered_decoder
from reactive_kafka.formats.registered.wire_format import framed
from reactive_kafka.formats.user_objects import format_function

if TYPE_CHECKING:
    from reactive_kafka.formats.models import Model

_FLOATS = {4: struct.Struct(">f"), 8: struct.Struct(">d")}


def read_integer(value: bytes) -> int:
    """Read a signed integer of 4 or 8 bytes."""
    if len(value) not in (4, 8):
        raise _wrong_length("an integer", value)
    return int.from_bytes(value, "big", signed=True)


def read_float(value: bytes) -> float:
    """Read an IEEE 754 number of 4 or 8 bytes, NaN and infinities included."""
    if len(value) not in _FLOATS:
        raise _wrong_length("a float", value)
    return float(_FLOATS[len(value)].unpack(value)[0])


def _wrong_length(what: str, value: bytes) -> DecodeError:
    return DecodeError(f"{what} has 4 or 8 bytes on the wire, this value has {len(value)}")


def explain_plain(error: Exception) -> DecodeError:
    """Return the DecodeError for an error of a reader of plain values.

    The error is not its cause: a UnicodeDecodeError holds the whole record.
    """
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"not UTF-8 text: {error.reason} at byte {error.start}")
    if isinstance(error, DecodeError):
        return error
    return DecodeError(f"{type(error).__name__} while reading it")


_RAW = (bytes, bytearray, memoryview)
# Format with a schema -> the types of a handler that it can never yield.
_REFUSED_BY_FORMAT: dict[str, tuple[type, ...]] = {
    "avro": (bytearray, memoryview),
    "json-schema": _RAW,
    "protobuf": (*_RAW, str),
}
# The same formats -> what they yield, for the error.
_YIELDED_BY_FORMAT = {
    "avro": "what the schema says, and its bytes as bytes",
    "json-schema": "what the JSON holds, never bytes",
    "protobuf": "a message or its fields, never text or bytes alone",
}
# Plain format -> its reader, and the type that the reader yields.
_PLAIN: dict[str, tuple[Read, type]] = {
    "bytes": (bytes, bytes),
    "string": (bytes.decode, str),
    **dict.fromkeys(INTEGERS, (read_integer, int)),
    **dict.fromkeys(FLOATS, (read_float, float)),
}


def decoder_for(
    annotation: object, deserializer: str | None, source: SchemaSource | None = None
) -> Decoder | None:
    """Return the function that turns a record's bytes into what the handler expects.

    Args:
        annotation: The handler's annotation; ``Any`` (or none) takes whatever the format yields.
        deserializer: A format's name or ``module:function``. None: the annotation decides (bytes,
            str, otherwise JSON).
        source: Where the schemas of a registry come from, for the formats that have them.

    Returns:
        Bytes or None -> value, which raises only what :func:`guarded` lists. None for plain bytes:
        the value is passed on unchanged, also the None of a tombstone (check
        :func:`refused_tombstone`).

    Raises:
        FormatError: The format is unknown, cannot be imported, or cannot yield what the annotation
            asks for.
        MissingExtraError: The format needs a package that is not installed.
    """
    if deserializer == EVENTS:
        return value_decoder(record_decoder_for(annotation, deserializer))
    payload_type = payload_type_of(annotation)
    name = deserializer or _format_of(payload_type)
    if ":" in name:
        return _function_decoder(name, payload_type)
    if name in REGISTERED_FORMATS and source is not None:
        if payload_type.base in _REFUSED_BY_FORMAT[name]:
            raise _contradiction(name, _YIELDED_BY_FORMAT[name], payload_type)
        return registered_decoder(name, payload_type, source)
    if name == "json":
        if payload_type.base in _RAW:
            raise _contradiction(name, "what the JSON holds, never bytes", payload_type)
        # It reads NaN and Infinity, because Python's json writes them. We never write them.
        return _model_for(payload_type).decoder(payload_type)
    if name not in _PLAIN:
        raise unknown_format(name)
    read, yielded = _PLAIN[name]
    if not _fits(yielded, payload_type.base):
        raise _contradiction(name, yielded.__name__, payload_type)
    if yielded is bytes and not payload_type.is_constrained:
        return None
    return _plain_decoder(read, payload_type, yielded)


def _format_of(payload_type: PayloadType) -> str:
    """Return the format of a handler without a deserializer."""
    if payload_type.base is bytes:
        return "bytes"
    if payload_type.base is str:
        return "string"
    return "json"


def record_decoder_for(
    annotation: object, deserializer: str | None, decode: Decoder | None = None
) -> RecordDecoder:
    """Return what reads records with headers, which may be CloudEvents.

    Args:
        annotation: The handler's annotation.
        deserializer: As for :func:`decoder_for`.
        decode: What :func:`decoder_for` has returned for them.

    Raises:
        FormatError: As :func:`decoder_for`.
    """
    if deserializer == EVENTS:
        decode = decoder_for(annotation, None)
    read = record_decoder(decode, annotation, deserializer)
    if deserializer not in REGISTERED_FORMATS:
        return read
    # A header may name the schema of a value, and of the data of an event in binary mode.
    return lambda record: read(
        ValueAndHeaders(framed(record.value, record.headers), record.headers)
    )


def framed_decoder(decode: Decoder) -> RecordDecoder:
    """Return what reads records whose schema a header may name. None counts as a CloudEvent."""
    return lambda record: decode(framed(record.value, record.headers))


def refused_tombstone(annotation: object) -> str | None:
    """Return why a handler with this annotation does not take tombstones; None: it does."""
    return payload_type_of(annotation).tombstone_refusal


def _plain_decoder(read: Read, payload_type: PayloadType, yielded: type) -> Decoder:
    """Return the decoder of a plain format.

    It validates if the annotation asks for more than the type that the reader yields.
    """
    if not payload_type.is_constrained and payload_type.base in (Any, object, yielded):
        return guarded(read, payload_type, explain_plain)
    model = _model_for(payload_type)

    def read_and_validate(value: bytes) -> object:
        return model.from_value(read(value))

    def explain(error: Exception) -> DecodeError:
        if isinstance(error, UnicodeDecodeError):
            return explain_plain(error)
        return model.explain(error)

    return guarded(read_and_validate, payload_type, explain)


def _model_for(payload_type: PayloadType) -> Model:
    # Imported here because it imports pydantic, which handlers of bytes and text do not need.
    from reactive_kafka.formats.models import model_for

    return model_for(payload_type)


def _function_decoder(path: str, payload_type: PayloadType) -> Decoder:
    """Return a decoder that calls the user's function, and checks what it returns."""
    function = format_function(path)
    check, explain = _result_check(path, payload_type)

    def read(value: bytes) -> object:
        try:
            result = function(value)
        except (DecodeError, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # The user's code may raise anything. It becomes the cause.
            raise DecodeError(f"{path} raised {type(error).__name__}") from error
        return check(result)

    return guarded(read, payload_type, explain)


def _result_check(path: str, payload_type: PayloadType) -> tuple[Callable[[Any], object], Explain]:
    """Return how the result of the function at *path* is checked, and how errors are explained.

    A class that no validator knows is checked by isinstance.
    """
    try:
        model = _model_for(payload_type)
        return model.from_value, model.explain
    except FormatError:
        if not isinstance(payload_type.base, type):
            raise
    kind: type = payload_type.base

    def check_instance(value: object) -> object:
        if isinstance(value, kind) or (value is None and payload_type.accepts_none):
            return value
        raise DecodeError(
            f"{path} returned {type(value).__name__}, but the handler asks for {payload_type.name}"
        )

    return check_instance, explain_plain


def _fits(yielded: type, base: Any) -> bool:
    """Return whether a value of the type *yielded* can be, or validate to, a *base*."""
    if base in (Any, object):
        return True
    if is_union(base):
        members = typing.get_args(base)
        return any(_fits(yielded, payload_type_of(member).base) for member in members)
    if typing.get_origin(base) is Literal:
        return any(type(value) is yielded for value in typing.get_args(base))
    if yielded is int and base is float:
        # Python takes an int where a float is expected.
        return True
    return isinstance(base, type) and issubclass(base, yielded) and base is not bool


def _contradiction(name: str, yielded: str, payload_type: PayloadType) -> FormatError:
    return FormatError(
        f"the deserializer {name!r} yields {yielded}, but the handler asks for "
        f"{payload_type.name}: change the annotation or the deserializer (without a deserializer "
        "the annotation decides)"
    )
