"""Makes plain data of models and dataclasses: dicts, lists and values; times and decimals stay.

Members of an enum become their values, as in JSON. Tuples become lists, because to fastavro a tuple
in a union names the branch.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from reactive_kafka.formats.models import words_of

_KEPT = (bytes, date, datetime, time, timedelta, Decimal, UUID)
_MADE_PLAIN = frozenset({"enum", "tuple", "any"})
"""Kinds of pydantic's core schemas whose values pydantic does not dump as plain data."""


def is_struct(kind: Any) -> bool:
    """Return whether it is a msgspec struct."""
    # If there is any struct, the user has imported msgspec by now.
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def is_model(kind: Any) -> bool:
    """Return whether it is a pydantic model, a dataclass or a struct: a class with known fields."""
    if not isinstance(kind, type):
        return False
    return dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel) or is_struct(kind)


def plain_maker(kind: type) -> Callable[[Any], Any] | None:
    """Return what makes plain data of values of a type, with fields under their aliases.

    Returns:
        None if the values are plain already.
    """
    if is_struct(kind):
        import msgspec

        if "TupleType" in repr(msgspec.inspect.type_info(kind)):
            return lambda value: _without_enums(msgspec.to_builtins(value, builtin_types=_KEPT))
        return lambda value: msgspec.to_builtins(value, builtin_types=_KEPT)
    if not is_model(kind):
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    dump = adapter.dump_python
    if _MADE_PLAIN.isdisjoint(words_of(adapter.core_schema)):
        return lambda value: dump(value, by_alias=True)
    return lambda value: _without_enums(dump(value, by_alias=True))


def plain_inside(value: Any) -> Any:
    """Return lists and dicts with plain data in place of models and enums, at any depth."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: plain_inside(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_inside(item) for item in value]
    if isinstance(value, tuple):
        # A named tuple takes its items one by one.
        return tuple(plain_inside(item) for item in value)
    if not is_model(type(value)):
        return value
    to_plain = plain_maker(type(value))
    return value if to_plain is None else to_plain(value)


def _without_enums(plain: Any) -> Any:
    """Return plain data without enums, tuples and sets, at any depth."""
    if isinstance(plain, Enum):
        return plain.value
    if isinstance(plain, dict):
        return {_without_enums(key): _without_enums(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple | set | frozenset):
        return [_without_enums(item) for item in plain]
    return plain
