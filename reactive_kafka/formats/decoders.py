"""The decoder of a channel, chosen once from the handler's annotation and the configured
deserializer.

Plain values are text (strict UTF-8), bytes, and numbers, big-endian as Kafka's Java client writes
them.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.cloudevents_read import (
    Parts,
    RecordDecoder,
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
    """A signed integer of 4 or 8 bytes."""
    if len(value) not in (4, 8):
        raise _wrong_length("an integer", value)
    return int.from_bytes(value, "big", signed=True)


def read_float(value: bytes) -> float:
    """An IEEE 754 number of 4 or 8 bytes; NaN and infinities included."""
    if len(value) not in _FLOATS:
        raise _wrong_length("a float", value)
    return float(_FLOATS[len(value)].unpack(value)[0])


def _wrong_length(what: str, value: bytes) -> DecodeError:
    return DecodeError(f"{what} has 4 or 8 bytes on the wire, this value has {len(value)}")


def explain_plain(error: Exception) -> DecodeError:
    """A reader's own DecodeError, or why it is none. The original is no cause: it holds the whole
    record.
    """
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"not UTF-8 text: {error.reason} at byte {error.start}")
    return (
        error
        if isinstance(error, DecodeError)
        else DecodeError(f"{type(error).__name__} while reading it")
    )


_RAW = (bytes, bytearray, memoryview)
_REFUSED_OF_SCHEMAS: dict[str, tuple[type, ...]] = {
    "avro": (bytearray, memoryview),
    "json-schema": _RAW,
    "protobuf": (*_RAW, str),
}
_GIVEN_BY_SCHEMAS = {
    "avro": "what the schema says, and its bytes as bytes",
    "json-schema": "what the JSON holds, never bytes",
    "protobuf": "a message or its fields, never text or bytes alone",
}
_PLAIN: dict[str, tuple[Read, type]] = {
    "bytes": (bytes, bytes),
    "string": (bytes.decode, str),
    **dict.fromkeys(INTEGERS, (read_integer, int)),
    **dict.fromkeys(FLOATS, (read_float, float)),
}
"""Format -> its reader, and the type that this yields."""


def decoder_for(
    payload_type: object, deserializer: str | None, source: SchemaSource | None = None
) -> Decoder | None:
    """The function that turns a record's bytes into what the handler expects.

    Args:
        payload_type: The annotation; ``Any`` (or none) takes whatever the format yields.
        deserializer: A format's name or ``module:function``. None: the annotation decides (bytes,
            str, else JSON).
        source: Where the schemas of a registry come from, for the formats that have them.

    Returns:
        Bytes or None -> value, raising only what :func:`guarded` lists. None for plain bytes: the
        value is passed on as it is, None of a tombstone included (check :func:`refused_tombstone`).

    Raises:
        FormatError: The format is unknown, cannot be imported, or cannot yield what the annotation
            asks for.
        MissingExtraError: The format needs a package that is not installed.
    """
    if deserializer == EVENTS:
        return value_decoder(record_decoder_for(payload_type, deserializer))
    asked = payload_type_of(payload_type)
    name = deserializer or (
        "bytes" if asked.base is bytes else "string" if asked.base is str else "json"
    )
    if ":" in name:
        return _function_decoder(name, asked)
    if name in REGISTERED_FORMATS and source is not None:
        if asked.base in _REFUSED_OF_SCHEMAS[name]:
            raise _contradiction(name, _GIVEN_BY_SCHEMAS[name], asked)
        return registered_decoder(name, asked, source)
    # NaN and Infinity are read, because Python's json writes them; we never do.
    if name == "json":
        if asked.base in _RAW:
            raise _contradiction(name, "what the JSON holds, never bytes", asked)
        return _model_for(asked).decoder(asked)
    if name not in _PLAIN:
        raise unknown_format(name)
    read, gives = _PLAIN[name]
    if not _fits(gives, asked.base):
        raise _contradiction(name, gives.__name__, asked)
    return _typed(read, asked, gives) if gives is not bytes or asked.constrained else None


def record_decoder_for(
    payload_type: object, deserializer: str | None, decode: Decoder | None = None
) -> RecordDecoder:
    """What reads records with headers, which may be CloudEvents; *decode* is what
    :func:`decoder_for` made of the same.

    Raises:
        FormatError: As :func:`decoder_for`.
    """
    if deserializer == EVENTS:
        decode = decoder_for(payload_type, None)
    read = record_decoder(decode, payload_type, deserializer)
    if deserializer not in REGISTERED_FORMATS:
        return read
    # Values, and the data of events in binary mode, whose schema is named by a header.
    return lambda record: read(Parts(framed(record.value, record.headers), record.headers))


def framed_decoder(decode: Decoder) -> RecordDecoder:
    """What reads records whose schema may be named by a header, and none of which counts as a
    CloudEvent.
    """
    return lambda record: decode(framed(record.value, record.headers))


def refused_tombstone(payload_type: object) -> str | None:
    """Why a handler with this annotation does not take a record without a value, as None; None if
    it does.
    """
    return payload_type_of(payload_type).tombstone_refusal


def _typed(read: Read, asked: PayloadType, gives: type) -> Decoder:
    """Read, and also validate where the annotation asks for more than the bare type that the format
    yields.
    """
    if not asked.constrained and asked.base in (Any, object, gives):
        return guarded(read, asked, explain_plain)
    model = _model_for(asked)

    def read_and_validate(value: bytes) -> object:
        return model.from_value(read(value))

    def explain_either(error: Exception) -> DecodeError:
        return (
            explain_plain(error) if isinstance(error, UnicodeDecodeError) else model.explain(error)
        )

    return guarded(read_and_validate, asked, explain_either)


def _model_for(asked: PayloadType) -> Model:
    # Which imports pydantic.
    from reactive_kafka.formats.models import model_for

    return model_for(asked)


def _function_decoder(path: str, asked: PayloadType) -> Decoder:
    """Call the user's function and check its result against the annotation."""
    function = format_function(path)
    from_value, explain = _model_or_class(path, asked)

    def read(value: bytes) -> object:
        try:
            result = function(value)
        except (DecodeError, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # User code may raise anything; it becomes the cause.
            raise DecodeError(f"{path} raised {type(error).__name__}") from error
        return from_value(result)

    return guarded(read, asked, explain)


def _model_or_class(path: str, asked: PayloadType) -> tuple[Callable[[Any], object], Explain]:
    """How the result of the function at *path* is checked: by isinstance for a class that no
    validator knows.
    """
    try:
        model = _model_for(asked)
        return model.from_value, model.explain
    except FormatError:
        if not isinstance(asked.base, type):
            raise
    kind: type = asked.base

    def instance(value: object) -> object:
        if isinstance(value, kind) or (value is None and asked.accepts_none):
            return value
        raise DecodeError(
            f"{path} returned {type(value).__name__}, but the handler asks for {asked.name}"
        )

    return instance, explain_plain


def _fits(gives: type, base: Any) -> bool:
    """Whether a value of type *gives* can be, or validate to, a *base*."""
    if base in (Any, object):
        return True
    if is_union(base):
        return any(_fits(gives, payload_type_of(member).base) for member in typing.get_args(base))
    if typing.get_origin(base) is Literal:
        return any(type(value) is gives for value in typing.get_args(base))
    if gives is int and base is float:
        # Python takes an int where a float is expected.
        return True
    return isinstance(base, type) and issubclass(base, gives) and base is not bool


def _contradiction(name: str, gives: str, asked: PayloadType) -> FormatError:
    return FormatError(
        f"the deserializer {name!r} yields {gives}, but the handler asks for {asked.name}: "
        "change the annotation or the deserializer (without a deserializer the annotation decides)"
    )
