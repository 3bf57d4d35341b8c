"""How a message of Kafka is described: fields, their types, and the versions that have them. Pure.

The terms are those of Kafka's own definitions.
Source: ``clients/src/main/resources/common/message`` of Kafka, and the README there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

NEWEST = 0x7FFF
"""The end of a range without an end: versions are 16-bit numbers."""


@dataclass(frozen=True)
class VersionRange:
    """The versions from *first* to *last*, both included. An empty range has *last* < *first*."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        if self.last == NEWEST:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def shared_with(self, other: VersionRange) -> VersionRange:
        """Return the versions that both have."""
        return VersionRange(max(self.first, other.first), min(self.last, other.last))


@cache
def versions_of(text: str) -> VersionRange:
    """Read a range as Kafka writes it: ``0-4``, ``3``, ``2+`` or ``none``."""
    if text == "none":
        return VersionRange(0, -1)
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), NEWEST)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


# The default of a field whose definition names none.
OF_THE_TYPE: Final = object()


class WireField(NamedTuple):
    """A field of a message, or of a struct in it.

    Args:
        name: In snake case.
        type: Kafka's name of the type: ``int32``, ``string``, the name of a struct, or ``[]`` and
            one of these.
        versions: Versions of the message that have the field.
        nullable: Versions in which it may be None.
        tagged: Versions in which it is a tagged field: it is left out if it has its default.
        tag: Its number among the tagged fields.
        default: Used if no value is given, and if the version does not have the field. Without it,
            that is zero, empty, or the defaults of the struct's fields.
        ignorable: A version without the field drops its value. Else only the default can be sent.
        flexible: Versions with the compact form, if they are not those of the message.
        fields: Of a struct.
    """

    name: str
    type: str
    versions: str
    nullable: str = "none"
    tagged: str = "none"
    tag: int | None = None
    default: Any = OF_THE_TYPE
    ignorable: bool = False
    flexible: str | None = None
    fields: tuple[WireField, ...] = ()


@dataclass(frozen=True, eq=False)
class WireMessage:
    """A request, a response, or a message inside of another.

    Args:
        name: As in Kafka's definitions.
        versions: All versions that it has.
        flexible: Versions with compact lengths and tagged fields.
        fields: In the order of the wire.
    """

    name: str
    versions: str
    flexible: str
    fields: tuple[WireField, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Api:
    """A request and the response to it. Both have the same versions."""

    key: int
    request: WireMessage
    response: WireMessage
