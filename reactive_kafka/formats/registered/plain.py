"""Models and dataclasses as plain data: dicts, lists and the values in them, times and decimals as they are."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

_KEPT = (bytes, date, datetime, time, timedelta, Decimal, UUID)


def is_struct(kind: Any) -> bool:
    """Whether it is a struct of msgspec's."""
    msgspec = sys.modules.get("msgspec")  # imported by now if there is any struct
    return msgspec is not None and isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def is_model(kind: Any) -> bool:
    """Whether it is a pydantic model, a dataclass or a struct: a class that says which fields its values have."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel) or is_struct(kind))


def plain_maker(kind: type) -> Callable[[Any], Any] | None:
    """What makes plain data of values of a type, fields under their aliases; None: they are plain."""
    if is_struct(kind):
        import msgspec

        return lambda value: msgspec.to_builtins(value, builtin_types=_KEPT)
    if not is_model(kind):
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    dump = adapter.dump_python
    return lambda value: dump(value, by_alias=True)
