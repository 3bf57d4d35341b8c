"""Declares configuration keys on the fields of settings classes.

A key is declared once, on its field, with its kind, default and meaning. The defaults of the
settings, the loader, ``check``, docs/configuration.md, the JSON Schema and "did you mean" are all
made from that declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, overload

from reactive_kafka.config.kinds import Kind

T = TypeVar("T")
# Names of entries in a dataclass field's metadata.
_KEY = "key"
_TABLE = "table"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section."""

    # As users write it. A key of a table inside the section is "table.key".
    name: str
    kind: Kind[Any]
    # As users would write it. None: no default, or one that only ``doc`` explains.
    default: Any
    doc: str
    # The field of the section's settings that holds the value, dotted like the name. Empty if the
    # value ends up in another field: a topic among topics, brokers among client properties.
    target: str = ""

    @property
    def parsed_default(self) -> Any:
        """The default as the settings hold it: seconds, bytes."""
        return None if self.default is None else self.kind.parse(self.default)


def described(kind: Kind[Any], doc: str, default: object = None) -> Mapping[str, Any]:
    """Return metadata for a field whose default only the loader knows."""
    return {_KEY: (kind, default, doc)}


@overload
def setting(kind: Kind[T], default: None, doc: str) -> T | None: ...
@overload
def setting(kind: Kind[T], default: object, doc: str) -> T: ...
def setting(kind: Kind[T], default: object, doc: str) -> Any:
    """Declare a key on a dataclass field.

    Args:
        kind: Which values are allowed.
        default: The default as users write it (``"5s"``). The field gets what it means (5.0).
        doc: The meaning, for the docs.
    """
    return field(
        default=None if default is None else kind.parse(default),
        metadata=described(kind, doc, default),
    )


def table(settings: type) -> Mapping[str, Any]:
    """Return metadata for a field that holds a table; the table's keys are those of *settings*."""
    return {_TABLE: settings}


def keys_of(settings: type, prefix: str = "") -> dict[str, Key]:
    """Return name -> key for the fields of a settings class, including those of its tables.

    Args:
        settings: The class.
        prefix: The table that its keys belong to, with a dot: ``retry.``.
    """
    found: dict[str, Key] = {}
    for each in fields(settings):
        if _TABLE in each.metadata:
            found |= keys_of(each.metadata[_TABLE], f"{each.name}.")
        elif _KEY in each.metadata:
            # Fields have a unit in their names. Users write the unit in the value.
            name = prefix + each.name.removesuffix("_s")
            kind, default, doc = each.metadata[_KEY]
            found[name] = Key(name, kind, default, doc, prefix + each.name)
    return found
