"""The fields of a model (pydantic, dataclass or struct), with their names in the data. Pure."""

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
    """A field of a model, with its names in the data.

    Attributes:
        attribute: Its name in Python.
        written_as: Its name when it is written.
        read_as: Further names under which it is read.
        annotation: Its type.
        default: Its default; :data:`MISSING` if it has none. The only factories that count are
            those of an empty list or dict.
    """

    attribute: str
    written_as: str
    read_as: tuple[str, ...]
    annotation: Any
    default: Any


def fields_of(kind: Any) -> list[DataField]:
    """Return the fields of a model in their order.

    Raises:
        NameError, TypeError: An annotation cannot be resolved.
    """
    if issubclass(kind, BaseModel):
        return [
            _data_field(name, name, field, field.annotation, _default_of(field, PydanticUndefined))
            for name, field in kind.model_fields.items()
        ]
    hints = typing.get_type_hints(kind, include_extras=True)
    if is_struct(kind):
        import msgspec

        return [
            _data_field(
                field.name,
                field.encode_name,
                None,
                hints[field.name],
                _default_of(field, msgspec.NODEFAULT),
            )
            for field in msgspec.structs.fields(kind)
        ]
    return [
        _data_field(
            field.name,
            field.name,
            _field_info_in(hints[field.name]),
            hints[field.name],
            _default_of(field, dataclasses.MISSING),
        )
        for field in dataclasses.fields(kind)
    ]


def _data_field(
    attribute: str, name: str, info: FieldInfo | None, annotation: Any, default: Any
) -> DataField:
    """Return a field. Its aliases are in *info*."""
    if info is None:
        return DataField(attribute, name, (), annotation, default)
    written = info.serialization_alias or info.alias or name
    alias = info.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    read_as = [choice for choice in choices if isinstance(choice, str) and choice != written]
    return DataField(attribute, written, tuple(dict.fromkeys(read_as)), annotation, default)


def _field_info_in(annotation: Any) -> FieldInfo | None:
    """Return the ``Field(...)`` in an Annotated."""
    for metadata in getattr(annotation, "__metadata__", ()):
        if isinstance(metadata, FieldInfo):
            return metadata
    return None


def _default_of(field: Any, nothing: Any) -> Any:
    """Return the default of a library's field. *nothing* is what the library has for none."""
    if field.default is not nothing:
        return field.default
    factory = getattr(field, "default_factory", None)
    if factory in (list, dict):
        return factory()
    return MISSING
