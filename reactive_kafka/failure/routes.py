"""Which failure strategy an exception meets: that of the nearest class that a route names. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from reactive_kafka.errors import DecodeError, OffloadError
from reactive_kafka.failure.headers import dotted, given


def strategy_for(reason: BaseException, routes: Mapping[str, str], default: str) -> str:
    """The strategy of the nearest class, counted from the exception's own along its bases; *default* without one.

    What a record that cannot be decoded failed with (``ValidationError``, say), or what a Spark function raised, is
    looked at beside our own error, and comes first where both are as near.

    Args:
        routes: Exception -> strategy. ``ValueError`` is any class of that name; ``package.ValueError`` the class that
            is defined there, or that can be imported from there.
    """
    reason = given(reason)
    found = [_nearest(type(reason), routes)]
    if isinstance(reason, DecodeError | OffloadError) and reason.__cause__ is not None:
        found.insert(0, _nearest(type(reason.__cause__), routes))
    near = [one for one in found if one is not None]
    return min(near, key=lambda one: one[0])[1] if near else default


def _nearest(kind: type[BaseException], routes: Mapping[str, str]) -> tuple[int, str] | None:
    """How far the nearest class is, and its strategy."""
    for distance, base in enumerate(kind.__mro__):
        for name, strategy in sorted(routes.items(), key=lambda route: "." not in route[0]):  # dotted ones say more
            if name == base.__name__ or name == dotted(base) or ("." in name and _is_exported(name, base)):
                return distance, strategy
    return None


def _is_exported(name: str, kind: type) -> bool:
    """Whether *name* is another way to import the class: ``pydantic.ValidationError`` is defined elsewhere."""
    module, _, attribute = name.rpartition(".")
    return getattr(sys.modules.get(module), "__dict__", {}).get(attribute) is kind  # asks no module's __getattr__
