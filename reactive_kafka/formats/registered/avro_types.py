"""The Avro schema of a dataclass, pydantic model or struct whose fields are plain. Pure."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from reactive_kafka.formats.names import FormatError
from reactive_kafka.formats.registered.plain import is_model, is_struct
from reactive_kafka.formats.wanted import is_union, name_of, wanted

_PLAIN: dict[Any, Any] = {
    str: "string",
    int: "long",
    float: "double",
    bool: "boolean",
    bytes: "bytes",
    types.NoneType: "null",
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
    UUID: {"type": "string", "logicalType": "uuid"},
}
_MISSING: Any = object()
_AVRO_NAME = "[A-Za-z_][A-Za-z0-9_]*"


def schema_of_type(kind: Any) -> Any:
    """The record schema of a model class, named as the class, with the defaults that JSON can say.

    Raises:
        FormatError: A field has a type that says too little (a Decimal, Any): the schema is to be in a file.
    """
    return _of_class(kind, {})


def _of_class(kind: Any, named: dict[type, str]) -> Any:
    if kind in named:
        return named[kind]
    if kind.__name__ in named.values():
        raise FormatError(f"two classes of one schema are called {kind.__name__}: write the schema into a file")
    if not kind.__name__.isidentifier():
        raise FormatError(f"{kind.__name__} cannot be the name of an Avro record: write the schema into a file")
    named[kind] = kind.__name__
    fields = []
    for name, others, annotation, default in _fields(kind):
        try:
            field = {"name": name, "type": _of(annotation, named)}
        except FormatError as error:
            raise FormatError(f"{kind.__name__}.{name}: {error}") from None
        if others:
            field["aliases"] = others  # records that were written under these names are read into it
        if default is not _MISSING:
            field = _with_default(field, default)
        fields.append(field)
    return {"type": "record", "name": kind.__name__, "fields": fields}


def _with_default(field: dict[str, Any], default: Any) -> dict[str, Any]:
    """A default is of the first type of a union: so that comes first."""
    branches = field["type"]
    if isinstance(branches, list) and default is not None:
        branches = [one for one in branches if one != "null"] + ["null"] * ("null" in branches)
        if len(branches) > 2:
            return field
        field = field | {"type": branches}
    return field | {"default": default} if _is_json(default) else field


def _is_json(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool) or value in ([], {})


def _fields(kind: Any) -> list[tuple[str, list[str], Any, Any]]:
    """Name, other names, annotation and default of each field."""
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return [
            (*_names(name, one), one.annotation, _given(one.default, PydanticUndefined, one))
            for name, one in kind.model_fields.items()
        ]
    hints = typing.get_type_hints(kind, include_extras=True)
    if is_struct(kind):
        import msgspec

        return [
            (one.encode_name, [], hints[one.name], _given(one.default, msgspec.NODEFAULT, one))
            for one in msgspec.structs.fields(kind)
        ]
    return [
        (
            *_names(one.name, _said_of(hints[one.name])),
            hints[one.name],
            _given(one.default, dataclasses.MISSING, one),
        )
        for one in dataclasses.fields(kind)
    ]


def _said_of(annotation: Any) -> FieldInfo | None:
    """The ``Field(...)`` in an Annotated."""
    said = getattr(annotation, "__metadata__", ())
    return next((one for one in said if isinstance(one, FieldInfo)), None)


def _names(name: str, said: FieldInfo | None) -> tuple[str, list[str]]:
    """The name that a field is written under, and the others that it is read from."""
    if said is None:
        return name, []
    written = said.serialization_alias or said.alias or name
    read = said.validation_alias
    choices = read.choices if isinstance(read, AliasChoices) else [read]
    others = [one for one in choices if isinstance(one, str) and one != written and re.fullmatch(_AVRO_NAME, one)]
    return written, list(dict.fromkeys(others))


def _given(default: Any, nothing: Any, field: Any) -> Any:
    """The default; of those that a factory makes, an empty list or dict."""
    if default is not nothing:
        return default
    return field.default_factory() if getattr(field, "default_factory", None) in (list, dict) else _MISSING


def _told_apart(members: tuple[Any, ...]) -> list[Any]:
    """The members of a union, with smaller models first.

    fastavro takes a dict for the first record that has most of its fields: that would be a larger one, too.
    """
    models = [wanted(one).base for one in members if is_model(wanted(one).base)]
    fields = [frozenset(name for name, *_ in _fields(one)) for one in models]
    if len(set(fields)) < len(fields):
        names = " and ".join(one.__name__ for one in models)
        raise FormatError(
            f"{names} are told apart by their fields, and two of them have the same: write the schema into a file"
        )
    ordered = iter(sorted(models, key=lambda one: len(_fields(one))))
    return [next(ordered) if is_model(wanted(one).base) else one for one in members]


def _of(annotation: Any, named: dict[type, str]) -> Any:
    asked = wanted(annotation)
    if asked.accepts_none and asked.base not in (types.NoneType, None, Any, object):
        inner = _of(asked.base, named)
        return ["null", *(inner if isinstance(inner, list) else [inner])]
    base, arguments = asked.base, typing.get_args(asked.base)
    origin = typing.get_origin(base)
    if base in _PLAIN:
        return _PLAIN[base]
    if is_union(base):
        return [_of(one, named) for one in _told_apart(arguments)]
    if origin in (list, set, frozenset, tuple) and (origin is not tuple or arguments[1:] == (...,)):
        return {"type": "array", "items": _of(arguments[0], named)}
    if origin is dict and arguments[0] is str:
        return {"type": "map", "values": _of(arguments[1], named)}
    if origin is Literal and all(isinstance(one, str) for one in arguments):
        return "string"
    if isinstance(base, type) and issubclass(base, Enum) and issubclass(base, str):
        if not all(re.fullmatch(_AVRO_NAME, one.value) for one in base):
            return "string"
        if base in named:
            return named[base]
        named[base] = base.__name__
        return {"type": "enum", "name": base.__name__, "symbols": [one.value for one in base]}
    if is_model(base):
        return _of_class(base, named)
    raise FormatError(f"{name_of(annotation)} has no plain Avro type: write the schema into a file")
