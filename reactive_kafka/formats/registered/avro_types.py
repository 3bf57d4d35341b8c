"""Makes the Avro schema of a dataclass, pydantic model or struct. Pure."""

from __future__ import annotations

import re
import types
import typing
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.payload_type import is_union, name_of, payload_type_of
from reactive_kafka.formats.registered.model_fields import MISSING, fields_of
from reactive_kafka.formats.registered.plain_data import is_model

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
_BASES = {str: "string", int: "long", float: "double", bool: "boolean", list: "array", dict: "map"}
_LATE = ("double", _PLAIN[date])
"""Branches that come last in a union, because they also take values of other branches.

An int can be written as a double, and a datetime as a date.
"""
_AVRO_NAME = "[A-Za-z_][A-Za-z0-9_]*"


def schema_of_type(kind: Any) -> Any:
    """Return the record schema of a model class. It has the class's name.

    Defaults that JSON can hold are part of it.

    Raises:
        FormatError: The type of a field does not say how to write it (a Decimal, Any): the schema
            has to be in a file.
    """
    return _of_class(kind, {})


def _of_class(kind: Any, named: dict[type, str]) -> Any:
    """Return the schema of a model. *named* has the classes that the schema has defined already."""
    if kind in named:
        return named[kind]
    if kind.__name__ in named.values():
        raise FormatError(
            f"two classes of one schema are called {kind.__name__}: write the schema into a file"
        )
    if not kind.__name__.isidentifier():
        raise FormatError(
            f"{kind.__name__} cannot be the name of an Avro record: write the schema into a file"
        )
    named[kind] = kind.__name__
    fields = []
    for data_field in fields_of(kind):
        name = data_field.written_as
        try:
            field = {"name": name, "type": _of(data_field.annotation, named)}
        except FormatError as error:
            raise FormatError(f"{kind.__name__}.{name}: {error}") from None
        # Records that have the field under one of these names are read into it.
        aliases = [alias for alias in data_field.read_as if re.fullmatch(_AVRO_NAME, alias)]
        if aliases:
            field["aliases"] = aliases
        if data_field.default is not MISSING:
            field = _with_default(field, data_field.default)
        fields.append(field)
    return {"type": "record", "name": kind.__name__, "fields": fields}


def _with_default(field: dict[str, Any], default: Any) -> dict[str, Any]:
    """Return the field with its default, if the schema can have it."""
    branches = field["type"]
    if isinstance(branches, list) and default is not None:
        # Other libraries expect the default of a union to be of its first branch.
        has_null = "null" in branches
        branches = [branch for branch in branches if branch != "null"]
        if has_null:
            branches.append("null")
        if len(branches) > 2:
            return field
        if not has_null and _BASES.get(type(default)) != _base_of(branches[0]):
            return field
        field = field | {"type": branches}
    if not _is_json(default):
        return field
    return field | {"default": default}


def _is_json(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool) or value in ([], {})


def _smaller_first(members: tuple[Any, ...]) -> list[Any]:
    """Return the members of a union, with smaller models before larger ones.

    We do not depend on the order, because a class names its branch. But schemas that are registered
    already have it, and other libraries need it: they take a dict for the first record that has
    most of its fields.
    """
    models = [member for member in members if is_model(payload_type_of(member).base)]
    models.sort(key=lambda model: len(fields_of(payload_type_of(model).base)))
    remaining = iter(models)
    return [
        next(remaining) if is_model(payload_type_of(member).base) else member for member in members
    ]


def _of(annotation: Any, named: dict[type, str]) -> Any:
    """Return the schema of a type."""
    payload_type = payload_type_of(annotation)
    base = payload_type.base
    if payload_type.accepts_none and base not in (types.NoneType, None, Any, object):
        inner = _of(base, named)
        return ["null", *(inner if isinstance(inner, list) else [inner])]
    arguments = typing.get_args(base)
    origin = typing.get_origin(base)
    if base in _PLAIN:
        return _PLAIN[base]
    if is_union(base):
        return _union(_smaller_first(arguments), named)
    if origin in (list, set, frozenset, tuple) and (origin is not tuple or arguments[1:] == (...,)):
        return {"type": "array", "items": _of(arguments[0], named)}
    if origin is dict and arguments[0] is str:
        return {"type": "map", "values": _of(arguments[1], named)}
    if origin is Literal and all(isinstance(value, str) for value in arguments):
        return "string"
    if isinstance(base, type) and issubclass(base, Enum):
        return _of_enum(base, named)
    if is_model(base):
        return _of_class(base, named)
    raise FormatError(f"{name_of(annotation)} has no plain Avro type: write the schema into a file")


def _of_enum(kind: type[Enum], named: dict[type, str]) -> Any:
    """Return the schema of an enum: an Avro enum if its values can be symbols.

    An enum is written by its values, as in JSON.
    """
    values = [member.value for member in kind]
    if all(type(value) is int for value in values):
        return "long"
    if not all(isinstance(value, str) for value in values):
        raise FormatError(
            f"{kind.__name__} has values that are neither all strings nor all integers: write the "
            "schema into a file"
        )
    if not all(re.fullmatch(_AVRO_NAME, value) for value in values):
        return "string"
    if kind in named:
        return named[kind]
    if kind.__name__ in named.values():
        raise FormatError(
            f"two classes of one schema are called {kind.__name__}: write the schema into a file"
        )
    named[kind] = kind.__name__
    return {"type": "enum", "name": kind.__name__, "symbols": values}


def _union(members: list[Any], named: dict[type, str]) -> Any:
    """Return the branches of a union. Python types with the same schema are one branch.

    Source: Avro specification, "Unions": at most one schema of each type, apart from named ones.
    """
    members_and_branches: list[tuple[Any, Any]] = []
    for member in members:
        branch = _of(member, named)
        if any(branch == earlier for _, earlier in members_and_branches):
            continue
        for earlier_member, earlier in members_and_branches:
            if _base_of(branch) == _base_of(earlier):
                raise FormatError(
                    f"{name_of(earlier_member)} and {name_of(member)} are both Avro's "
                    f"{_base_of(earlier)}, and a union has each type once: keep one of them, or "
                    "make a field of each"
                )
        members_and_branches.append((member, branch))
    branches = [branch for _, branch in members_and_branches]
    branches.sort(key=lambda branch: branch in _LATE)
    return branches[0] if len(branches) == 1 else branches


def _base_of(branch: Any) -> str:
    """Return what a union must have only once: a type, or the name of a named type."""
    if not isinstance(branch, dict):
        return str(branch)
    return str(branch.get("name", branch["type"]))
