"""Readers of types, compiled at start-up: by msgspec for its structs, by pydantic for everything else."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import typing_extensions  # pydantic depends on it
from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic_core import SchemaError, from_json

from reactive_kafka.errors import DecodeError
from reactive_kafka.formats.explain import Explain, Read, explain_model, words_of
from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.wanted import Wanted, parts_of

_ANYTHING = (Any, object)
_QUALIFIERS: dict[Any, bool] = {
    **dict.fromkeys((typing.Required, typing_extensions.Required), True),
    **dict.fromkeys((typing.NotRequired, typing_extensions.NotRequired), False),
}
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
    """Compile the reader of *wanted*; a FormatError if neither pydantic nor msgspec can read it."""
    if not wanted.constrained and wanted.base in _ANYTHING:
        return Model(from_json, lambda value: value, _explain_plain)
    model = _msgspec_model(wanted) if _has_struct(wanted.annotation) else _pydantic_model(wanted)
    if wanted.annotation in _JSON_NAMES:  # twice as fast as a validator with nothing to check
        return model._replace(from_json=_plain_reader(wanted.annotation), explain=_explain_plain)
    return model


def _pydantic_model(wanted: Wanted) -> Model:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(_portable(wanted.annotation))
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
    return Model(decoder.decode, partial(msgspec.convert, type=wanted.annotation), explain_model(wanted.name, ()))


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


def _portable(annotation: Any) -> Any:
    """*annotation* with its TypedDicts of ``typing``, which pydantic rejects before 3.12, as typing_extensions'."""
    return annotation if sys.version_info >= (3, 12) else _replaced(annotation, {})


def _replaced(annotation: Any, made: dict[Any, Any]) -> Any:
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _remade(annotation, made)
    arguments = typing.get_args(annotation)
    new = tuple(_replaced(argument, made) for argument in arguments)
    if all(after is before for after, before in zip(new, arguments, strict=True)):
        return annotation
    if typing.get_origin(annotation) is typing.Annotated:
        return typing.Annotated[new[0], *annotation.__metadata__]
    if hasattr(annotation, "copy_with"):  # typing.List[...], Optional[...]
        return annotation.copy_with(new)
    origin = typing.get_origin(annotation)
    return typing.Union[new] if origin is types.UnionType else origin[new]  # noqa: UP007


def _remade(typed_dict: Any, made: dict[Any, Any]) -> Any:
    if typed_dict in made:
        return made[typed_dict]
    made[typed_dict] = typed_dict  # a recursive one keeps its inner self, which pydantic reports
    hints = typing.get_type_hints(typed_dict, include_extras=True)
    fields = {name: _field(hint, name in typed_dict.__required_keys__, made) for name, hint in hints.items()}
    functional: Any = typing_extensions.TypedDict
    made[typed_dict] = functional(typed_dict.__name__, fields)
    made[typed_dict].__module__, made[typed_dict].__doc__ = typed_dict.__module__, typed_dict.__doc__
    return made[typed_dict]


def _field(hint: Any, required: bool, made: dict[Any, Any]) -> Any:
    said = typing.get_origin(hint)
    if said in _QUALIFIERS:  # __required_keys__ misses qualifiers in string annotations
        required, hint = _QUALIFIERS[said], typing.get_args(hint)[0]
    inner = _replaced(hint, made)
    return typing_extensions.Required[inner] if required else typing_extensions.NotRequired[inner]
