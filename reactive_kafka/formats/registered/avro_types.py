"""The Avro schema of a dataclass, pydantic model or struct whose fields are plain. Pure."""

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
"""Branches of a union that would take values of others: an int is written as a double, and a
datetime as a date.
"""
_AVRO_NAME = "[A-Za-z_][A-Za-z0-9_]*"


def schema_of_type(kind: Any) -> Any:
    """The record schema of a model class, named as the class, with the defaults that JSON can say.

    Raises:
        FormatError: A field has a type that says too little (a Decimal, Any): the schema is to be
            in a file.
    """
    return _of_class(kind, {})


def _of_class(kind: Any, named: dict[type, str]) -> Any:
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
    for one in fields_of(kind):
        try:
            field = {"name": one.written_as, "type": _of(one.annotation, named)}
        except FormatError as error:
            raise FormatError(f"{kind.__name__}.{one.written_as}: {error}") from None
        others = [name for name in one.read_as if re.fullmatch(_AVRO_NAME, name)]
        if others:
            # Records that were written under these names are read into it.
            field["aliases"] = others
        if one.default is not MISSING:
            field = _with_default(field, one.default)
        fields.append(field)
    return {"type": "record", "name": kind.__name__, "fields": fields}


def _with_default(field: dict[str, Any], default: Any) -> dict[str, Any]:
    """A default is of the first type of a union: so that comes first."""
    branches = field["type"]
    if isinstance(branches, list) and default is not None:
        branches = [one for one in branches if one != "null"] + ["null"] * ("null" in branches)
        if len(branches) > 2 or (
            "null" not in branches and _BASES.get(type(default)) != _base_of(branches[0])
        ):
            return field
        field = field | {"type": branches}
    return field | {"default": default} if _is_json(default) else field


def _is_json(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool) or value in ([], {})


def _smaller_first(members: tuple[Any, ...]) -> list[Any]:
    """The members of a union, with smaller models first.

    The order decides nothing here, where a class names its branch. It is the order of schemas that
    are registered already, and right for other libraries, which take a dict for the first record
    that has most of its fields.
    """
    models = [one for one in members if is_model(payload_type_of(one).base)]
    ordered = iter(sorted(models, key=lambda one: len(fields_of(payload_type_of(one).base))))
    return [next(ordered) if is_model(payload_type_of(one).base) else one for one in members]


def _of(annotation: Any, named: dict[type, str]) -> Any:
    asked = payload_type_of(annotation)
    if asked.accepts_none and asked.base not in (types.NoneType, None, Any, object):
        inner = _of(asked.base, named)
        return ["null", *(inner if isinstance(inner, list) else [inner])]
    base = asked.base
    arguments = typing.get_args(asked.base)
    origin = typing.get_origin(base)
    if base in _PLAIN:
        return _PLAIN[base]
    if is_union(base):
        return _union(_smaller_first(arguments), named)
    if origin in (list, set, frozenset, tuple) and (origin is not tuple or arguments[1:] == (...,)):
        return {"type": "array", "items": _of(arguments[0], named)}
    if origin is dict and arguments[0] is str:
        return {"type": "map", "values": _of(arguments[1], named)}
    if origin is Literal and all(isinstance(one, str) for one in arguments):
        return "string"
    if isinstance(base, type) and issubclass(base, Enum):
        return _of_enum(base, named)
    if is_model(base):
        return _of_class(base, named)
    raise FormatError(f"{name_of(annotation)} has no plain Avro type: write the schema into a file")


def _of_enum(kind: type[Enum], named: dict[type, str]) -> Any:
    """An enum is written by its values, as in JSON: as Avro's enum where these can be its
    symbols.
    """
    values = [one.value for one in kind]
    if all(type(one) is int for one in values):
        return "long"
    if not all(isinstance(one, str) for one in values):
        raise FormatError(
            f"{kind.__name__} has values that are neither all strings nor all integers: write the schema into a file"
        )
    if not all(re.fullmatch(_AVRO_NAME, one) for one in values):
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
    """The branches of a union. Types of Python that are written alike are one branch.

    Source: Avro specification, "Unions": at most one schema of each type, apart from named ones.
    """
    found: list[tuple[Any, Any]] = []
    for member in members:
        branch = _of(member, named)
        if any(branch == one for _, one in found):
            continue
        for other, one in found:
            if _base_of(branch) == _base_of(one):
                raise FormatError(
                    f"{name_of(other)} and {name_of(member)} are both Avro's {_base_of(one)}, and a union has each type"
                    " once: keep one of them, or make a field of each"
                )
        found.append((member, branch))
    branches = [branch for _, branch in found]
    branches.sort(key=lambda branch: branch in _LATE)
    return branches[0] if len(branches) == 1 else branches


def _base_of(branch: Any) -> str:
    """The type that a union has once; a name for those that it may have several of."""
    if not isinstance(branch, dict):
        return str(branch)
    return str(branch.get("name", branch["type"]))
