"""The fields of a model: a pydantic model, a dataclass or a struct, each by the names that data has
for it. Pure.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, NamedTuple

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from reactive_kafka.formats.registered.plain_data import is_struct

MISSING: Any = object()
"""The default of a field that has none."""


class DataField(NamedTuple):
    """A field of a model, as data has it."""

    attribute: str
    written_as: str
    read_as: tuple[str, ...]
    """Further names that it is read under."""
    annotation: Any
    default: Any
    """:data:`MISSING` if there is none. Of those that a factory makes, only an empty list or dict
    is one.
    """


def fields_of(kind: Any) -> list[DataField]:
    """The fields of a model in their order.

    NameError, TypeError: an annotation cannot be resolved.
    """
    if issubclass(kind, BaseModel):
        return [
            _field(name, name, one, one.annotation, _given(one.default, PydanticUndefined, one))
            for name, one in kind.model_fields.items()
        ]
    hints = typing.get_type_hints(kind, include_extras=True)
    if is_struct(kind):
        import msgspec

        return [
            _field(
                one.name,
                one.encode_name,
                None,
                hints[one.name],
                _given(one.default, msgspec.NODEFAULT, one),
            )
            for one in msgspec.structs.fields(kind)
        ]
    return [
        _field(
            one.name,
            one.name,
            _said_of(hints[one.name]),
            hints[one.name],
            _given(one.default, dataclasses.MISSING, one),
        )
        for one in dataclasses.fields(kind)
    ]


def _field(
    attribute: str, name: str, said: FieldInfo | None, annotation: Any, default: Any
) -> DataField:
    if said is None:
        return DataField(attribute, name, (), annotation, default)
    written = said.serialization_alias or said.alias or name
    read = said.validation_alias
    choices = read.choices if isinstance(read, AliasChoices) else [read]
    others = [one for one in choices if isinstance(one, str) and one != written]
    return DataField(attribute, written, tuple(dict.fromkeys(others)), annotation, default)


def _said_of(annotation: Any) -> FieldInfo | None:
    """The ``Field(...)`` in an Annotated."""
    said = getattr(annotation, "__metadata__", ())
    return next((one for one in said if isinstance(one, FieldInfo)), None)


def _given(default: Any, nothing: Any, field: Any) -> Any:
    if default is not nothing:
        return default
    return (
        field.default_factory()
        if getattr(field, "default_factory", None) in (list, dict)
        else MISSING
    )
