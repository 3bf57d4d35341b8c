"""Models and dataclasses as plain data: dicts, lists and the values in them, times and decimals as
they are.

Members of an enum are their values, as in JSON. Tuples are lists: to fastavro a tuple in a union
names its branch.
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
"""Kinds of pydantic's core schemas whose values are made plain here."""


def is_struct(kind: Any) -> bool:
    """Whether it is a struct of msgspec's."""
    # Imported by now if there is any struct.
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def is_model(kind: Any) -> bool:
    """Whether it is a pydantic model, a dataclass or a struct: a class that says which fields its
    values have.
    """
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel) or is_struct(kind)
    )


def plain_maker(kind: type) -> Callable[[Any], Any] | None:
    """What makes plain data of values of a type, fields under their aliases; None: they are
    plain.
    """
    if is_struct(kind):
        import msgspec

        if "TupleType" in repr(msgspec.inspect.type_info(kind)):
            return lambda value: _made_plain(msgspec.to_builtins(value, builtin_types=_KEPT))
        return lambda value: msgspec.to_builtins(value, builtin_types=_KEPT)
    if not is_model(kind):
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    dump = adapter.dump_python
    if _MADE_PLAIN.isdisjoint(words_of(adapter.core_schema)):
        return lambda value: dump(value, by_alias=True)
    return lambda value: _made_plain(dump(value, by_alias=True))


def plain_inside(value: Any) -> Any:
    """Lists and dicts with plain data in place of the models and enums in them, at any depth."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: plain_inside(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_inside(one) for one in value)
    to_plain = plain_maker(type(value)) if is_model(type(value)) else None
    return value if to_plain is None else to_plain(value)


def _made_plain(plain: Any) -> Any:
    """The same without enums and tuples, at any depth."""
    if isinstance(plain, Enum):
        return plain.value
    if isinstance(plain, dict):
        return {_made_plain(key): _made_plain(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple | set | frozenset):
        return [_made_plain(one) for one in plain]
    return plain
