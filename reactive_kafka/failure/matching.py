"""What an exception means to settings that name classes: what stands at the nearest one. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TypeVar

from reactive_kafka.errors import DecodeError, OffloadError
from reactive_kafka.failure.headers import dotted, given

T = TypeVar("T")


def nearest(reason: BaseException, named: Mapping[str, T], default: T) -> T:
    """What *named* says of the nearest class, counted from the exception's own along its bases;
    else *default*.

    What a record that cannot be decoded failed with (``ValidationError``, say), or what a Spark
    function raised, is looked at beside our own error, and comes first where both are as near. As a
    name ``ValueError`` is any class of that name; ``package.ValueError`` the class that is defined
    there, or that can be imported from there.
    """
    if not named:
        return default
    reason = given(reason)
    found = [_nearest(type(reason), named)]
    if isinstance(reason, DecodeError | OffloadError) and reason.__cause__ is not None:
        found.insert(0, _nearest(type(reason.__cause__), named))
    near = [one for one in found if one is not None]
    return min(near, key=lambda one: one[0])[1] if near else default


def _nearest(kind: type[BaseException], named: Mapping[str, T]) -> tuple[int, T] | None:
    """How far the nearest class is, and what is said of it."""
    for distance, base in enumerate(kind.__mro__):
        # Dotted ones say more.
        for name, said in sorted(named.items(), key=lambda item: "." not in item[0]):
            if (
                name == base.__name__
                or name == dotted(base)
                or ("." in name and _is_exported(name, base))
            ):
                return distance, said
    return None


def _is_exported(name: str, kind: type) -> bool:
    """Whether *name* is another way to import the class: ``pydantic.ValidationError`` is defined
    elsewhere.
    """
    module, _, attribute = name.rpartition(".")
    # Asks no module's __getattr__.
    return getattr(sys.modules.get(module), "__dict__", {}).get(attribute) is kind
