"""The functions that an application or a router was decorated with. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.decorations import IncomingDecoration
from reactive_kafka.handlers.middleware import Layers
from reactive_kafka.handlers.signature import HandlerDraft, draft_handler, local_names_at

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkDecoration

Function = Callable[..., Any]


@dataclass(slots=True)
class DeclaredFunction:
    """One decorated function, and what its decorators say."""

    function: Function
    # Read by its first @app.incoming. None: it has none, or its @app.incoming has raised.
    draft: HandlerDraft | None = None
    incoming: list[IncomingDecoration] = field(default_factory=list)
    # The channels of its @app.outgoing decorators.
    outgoing: list[str] = field(default_factory=list)
    # The middleware of the application or router of its first @app.outgoing.
    layers: Layers | None = None

    def read_signature(self, caller: FrameType) -> None:
        """Read the signature of a handler that is decorated in the scope *caller*."""
        if self.draft is None:
            self.draft = draft_handler(
                self.function, local_names=local_names_at(caller, self.function)
            )

    def add(self, other: DeclaredFunction) -> None:
        """Take over what the decorators of another application or router say of this function."""
        self.draft = self.draft or other.draft
        self.incoming += other.incoming
        self.outgoing += other.outgoing
        self.layers = self.layers or other.layers


class DeclaredFunctions:
    """All decorated functions of one application or router."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, DeclaredFunction] = {}
        # Channel -> its Spark function.
        self.spark: dict[str, SparkDecoration] = {}

    def __bool__(self) -> bool:
        return bool(self._entries or self.spark)

    @property
    def entries(self) -> list[DeclaredFunction]:
        """The functions that are not on Spark, in the order of their first decorators."""
        return list(self._entries.values())

    def entry_of(self, function: Function) -> DeclaredFunction:
        """Return the entry of a function, which its first decorator creates."""
        return self._entries.setdefault(_identity(function), DeclaredFunction(function))

    def known(self, function: Function) -> DeclaredFunction:
        """Return the entry of a function, or an empty one if nothing has decorated it."""
        return self._entries.get(_identity(function)) or DeclaredFunction(function)

    def take(self, other: DeclaredFunctions) -> None:
        """Take over the functions of another application or router.

        Raises:
            ConfigError: Both have a Spark function for a channel. Nothing was taken over then.
        """
        if twice := other.spark.keys() & self.spark.keys():
            raise ConfigError(*(_two_on_spark(channel) for channel in sorted(twice)))
        self.spark |= other.spark
        for identity, theirs in other._entries.items():
            self._entries.setdefault(identity, DeclaredFunction(theirs.function)).add(theirs)

    def add_spark(self, channel: str, decoration: SparkDecoration) -> None:
        """Note the Spark function of a channel.

        Raises:
            ConfigError: The channel has one already.
        """
        if channel in self.spark:
            raise ConfigError(_two_on_spark(channel))
        self.spark[channel] = decoration


def _two_on_spark(channel: str) -> str:
    return f"channel {channel!r} has two Spark functions"


def _identity(function: Function) -> Hashable:
    """Return a key that stays the same while the function lives.

    Each access to a bound method creates another object, so the id of a method is not enough.
    """
    if inspect.ismethod(function):
        return (id(function.__self__), id(function.__func__))
    return id(function)
