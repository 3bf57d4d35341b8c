"""A wrapper that passes calls on to a consumer or a connector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ClientWrapper(Generic[T]):
    """Passes every method on to *inner*, except those that a subclass has.

    *inner* is a connector, or a consumer that has not started.
    """

    def __init__(self, inner: T) -> None:
        self._inner: T = inner

    # Returns methods, because the protocols of the seam have no other attributes.
    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._inner, name)  # type: ignore[no-any-return]
