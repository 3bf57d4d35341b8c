"""How an application's functions fit its settings: what start-up makes of each channel. No I/O.

Functions that take *problems* add to it what does not fit, and go on: start-up reports everything
at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from reactive_kafka.channel.functions import MetadataReader, key_of
from reactive_kafka.checkpoint.states import codec_for
from reactive_kafka.commit import strategy as commits
from reactive_kafka.config.schema import IncomingSettings, OutgoingSettings
from reactive_kafka.delivery.lanes.lane import KeyOf
from reactive_kafka.delivery.skipping import Filter, filter_of
from reactive_kafka.errors import ConfigError
from reactive_kafka.failure import strategies as failures
from reactive_kafka.formats import (
    Decoder,
    Encoder,
    FormatError,
    RecordDecoder,
    Registered,
    Schemas,
    encoder_for,
)
from reactive_kafka.formats.cloudevents import text_problem
from reactive_kafka.formats.names import REGISTERED_FORMATS, load_function
from reactive_kafka.handlers.dependencies.depends import Need
from reactive_kafka.handlers.matches import BranchSpec, Match
from reactive_kafka.handlers.middleware import Middleware
from reactive_kafka.handlers.signature import HandlerSpec
from reactive_kafka.outgoing.outbox import Partitioner
from reactive_kafka.records import RawRecord

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.function import SparkFunction

T = TypeVar("T")
KeyDecoder = Callable[[RawRecord], object]
Load = Callable[[IncomingSettings], object]
LOADED: tuple[Load, ...] = (
    key_of,
    filter_of,
    MetadataReader,
    codec_for,
    commits.load_custom,
    failures.load_custom,
)
"""They import what a channel's settings name as ``module:function``."""
MADE: tuple[Load, ...] = (MetadataReader, codec_for, commits.strategy_for, failures.strategies_of)
"""They also make the channel's strategies, which takes settings that are complete."""


@dataclass(frozen=True, slots=True)
class IncomingSpec:
    """How one incoming channel is consumed; without a handler the application iterates over it."""

    settings: IncomingSettings
    handler: HandlerSpec | None
    decode: Decoder | None
    decode_key: KeyDecoder | None
    # Of records with headers; None: as all others.
    decode_record: RecordDecoder | None = None
    outgoing: tuple[str, ...] = ()
    spark: SparkFunction | None = None
    # Of a record without a value, if no decoder is there to say so.
    refusal: str | None = None
    # What records are ordered by, with ordering = "key"
    key_of: KeyOf | None = None
    # What its handler sends, and its positions, are transactions under this id.
    transactional_id: str | None = None
    # Those of a registry; None: its formats have none.
    schemas: Schemas | None = None
    # The type that its values are read into.
    asked: Any = Any
    # Its handlers, where they are chosen by the record; (): ``handler`` has all.
    branches: tuple[BranchSpec, ...] = ()
    # What says which records are skipped.
    filter: Filter | None = None

    @property
    def handlers(self) -> tuple[HandlerSpec, ...]:
        """All of them; ``handler`` is the first."""
        if self.branches:
            return tuple(branch.handler for branch in self.branches)
        return () if self.handler is None else (self.handler,)

    def outgoing_of(self, handler: HandlerSpec) -> tuple[str, ...]:
        """The channels that one of its handlers sends to."""
        return next(
            (one.outgoing for one in self.branches if one.handler is handler), self.outgoing
        )

    @property
    def is_shared(self) -> bool:
        """Whether a record goes to several handlers."""
        return self.settings.broadcast and len(self.branches) > 1

    @property
    def has_handler(self) -> bool:
        """Whether a function consumes it, as a handler or on Spark."""
        return self.handler is not None or self.spark is not None


@dataclass(frozen=True, slots=True)
class OutgoingSpec:
    """How one outgoing channel is written."""

    settings: OutgoingSettings
    encode: Encoder
    encode_key: Encoder
    partitioner: Partitioner | None = None
    # Where the schemas of its formats come from; None: they have none.
    values: Registered | None = None


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A function that only sends: what its call yields goes to each of its channels."""

    function: Callable[..., AsyncIterator[Any]]
    # Module and qualified name, for logs and errors.
    name: str
    outgoing: tuple[str, ...]
    # As annotated; Any if that says nothing.
    returns: Any = Any
    # What it is called with, by name.
    needs: tuple[Need, ...] = ()
    # Around each record, the first outermost.
    send_middleware: tuple[Middleware, ...] = ()


@dataclass(frozen=True, slots=True)
class AppSpec:
    """Everything that start-up makes: channel name -> how it is consumed or written."""

    incoming: Mapping[str, IncomingSpec]
    outgoing: Mapping[str, OutgoingSpec]
    sources: Sequence[SourceSpec] = ()
    # What is allowed, and hardly meant.
    warnings: Sequence[str] = ()
    # Outgoing channels that no @app.outgoing names.
    unfed: tuple[str, ...] = ()
    # Name -> how what goes in is handled.
    memory: Mapping[str, IncomingSpec] = field(default_factory=dict)


def registered(
    settings: IncomingSettings | OutgoingSettings, topic: str
) -> tuple[Registered, Registered]:
    """Where the schemas of a channel's values come from, and those of its keys."""
    schema = settings.schema
    values = Registered(
        Schemas(settings.name), topic, "value", schema.file, schema.subject, schema.register
    )
    return values, replace(values, part="key", file=None)


def if_used(values: Registered, *formats: str | None) -> Schemas | None:
    return values.schemas if any(name in REGISTERED_FORMATS for name in formats) else None


def tried(who: str, problems: list[str], make: Callable[..., T], *given: Any) -> T | None:
    """What *make* makes of what is given; None, with a problem, if it cannot."""
    try:
        return make(*given)
    except FormatError as error:
        problems.append(f"{who}: {error}")
    except ConfigError as error:
        problems += error.problems
    return None


def check_named(settings: IncomingSettings, problems: list[str], *, by: tuple[Load, ...]) -> None:
    """Load what the settings name, now: custom strategies are made again when their channel
    starts.
    """
    for load in by:
        tried("", problems, load, settings)


def outgoing_spec(settings: OutgoingSettings, problems: list[str]) -> OutgoingSpec:
    """How one channel is written."""
    values, keys = registered(settings, settings.topic)
    encoders = [
        tried(
            f"channel {settings.name!r}: {key}",
            problems,
            encoder_for,
            getattr(settings, key),
            source,
        )
        or encoder_for(None)
        for key, source in (("value_serializer", values), ("key_serializer", keys))
    ]
    is_used = if_used(values, settings.value_serializer, settings.key_serializer) is not None
    who = f"channel {settings.name!r}: partitioner"
    named = settings.partitioner
    partitioner = None if named is None else tried(who, problems, load_function, named)
    found = cast("Partitioner | None", partitioner)
    problems += event_problems(settings)
    return OutgoingSpec(settings, encoders[0], encoders[1], found, values if is_used else None)


def event_problems(settings: OutgoingSettings) -> list[str]:
    """What the channel's table gives to events and no event may have."""
    events = settings.cloud_events
    if events is None:
        return []
    given = (
        ("source", "source", events.source),
        ("data_content_type", "datacontenttype", events.data_content_type),
        ("data_schema", "dataschema", events.data_schema),
    )
    return [
        f"[outgoing.{settings.name}.cloud_events] {key} = {value!r}: it {problem}"
        for key, attribute, value in given
        if value is not None and (problem := text_problem(attribute, value))
    ]


def check_ordering(match: Match, settings: IncomingSettings, problems: list[str]) -> None:
    """Batches have no order by key."""
    if settings.ordering == "key":
        problems.append(
            f"{settings.place('ordering', settings.ordering)}: it orders single records, and {match.who} takes batches"
        )
