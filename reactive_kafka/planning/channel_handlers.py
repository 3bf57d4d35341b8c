"""The declared functions of one channel, as the planners get them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.handlers.decorations import IncomingDecoration
from reactive_kafka.handlers.middleware import Layers
from reactive_kafka.handlers.signature import HandlerFunction, Shape

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkDecoration


@dataclass(frozen=True, slots=True)
class ChannelHandler:
    """One handler of a channel."""

    # The decorator and the function, for errors.
    who: str
    function: HandlerFunction
    decoration: IncomingDecoration
    # Names of the channels that its results are sent to.
    outgoing: tuple[str, ...]
    # The middleware of the application or router that the function was declared on.
    layers: Layers

    @property
    def payload_type(self) -> Any:
        """The type that it takes values as; Any: it takes them as they are."""
        return self.function.payload_type

    @property
    def takes_batches(self) -> bool:
        """Whether it is called with a Batch."""
        return self.function.shape is Shape.BATCH


@dataclass(frozen=True, slots=True)
class ChannelOnSpark:
    """The Spark function of a channel."""

    # The decorator and the function, for errors.
    who: str
    decoration: SparkDecoration


def names_of(handlers: Sequence[ChannelHandler], settings: IncomingSettings) -> str:
    """Return who consumes a channel, for errors: its handlers, or the channel itself."""
    if not handlers:
        return f"channel {settings.name!r}"
    return " and ".join(handler.who for handler in handlers)


def in_order(
    handlers: Sequence[ChannelHandler], settings: IncomingSettings
) -> list[ChannelHandler]:
    """Return handlers in the order in which they are offered a record.

    Those without ``when`` come last, as they would leave nothing to the others. A broadcast goes to
    all of them.
    """
    if settings.broadcast:
        return list(handlers)
    return sorted(handlers, key=lambda handler: handler.decoration.when is None)


def choose_by_record(handlers: Sequence[ChannelHandler]) -> bool:
    """Return whether a record does not simply go to the only handler of its channel."""
    return len(handlers) > 1 or any(handler.decoration.when is not None for handler in handlers)
