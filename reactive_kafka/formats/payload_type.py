"""What an annotation asks for, without Optional, Annotated, NewType and aliases."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NewType, Union

_FREE_TYPES = (Any, object, dict, list, dict[str, Any], list[Any])


@dataclass(frozen=True, slots=True)
class PayloadType:
    """An analysed annotation.

    Attributes:
        annotation: The annotation of the handler; Any if there is none.
        base: The same without Optional, Annotated, NewType and aliases: ``str`` for
            ``Annotated[str, ...] | None``.
        accepts_none: The handler takes a record without a value (a tombstone), as None.
        is_constrained: There was an Annotated, so that a value of the base may still not fit.
    """

    annotation: Any
    base: Any
    accepts_none: bool
    is_constrained: bool

    @property
    def is_free(self) -> bool:
        """Whether any document fits, so that a model would have nothing to check or to name."""
        # Compared by ==, because not every annotation can be hashed.
        return not self.is_constrained and any(self.base == free for free in _FREE_TYPES)

    @property
    def name(self) -> str:
        """The annotation for people: ``Order``, ``str | None``, ``dict[str, int]``."""
        return name_of(self.annotation)

    @property
    def tombstone_refusal(self) -> str | None:
        """Why a record without a value does not fit; None: it does, as None."""
        if self.accepts_none:
            return None
        return (
            f"no value (a tombstone), but the handler asks for {self.name}: "
            f"annotate {self.name} | None to get None"
        )


def payload_type_of(annotation: object) -> PayloadType:
    """Analyse *annotation*. A missing one asks for anything."""
    whole: Any = Any if annotation in (inspect.Parameter.empty, object) else annotation
    base, accepts_none, is_constrained = _look_through(whole)
    return PayloadType(whole, base, accepts_none, is_constrained)


def name_of(annotation: Any) -> str:
    """Return *annotation* as a person would write it."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is Annotated:
        return name_of(arguments[0])
    if is_union(annotation):
        return " | ".join(name_of(member) for member in arguments)
    if annotation is types.NoneType:
        return "None"
    if isinstance(origin, type):
        return f"{name_of(origin)}[{', '.join(name_of(argument) for argument in arguments)}]"
    if isinstance(annotation, type | NewType):
        return annotation.__name__
    if annotation is ...:
        return "..."
    return str(annotation).replace("typing.", "")


def parts_of(annotation: Any) -> Iterator[Any]:
    """Yield *annotation* and its parts: the arguments of generics, the members of unions."""
    yield annotation
    for argument in typing.get_args(annotation):
        yield from parts_of(argument)


def has_struct(annotation: Any) -> bool:
    """Return whether it is a msgspec struct, or has one among its parts."""
    # If there is any struct, the user has imported msgspec by now.
    msgspec = sys.modules.get("msgspec")
    if msgspec is None:
        return False
    return any(
        isinstance(part, type)
        and typing.get_origin(part) is None
        and issubclass(part, msgspec.Struct)
        for part in parts_of(annotation)
    )


def is_union(annotation: Any) -> bool:
    """Return whether it is written ``A | B``, ``Union[A, B]`` or ``Optional[A]``."""
    return typing.get_origin(annotation) in (Union, types.UnionType)


def _look_through(annotation: Any) -> tuple[Any, bool, bool]:
    """Return ``base``, ``accepts_none`` and ``is_constrained`` of :class:`PayloadType`."""
    accepts_none = False
    is_constrained = False
    while True:
        if typing.get_origin(annotation) is Annotated:
            annotation = typing.get_args(annotation)[0]
            is_constrained = True
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            # "type X = ..." of Python 3.12.
            annotation = annotation.__value__
        elif is_union(annotation):
            members = typing.get_args(annotation)
            if any(_look_through(member)[1] for member in members):
                accepts_none = True
            others = [member for member in members if member is not types.NoneType]
            if len(others) != 1:
                return Union[tuple(others)], accepts_none, is_constrained  # noqa: UP007
            annotation = others[0]
        else:
            if annotation in (Any, object, None, types.NoneType):
                accepts_none = True
            return annotation, accepts_none, is_constrained
