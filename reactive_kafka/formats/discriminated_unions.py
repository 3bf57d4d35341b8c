"""Types whose values can be told apart when they are read: the members of a discriminated union.
Pure.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union

from reactive_kafka.formats.payload_type import has_struct, is_union, payload_type_of


def classes_of_annotation(annotation: Any) -> tuple[type, ...] | None:
    """The classes that values of a type are instances of, None's too; None: no classes say that, or
    not they alone.
    """
    asked = payload_type_of(annotation)
    members = (
        [payload_type_of(member) for member in typing.get_args(asked.base)]
        if is_union(asked.base)
        else [asked]
    )
    bases = [member.base for member in members]
    if any(
        member.constrained or member.base is object or not _is_class(member.base)
        for member in members
    ):
        return None
    nothing = (types.NoneType,) if asked.accepts_none and types.NoneType not in bases else ()
    return (*bases, *nothing)


def _is_class(base: Any) -> bool:
    return (
        isinstance(base, type) and typing.get_origin(base) is None and not typing.is_typeddict(base)
    )


def discriminated_union(annotations: Sequence[Any], *, are_objects: bool = False) -> Any:
    """The annotation that reads a value as the right one of these types; None if what is read does
    not tell which.

    Structs of msgspec have different tags in one field; other classes have a field in common whose
    values are ``Literal``, none of them in two classes. *are_objects*: nothing is read, and classes
    are enough.
    """
    found = [classes_of_annotation(annotation) for annotation in annotations]
    if any(kinds is None for kinds in found):
        return None
    every = dict.fromkeys(kind for kinds in found for kind in kinds or ())
    classes = [kind for kind in every if kind is not types.NoneType]
    if any(one is not other and issubclass(one, other) for one in classes for other in classes):
        return None
    whole: Any = classes[0] if len(classes) == 1 else Union[tuple(classes)]  # noqa: UP007
    if len(classes) > 1 and not are_objects:
        if not all(map(has_struct, classes)):
            field = None if any(map(has_struct, classes)) else _discriminator(classes)
            if field is None:
                return None
            from pydantic import Field

            whole = Annotated[whole, Field(discriminator=field)]
        elif not _are_tagged(classes):
            return None
    return Union[whole, None] if types.NoneType in every else whole  # noqa: UP007


def _are_tagged(structs: Sequence[Any]) -> bool:
    configs = [struct.__struct_config__ for struct in structs]
    tags = {config.tag for config in configs}
    return (
        len({config.tag_field for config in configs}) == 1
        and None not in tags
        and len(tags) == len(structs)
    )


def _discriminator(classes: Sequence[type]) -> str | None:
    """A field that is a Literal in each class, of other values in each."""
    first, *others = [_literals(one) for one in classes]
    for (name, alias), values in first.items():
        each = [values, *(other.get((name, alias), ()) for other in others)]
        if all(each) and len(set().union(*each)) == sum(map(len, each)):
            return name
    return None


def _literals(kind: type) -> Mapping[tuple[str, str], tuple[Any, ...]]:
    """Field, and its name in what is read -> the values that its Literal allows."""
    # Of a pydantic model, which has resolved them.
    fields = getattr(kind, "model_fields", None)
    if fields is not None:
        found = {
            (name, str(one.validation_alias or one.alias or name)): one.annotation
            for name, one in fields.items()
        }
    else:
        try:
            found = {(name, name): hint for name, hint in typing.get_type_hints(kind).items()}
        except Exception:
            # Names that do not exist (yet): whoever reads the type reports it.
            return {}
    return {
        at: typing.get_args(hint)
        for at, hint in found.items()
        if typing.get_origin(hint) is Literal
    }
