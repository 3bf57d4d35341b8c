"""How a field of a settings class says what users may write for it: kind, default and meaning, once for everybody.

The defaults of the settings, the loader, the dump, the reference page and "did you mean" all come from these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, overload

from reactive_kafka.config.values import Kind

T = TypeVar("T")
_KEY, _TABLE = "key", "table"  # of a field's metadata


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section.

    Args:
        name: As users write it; ``table.key`` for one in a table of its own.
        default: As users would write it; None: there is none, or the doc names it.
        target: Its field in the settings class of its section, dotted like the name. Empty for the few keys whose
            value ends up in a field of another kind.
    """

    name: str
    kind: Kind[Any]
    default: Any
    doc: str
    target: str = ""

    @property
    def parsed_default(self) -> Any:
        """The default as the settings have it: seconds, bytes."""
        return None if self.default is None else self.kind.parse(self.default)


def described(kind: Kind[Any], doc: str, default: object = None) -> Mapping[str, Any]:
    """The metadata of a field that a key sets. The field has no default of its own: the loader finds one."""
    return {_KEY: (kind, default, doc)}


@overload
def setting(kind: Kind[T], default: None, doc: str) -> T | None: ...
@overload
def setting(kind: Kind[T], default: object, doc: str) -> T: ...
def setting(kind: Kind[T], default: object, doc: str) -> Any:
    """A field that a key sets. *default* is as users write it (``"5s"``), the field's own what that means (5.0)."""
    return field(default=None if default is None else kind.parse(default), metadata=described(kind, doc, default))


def table(settings: type) -> Mapping[str, Any]:
    """The metadata of a field that holds the settings of a table: its keys are those of *settings*."""
    return {_TABLE: settings}


def keys_of(settings: type, inside: str = "") -> dict[str, Key]:
    """Name -> key, for the fields of a settings class and of its tables. Seconds have ``_s`` in the field's name only.

    *inside* is the table that the class stands for, with a dot: ``retry.``.
    """
    found: dict[str, Key] = {}
    for each in fields(settings):
        if _TABLE in each.metadata:
            found |= keys_of(each.metadata[_TABLE], f"{each.name}.")
        elif _KEY in each.metadata:
            name = inside + each.name.removesuffix("_s")
            kind, default, doc = each.metadata[_KEY]
            found[name] = Key(name, kind, default, doc, inside + each.name)
    return found
