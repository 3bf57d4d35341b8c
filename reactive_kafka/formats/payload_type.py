"""What an annotation asks for, without Optional, Annotated, NewType and aliases."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NewType, Union


@dataclass(frozen=True, slots=True)
class PayloadType:
    """An analysed annotation."""

    # The handler's; Any if there is none.
    annotation: Any
    # Without Optional, Annotated, NewType and aliases: str for Annotated[str, ...] | None.
    base: Any
    # And with it a record without a value (a tombstone)
    accepts_none: bool
    # There was an Annotated, so a value of the bare type may still not fit.
    constrained: bool

    @property
    def is_free(self) -> bool:
        """Whether any document fits: there is nothing in it that a model would check, or name."""
        free = (Any, object, dict, list, dict[str, Any], list[Any])
        return not self.constrained and any(self.base == one for one in free)

    @property
    def name(self) -> str:
        """The annotation for people: ``Order``, ``str | None``, ``dict[str, int]``."""
        return name_of(self.annotation)

    @property
    def tombstone_refusal(self) -> str | None:
        """Why a record without a value does not fit; None if it does, as None."""
        asks = f"the handler asks for {self.name}: annotate {self.name} | None to get None"
        return None if self.accepts_none else f"no value (a tombstone), but {asks}"


def payload_type_of(annotation: object) -> PayloadType:
    """Analyse *annotation*; a missing one asks for anything."""
    whole: Any = Any if annotation in (inspect.Parameter.empty, object) else annotation
    return PayloadType(whole, *_look_through(whole))


def name_of(annotation: Any) -> str:
    """*annotation* as a person would write it."""
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
    return "..." if annotation is ... else str(annotation).replace("typing.", "")


def parts_of(annotation: Any) -> Iterator[Any]:
    """*annotation* itself and its parts: the arguments of generics, the members of unions."""
    yield annotation
    for argument in typing.get_args(annotation):
        yield from parts_of(argument)


def has_struct(annotation: Any) -> bool:
    """Whether it is a struct of msgspec's, or has one among its parts."""
    # Imported by now if there is any struct.
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and any(
        isinstance(part, type)
        and typing.get_origin(part) is None
        and issubclass(part, msgspec.Struct)
        for part in parts_of(annotation)
    )


def is_union(annotation: Any) -> bool:
    """Whether it is written ``A | B``, ``Union[A, B]`` or ``Optional[A]``."""
    return typing.get_origin(annotation) in (Union, types.UnionType)


def _look_through(annotation: Any) -> tuple[Any, bool, bool]:
    """``base``, ``accepts_none`` and ``constrained`` of :class:`Wanted`."""
    accepts_none = constrained = False
    while True:
        if typing.get_origin(annotation) is Annotated:
            annotation = typing.get_args(annotation)[0]
            constrained = True
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            # "type X = ..." of Python 3.12.
            annotation = annotation.__value__
        elif is_union(annotation):
            members = typing.get_args(annotation)
            some = [member for member in members if member is not types.NoneType]
            accepts_none = accepts_none or any(_look_through(member)[1] for member in members)
            if len(some) != 1:
                return Union[tuple(some)], accepts_none, constrained  # noqa: UP007
            annotation = some[0]
        else:
            return (
                annotation,
                accepts_none or annotation in (Any, object, None, types.NoneType),
                constrained,
            )
