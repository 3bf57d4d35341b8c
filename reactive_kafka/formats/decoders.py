"""The decoder of a channel, chosen once from the handler's annotation and the configured deserializer."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Literal

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.custom import format_function
from reactive_kafka.formats.guard import Decoder, Explain, Read, guarded, tombstone_refusal
from reactive_kafka.formats.json import json_decoder
from reactive_kafka.formats.models import model_for
from reactive_kafka.formats.names import FLOATS, INTEGERS, FormatError, unusable
from reactive_kafka.formats.number import explain_number, read_float, read_integer
from reactive_kafka.formats.text import explain_text, read_text
from reactive_kafka.formats.wanted import Wanted, is_union, wanted

__all__ = ["Decoder", "accepts_tombstone", "decoder_for", "refused_tombstone"]

_RAW = (bytes, bytearray, memoryview)


def decoder_for(payload_type: object, deserializer: str | None) -> Decoder | None:
    """The function that turns a record's bytes into what the handler expects.

    Args:
        payload_type: The annotation; ``Any`` (or none) takes whatever the format yields.
        deserializer: A format's name or ``module:function``. None: the annotation decides (bytes, str, else JSON).

    Returns:
        Bytes or None -> value, raising only what :func:`guarded` lists. None for plain bytes: the value is passed on
        as it is, None of a tombstone included (check :func:`refused_tombstone`).

    Raises:
        FormatError: The format is unknown, cannot be imported, or cannot yield what the annotation asks for.
    """
    asked = wanted(payload_type)
    name = deserializer or _format_of(asked)
    if ":" in name:
        return _function_decoder(name, asked)
    if name == "json":
        if asked.base in _RAW:
            raise _contradiction(name, "what the JSON holds, never bytes", asked)
        return json_decoder(asked)
    if name == "bytes":
        _check(name, bytes, asked)
        return _typed(bytes, asked, explain_text, bytes) if asked.constrained else None
    if name == "string":
        _check(name, str, asked)
        return _typed(read_text, asked, explain_text, str)
    if name in INTEGERS:
        _check(name, int, asked)
        return _typed(read_integer, asked, explain_number, int)
    if name in FLOATS:
        _check(name, float, asked)
        return _typed(read_float, asked, explain_number, float)
    raise unusable(name)


def accepts_tombstone(payload_type: object) -> bool:
    """Whether a handler with this annotation takes a record without a value, as None."""
    return wanted(payload_type).accepts_none


def refused_tombstone(payload_type: object) -> str | None:
    """Why a handler with this annotation does not take a record without a value; None if it does."""
    return None if accepts_tombstone(payload_type) else tombstone_refusal(wanted(payload_type).name)


def _format_of(asked: Wanted) -> str:
    if asked.base is bytes:
        return "bytes"
    return "string" if asked.base is str else "json"


def _typed(read: Read, asked: Wanted, explain: Explain, gives: type) -> Decoder:
    """Read, and also validate where the annotation asks for more than the bare type that the format yields."""
    if not asked.constrained and asked.base in (Any, object, gives):
        return guarded(read, asked, explain)
    model = model_for(asked)

    def read_and_validate(value: bytes) -> object:
        return model.from_value(read(value))

    def explain_either(error: Exception) -> DecodeError:
        return explain(error) if isinstance(error, UnicodeDecodeError) else model.explain(error)

    return guarded(read_and_validate, asked, explain_either)


def _function_decoder(path: str, asked: Wanted) -> Decoder:
    """Call the user's function and check its result against the annotation."""
    function = format_function(path)
    from_value, explain = _model_or_class(path, asked)

    def read(value: bytes) -> object:
        try:
            result = function(value)
        except (DecodeError, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # user code may raise anything; it becomes the cause
            raise DecodeError(f"{path} raised {type(error).__name__}") from error
        return from_value(result)

    return guarded(read, asked, explain)


def _model_or_class(path: str, asked: Wanted) -> tuple[Callable[[Any], object], Explain]:
    """How the result of the function at *path* is checked: by isinstance for a class that no validator knows."""
    try:
        model = model_for(asked)
    except FormatError:
        if not isinstance(asked.base, type):
            raise
    else:
        return model.from_value, model.explain
    kind: type = asked.base

    def instance(value: object) -> object:
        if isinstance(value, kind) or (value is None and asked.accepts_none):
            return value
        raise DecodeError(f"{path} returned {type(value).__name__}, but the handler asks for {asked.name}")

    return instance, explain_number


def _check(name: str, gives: type, asked: Wanted) -> None:
    if not _fits(gives, asked.base):
        raise _contradiction(name, gives.__name__, asked)


def _fits(gives: type, base: Any) -> bool:
    """Whether a value of type *gives* can be, or validate to, a *base*."""
    if base in (Any, object):
        return True
    if is_union(base):
        return any(_fits(gives, wanted(member).base) for member in typing.get_args(base))
    if typing.get_origin(base) is Literal:
        return any(type(value) is gives for value in typing.get_args(base))
    if not isinstance(base, type):
        return False
    if gives is int and base is float:
        return True  # Python takes an int where a float is expected
    return issubclass(base, gives) and base is not bool


def _contradiction(name: str, gives: str, asked: Wanted) -> FormatError:
    return FormatError(
        f"the deserializer {name!r} yields {gives}, but the handler asks for {asked.name}: "
        "change the annotation or the deserializer (without a deserializer the annotation decides)"
    )
