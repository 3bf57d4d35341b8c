"""Readers of types, compiled at start-up: by msgspec for its structs, by pydantic for everything else."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic_core import SchemaError, from_json

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.explain import explain_model, words_of
from reactive_kafka.formats.guard import Explain, Read
from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.typed_dicts import with_portable_typed_dicts
from reactive_kafka.formats.wanted import Wanted, parts_of

_ANYTHING = (Any, object)
_JSON_NAMES = {dict: "an object", list: "an array"}


class Model(NamedTuple):
    """How a type is read.

    Attributes:
        from_json: JSON bytes -> value of the type.
        from_value: The value that another format yields -> value of the type.
        explain: What either of them raises -> DecodeError.
    """

    from_json: Read
    from_value: Callable[[Any], object]
    explain: Explain


def model_for(wanted: Wanted) -> Model:
    """Compile the reader of *wanted*.

    Raises:
        FormatError: Neither pydantic nor msgspec can read it.
    """
    if not wanted.constrained and wanted.base in _ANYTHING:
        return Model(from_json, lambda value: value, _explain_plain)
    model = _msgspec_model(wanted) if _has_struct(wanted.annotation) else _pydantic_model(wanted)
    if wanted.annotation in _JSON_NAMES:  # twice as fast as a validator with nothing to check
        return model._replace(from_json=_plain_reader(wanted.annotation), explain=_explain_plain)
    return model


def _pydantic_model(wanted: Wanted) -> Model:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(with_portable_typed_dicts(wanted.annotation))
        words = words_of(adapter.core_schema)
    except (PydanticUserError, PydanticSchemaGenerationError, PydanticUndefinedAnnotation, SchemaError) as error:
        reason = str(error).partition("\n")[0]
        raise FormatError(f"{wanted.name} cannot be read from JSON: {reason}") from error
    return Model(adapter.validate_json, adapter.validate_python, explain_model(wanted.name, words))


def _msgspec_model(wanted: Wanted) -> Model:
    import msgspec

    try:
        decoder = msgspec.json.Decoder(wanted.annotation)
    except (TypeError, NameError) as error:
        raise FormatError(f"{wanted.name} cannot be read from JSON: {error}") from error

    def from_value(value: object) -> object:
        return msgspec.convert(value, wanted.annotation)

    return Model(decoder.decode, from_value, explain_model(wanted.name, ()))


def _has_struct(annotation: Any) -> bool:
    msgspec = sys.modules.get("msgspec")  # imported by now if there is any struct
    return msgspec is not None and any(
        isinstance(part, type) and typing.get_origin(part) is None and issubclass(part, msgspec.Struct)
        for part in parts_of(annotation)
    )


def _plain_reader(kind: type[dict[Any, Any]] | type[list[Any]]) -> Read:
    def read(value: bytes) -> object:
        document = from_json(value)
        if type(document) is not kind:
            raise DecodeError(f"does not fit {kind.__name__}: the JSON is not {_JSON_NAMES[kind]}")
        return document

    return read


def _explain_plain(error: Exception) -> DecodeError:
    if isinstance(error, DecodeError):
        return error
    return DecodeError(f"not valid JSON: {error}")  # the parser names the problem, line and column
