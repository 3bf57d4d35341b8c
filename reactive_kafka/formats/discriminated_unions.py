"""Builds discriminated unions: types whose values say which type they are. Pure."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union

from reactive_kafka.formats.payload_type import has_struct, is_union, payload_type_of


def classes_of_annotation(annotation: Any) -> tuple[type, ...] | None:
    """Return the classes whose instances are the values of a type, with NoneType for None.

    Returns:
        None if classes do not say which values the type has, or not alone.
    """
    payload_type = payload_type_of(annotation)
    members = [payload_type]
    if is_union(payload_type.base):
        members = [payload_type_of(member) for member in typing.get_args(payload_type.base)]
    for member in members:
        if member.is_constrained or member.base is object or not _is_class(member.base):
            return None
    classes = [member.base for member in members]
    if payload_type.accepts_none and types.NoneType not in classes:
        classes.append(types.NoneType)
    return tuple(classes)


def _is_class(base: Any) -> bool:
    return (
        isinstance(base, type) and typing.get_origin(base) is None and not typing.is_typeddict(base)
    )


def discriminated_union(annotations: Sequence[Any], *, are_objects: bool = False) -> Any:
    """Return an annotation that reads a value as the right one of these types.

    Structs of msgspec need different tags in one field. Other classes need a field in common whose
    values are ``Literal``, and none of the values may belong to two classes.

    Args:
        annotations: The types.
        are_objects: The values are objects and are not read, so that different classes are enough.

    Returns:
        None if a value does not say which of the types it is.
    """
    members: dict[type, None] = {}
    for annotation in annotations:
        member_classes = classes_of_annotation(annotation)
        if member_classes is None:
            return None
        members.update(dict.fromkeys(member_classes))
    classes = [member for member in members if member is not types.NoneType]
    if _have_subclasses(classes):
        return None
    union: Any = classes[0] if len(classes) == 1 else Union[tuple(classes)]  # noqa: UP007
    if len(classes) > 1 and not are_objects:
        if all(map(has_struct, classes)):
            if not _are_tagged(classes):
                return None
        else:
            # Neither pydantic nor msgspec reads a union of structs and other classes.
            field = None if any(map(has_struct, classes)) else _discriminator(classes)
            if field is None:
                return None
            from pydantic import Field

            union = Annotated[union, Field(discriminator=field)]
    return Union[union, None] if types.NoneType in members else union  # noqa: UP007


def _have_subclasses(classes: Sequence[type]) -> bool:
    """Return whether one of the classes is a subclass of another one."""
    return any(
        first is not second and issubclass(first, second) for first in classes for second in classes
    )


def _are_tagged(structs: Sequence[Any]) -> bool:
    """Return whether the structs have different tags in one field."""
    configs = [struct.__struct_config__ for struct in structs]
    tags = {config.tag for config in configs}
    has_one_field = len({config.tag_field for config in configs}) == 1
    return has_one_field and None not in tags and len(tags) == len(structs)


def _discriminator(classes: Sequence[type]) -> str | None:
    """Return a field that is a Literal in each class, with different values in each."""
    first, *others = [_literals(member) for member in classes]
    for (name, alias), values in first.items():
        values_by_class = [values, *(other.get((name, alias), ()) for other in others)]
        distinct = set().union(*values_by_class)
        if all(values_by_class) and len(distinct) == sum(map(len, values_by_class)):
            return name
    return None


def _literals(kind: type) -> Mapping[tuple[str, str], tuple[Any, ...]]:
    """Return field and its name in the data -> the values that its Literal allows."""
    # A pydantic model has resolved its annotations.
    fields = getattr(kind, "model_fields", None)
    if fields is not None:
        annotations = {
            (name, str(field.validation_alias or field.alias or name)): field.annotation
            for name, field in fields.items()
        }
    else:
        try:
            hints = typing.get_type_hints(kind)
        except Exception:
            # A name in an annotation does not exist (yet). The reader of the type reports it.
            return {}
        annotations = {(name, name): hint for name, hint in hints.items()}
    return {
        names: typing.get_args(annotation)
        for names, annotation in annotations.items()
        if typing.get_origin(annotation) is Literal
    }
