"""A consumer and a connector that pass everything on: the bases of those that change some of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactive_kafka.broker.client import Connector, Consumer


class PassingConsumer:
    """Does what *inner*, a consumer that has not started, does, but for the methods that a subclass has of its own."""

    def __init__(self, inner: Consumer) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Any]:  # of methods: the seam has no other attributes
        return getattr(self._inner, name)  # type: ignore[no-any-return]


class PassingConnector:
    """Its producers and inspectors are those of *inner*; its consumers are a subclass's."""

    def __init__(self, inner: Connector) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self._inner, name)  # type: ignore[no-any-return]
