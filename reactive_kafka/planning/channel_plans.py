"""The plans of an application's channels: what start-up builds them from. No I/O.

A plan is a frozen value. The settings and the declarations are checked and fitted to each other in
it, so code that builds a channel from it asks neither of them again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.key_hashes import KeyHash
from reactive_kafka.channel.blueprint import RecordReading
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.delivery.lanes.lane import KeyOf
from reactive_kafka.delivery.skipping import Filter
from reactive_kafka.formats import Encoder, SchemaSource
from reactive_kafka.handlers.decorations import When
from reactive_kafka.handlers.dependencies.depends import Need
from reactive_kafka.handlers.middleware import Middleware
from reactive_kafka.handlers.signature import HandlerFunction
from reactive_kafka.outgoing.queue.send_queue import Partitioner
from reactive_kafka.records import RawRecord

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkFunction

PayloadTypes = tuple[type, ...]


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """How one handler of a channel is called, and what is done with what it returns."""

    handler: HandlerFunction
    # Names of the channels that its results are sent to.
    outgoing: tuple[str, ...] = ()
    retry: RetrySettings = field(default_factory=RetrySettings)
    # Around each call, the first outermost. It takes the message or the batch.
    middleware: tuple[Middleware, ...] = ()
    # Around each record that the handler sends, the first outermost.
    send_middleware: tuple[Middleware, ...] = ()
    # Which records it takes. None: it takes what no handler before it has taken.
    when: When | None = None
    # The classes of its payloads, where these say whose a record is. Empty: they do not.
    payload_types: PayloadTypes = ()
    # Reads its own payload. None: it takes the payload that the channel has read for all handlers.
    read: Callable[[RawRecord], Any] | None = None
    # *when* takes messages whose payload is the bytes of the record.
    sees_undecoded: bool = False


@dataclass(frozen=True, slots=True)
class IncomingPlan:
    """How one Kafka channel is consumed: by handlers, by Spark, or by an application that iterates.

    The application iterates over a channel that has neither handlers nor a Spark function.
    """

    settings: IncomingSettings
    reading: RecordReading
    # In the order in which records are offered to them.
    handlers: tuple[HandlerPlan, ...] = ()
    spark: SparkFunction | None = None
    # The key that records are ordered by, with ordering = "key".
    key_of: KeyOf | None = None
    # False skips a record.
    filter: Filter | None = None
    # *filter* takes messages whose payload is the bytes of the record.
    filters_undecoded: bool = False
    # The id of the transactions that contain what its handler sends and its positions.
    transactional_id: str | None = None

    @property
    def has_handler(self) -> bool:
        """Whether a function consumes it, as a handler or on Spark."""
        return bool(self.handlers) or self.spark is not None

    @property
    def handler_names(self) -> tuple[str, ...]:
        """The names of the functions that consume it."""
        names = tuple(one.handler.name for one in self.handlers)
        if self.spark is not None:
            function = self.spark.function
            names = (*names, f"{function.__module__}.{function.__qualname__}")
        return names

    @property
    def outgoing(self) -> tuple[str, ...]:
        """The channels that its handlers send to, each once."""
        return channels_fed_by(self.handlers)

    @property
    def is_broadcast(self) -> bool:
        """Whether each record goes to several handlers."""
        return self.settings.broadcast and len(self.handlers) > 1


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How the values of one memory channel are handled."""

    # The settings that a Kafka channel of the same behaviour would have.
    settings: IncomingSettings
    # Checks values, which come as objects.
    reading: RecordReading
    handlers: tuple[HandlerPlan, ...]

    @property
    def outgoing(self) -> tuple[str, ...]:
        """The channels that its handlers send to, each once."""
        return channels_fed_by(self.handlers)

    @property
    def is_broadcast(self) -> bool:
        """Whether each value goes to several handlers."""
        return self.settings.broadcast and len(self.handlers) > 1


@dataclass(frozen=True, slots=True)
class OutgoingPlan:
    """How one outgoing channel is written."""

    settings: OutgoingSettings
    encode: Encoder
    encode_key: Encoder
    partitioner: KeyHash | Partitioner | None = None
    # Where the schemas of its formats come from. None: its formats have no schemas.
    registered: SchemaSource | None = None


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A function that only sends: what it yields goes to each of its channels."""

    function: Callable[..., AsyncIterator[Any]]
    # Module and qualified name, for logs and errors.
    name: str
    outgoing: tuple[str, ...]
    # What it returns, as annotated. Any: it has no annotation that can be read.
    returns: Any = Any
    # The parameters that dependencies fill.
    needs: tuple[Need, ...] = ()
    # Around each record that it sends, the first outermost.
    send_middleware: tuple[Middleware, ...] = ()


@dataclass(frozen=True, slots=True)
class AppPlan:
    """The plans of all channels and sources of an application, by name of the channel."""

    incoming: Mapping[str, IncomingPlan]
    outgoing: Mapping[str, OutgoingPlan]
    sources: Sequence[SourcePlan] = ()
    # What is allowed, but is hardly meant. One line each.
    warnings: Sequence[str] = ()
    # Outgoing channels that no @app.outgoing names.
    unfed: tuple[str, ...] = ()
    memory: Mapping[str, MemoryPlan] = field(default_factory=dict)

    @property
    def handlers(self) -> list[HandlerPlan]:
        """The handlers of all channels, of memory channels too."""
        channels: list[IncomingPlan | MemoryPlan] = [
            *self.incoming.values(),
            *self.memory.values(),
        ]
        return [handler for channel in channels for handler in channel.handlers]


def is_chosen(handlers: Sequence[HandlerPlan]) -> bool:
    """Return whether a record does not simply go to the only handler of its channel."""
    return len(handlers) > 1 or any(handler.when is not None for handler in handlers)


def channels_fed_by(handlers: Sequence[HandlerPlan]) -> tuple[str, ...]:
    """Return the names of the channels that handlers send to, each once."""
    return tuple(dict.fromkeys(name for handler in handlers for name in handler.outgoing))
