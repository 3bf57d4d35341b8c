"""The format ``json``, for every type that pydantic or msgspec knows."""

from __future__ import annotations

import re
import sys
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from reactive_kafka.errors import EncodeError
from reactive_kafka.formats.guard import Decoder, guarded
from reactive_kafka.formats.models import model_for
from reactive_kafka.formats.wanted import Wanted

_KNOWN = re.compile(
    r"no JSON form for [\w.]+|Circular reference|Maximum serialization depth exceeded"
    r"|surrogates not allowed|invalid utf-8"
)


def json_decoder(wanted: Wanted) -> Decoder:
    """A decoder of JSON. It reads NaN and Infinity, because Python's json writes them; we never do."""
    model = model_for(wanted)
    return guarded(model.from_json, wanted, model.explain)


def write_json(value: object) -> bytes | None:
    """Compact JSON of models, dataclasses, structs, dates and containers of them; fields under their aliases.

    NaN in plain data is rejected; in a pydantic model it is written as the model is configured (default: ``null``).

    Raises:
        EncodeError: A part has no JSON form: an unknown type, NaN, a cycle.
    """
    if value is None:
        return None
    try:
        data = to_json(value, fallback=_struct_as_builtins)
    except PydanticSerializationError as error:
        raise _refused(value, error) from error
    except Exception as error:  # a property or serializer of the user's own may raise anything
        raise EncodeError(f"{type(value).__name__} cannot be written as JSON: {type(error).__name__}") from error
    if (b"NaN" in data or b"Infinity" in data) and not _is_strict(data):
        raise EncodeError(f"{type(value).__name__} cannot be written as JSON: NaN and infinities have no JSON form")
    return data


def _struct_as_builtins(value: Any) -> Any:
    msgspec = sys.modules.get("msgspec")  # imported by now if there is any struct
    if msgspec is not None and isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _refused(value: object, error: PydanticSerializationError) -> EncodeError:
    known = _KNOWN.search(str(error))  # the whole text may quote the value
    reason = known[0] if known else type(error).__name__
    return EncodeError(f"{type(value).__name__} cannot be written as JSON: {reason}")


def _is_strict(data: bytes) -> bool:
    try:
        from_json(data, allow_inf_nan=False)
    except ValueError:
        return False
    return True
