"""How an application's functions fit its settings: what start-up makes of each channel. No I/O.

Functions that take *problems* add to it what does not fit, and go on: start-up reports everything at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from reactive_kafka.channel.functions import MetadataReader, key_of
from reactive_kafka.checkpoint.states import codec_for
from reactive_kafka.commit import strategy as commits
from reactive_kafka.config.schema import AckMode, IncomingSettings, MemorySettings, OutgoingSettings
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.delivery.lane import KeyOf
from reactive_kafka.errors import ConfigError, DecodeError, text_of
from reactive_kafka.failure import strategies as failures
from reactive_kafka.formats import (
    Decoder,
    Encoder,
    FormatError,
    RecordDecoder,
    Registered,
    Schemas,
    checker_for,
    decoder_for,
    encoder_for,
    framed_decoder,
    record_decoder_for,
    refused_tombstone,
)
from reactive_kafka.formats.names import REGISTERED_FORMATS, load_function
from reactive_kafka.formats.registered.schemas import KEY_HEADER, framed
from reactive_kafka.formats.texts import text_source
from reactive_kafka.handlers.depends import Need
from reactive_kafka.handlers.middleware import Layers, Middleware
from reactive_kafka.handlers.signature import HandlerSpec, Shape
from reactive_kafka.outgoing.outbox import Partitioner
from reactive_kafka.records import RawRecord
from reactive_kafka.spark.batches.function import SparkDecoration, SparkFunction

T = TypeVar("T")
KeyDecoder = Callable[[RawRecord], object]
Load = Callable[[IncomingSettings], object]
LOADED: tuple[Load, ...] = (key_of, MetadataReader, codec_for, commits.load_custom, failures.load_custom)
"""They import what a channel's settings name as ``module:function``."""
MADE: tuple[Load, ...] = (MetadataReader, codec_for, commits.strategy_for, failures.strategies_of)
"""They also make the channel's strategies, which takes settings that are complete."""
BATCH_ROOM = 2
"""Batches that a channel, or each job on Spark, has room for if ``max_in_flight`` is not set: one runs, one fills."""


@dataclass(frozen=True, slots=True)
class IncomingSpec:
    """How one incoming channel is consumed; without a handler the application iterates over it."""

    settings: IncomingSettings
    handler: HandlerSpec | None
    decode: Decoder | None
    decode_key: KeyDecoder | None
    decode_record: RecordDecoder | None = None  # of records with headers; None: as all others
    outgoing: tuple[str, ...] = ()
    spark: SparkFunction | None = None
    refusal: str | None = None  # of a record without a value, if no decoder is there to say so
    key_of: KeyOf | None = None  # what records are ordered by, with ordering = "key"
    transactional_id: str | None = None  # what its handler sends, and its positions, are transactions under this id
    schemas: Schemas | None = None  # those of a registry; None: its formats have none

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
    values: Registered | None = None  # where the schemas of its formats come from; None: they have none


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A function that only sends: what its call yields goes to each of its channels."""

    function: Callable[..., AsyncIterator[Any]]
    name: str  # module and qualified name, for logs and errors
    outgoing: tuple[str, ...]
    returns: Any = Any  # as annotated; Any if that says nothing
    needs: tuple[Need, ...] = ()  # what it is called with, by name
    send_middleware: tuple[Middleware, ...] = ()  # around each record, the first outermost


@dataclass(frozen=True, slots=True)
class AppSpec:
    """Everything that start-up makes: channel name -> how it is consumed or written."""

    incoming: Mapping[str, IncomingSpec]
    outgoing: Mapping[str, OutgoingSpec]
    sources: Sequence[SourceSpec] = ()
    warnings: Sequence[str] = ()  # what is allowed, and hardly meant
    unfed: tuple[str, ...] = ()  # outgoing channels that no @app.outgoing names
    memory: Mapping[str, IncomingSpec] = field(default_factory=dict)  # name -> how what goes in is handled


@dataclass(frozen=True, slots=True)
class Incoming:
    """One ``@app.incoming`` of a function."""

    channel: str
    ack: AckMode | None = None
    retry: RetrySettings | None = None
    layers: Layers = field(default_factory=Layers)  # of the application or router that it was declared on


@dataclass(frozen=True, slots=True)
class Match:
    """The function of one channel: a handler with its decorator, or a Spark function; or neither."""

    who: str
    decorated: Incoming
    handler: HandlerSpec | None = None
    outgoing: tuple[str, ...] = ()
    spark: SparkDecoration | None = None


def incoming_spec(match: Match | None, settings: IncomingSettings, problems: list[str]) -> IncomingSpec:
    """How one channel is consumed."""
    match = match or Match(f"channel {settings.name!r}", Incoming(settings.name))
    if match.spark is not None:
        return _on_spark(match, match.spark, settings, problems)
    wanted: Any = Any
    if match.handler is not None:
        settings, wanted = _handled(match, match.handler, settings, problems), match.handler.payload_type
    who = f"channel {settings.name!r}: key_deserializer"
    values, keys = _registered(settings, settings.topics[0] if settings.topics else "")
    decode_key = tried(who, problems, decoder_for, Any, settings.key_deserializer or "bytes", keys)
    decode = tried(match.who, problems, decoder_for, wanted, settings.value_deserializer, values)
    decode_record = None
    if not problems:
        decode_record = _record_decoder(wanted, settings, decode)
    return IncomingSpec(
        settings,
        match.handler,
        decode,
        None if decode_key is None else _of_keys(decode_key, settings.key_deserializer),
        decode_record,
        match.outgoing,
        refusal=refused_tombstone(wanted) if decode is None else None,
        key_of=tried("", problems, key_of, settings) if settings.ordering == "key" else None,
        schemas=_if_used(values, settings.value_deserializer, settings.key_deserializer),
    )


def _registered(settings: IncomingSettings | OutgoingSettings, topic: str) -> tuple[Registered, Registered]:
    """Where the schemas of a channel's values come from, and those of its keys."""
    schema = settings.schema
    values = Registered(Schemas(settings.name), topic, "value", schema.file, schema.subject, schema.register)
    return values, replace(values, part="key", file=None)


def _record_decoder(wanted: Any, settings: IncomingSettings, decode: Decoder | None) -> RecordDecoder | None:
    """What reads records with headers; None: they are read as all others are."""
    name = settings.value_deserializer
    if settings.cloud_events:
        return record_decoder_for(wanted, name, decode)
    return framed_decoder(decode) if decode is not None and name in REGISTERED_FORMATS else None


def _if_used(values: Registered, *formats: str | None) -> Schemas | None:
    return values.schemas if any(name in REGISTERED_FORMATS for name in formats) else None


def memory_spec(match: Match, memory: MemorySettings, problems: list[str]) -> IncomingSpec | None:
    """How what goes into a memory channel is handled: values come as objects, which are checked, not decoded."""
    handler = match.handler
    if handler is None:
        return None
    settings, wanted = _handled(match, handler, memory.as_incoming, problems), handler.payload_type
    check = tried(match.who, problems, checker_for, wanted)
    refusal = refused_tombstone(wanted) if check is None else None
    return IncomingSpec(settings, handler, check, None, outgoing=match.outgoing, refusal=refusal)


def _handled(match: Match, handler: HandlerSpec, settings: IncomingSettings, problems: list[str]) -> IncomingSettings:
    """The settings of a channel with a handler: what its decorator says, and room for its batches."""
    who, ack, retry = match.who, match.decorated.ack, match.decorated.retry
    settings = replace(settings, ack=ack or settings.ack, retry=retry or settings.retry)
    if settings.ack == "manual" and handler.shape is Shape.PAYLOAD:
        problems.append(f"{who}: ack = 'manual', and nobody could ack it: take Message[...] or Batch[...]")
    if settings.ack == "none" and settings.commit_strategy != "ignore":
        problems.append(
            f"{who}: ack = 'none' goes with commit_strategy = 'ignore' only, and it is {settings.commit_strategy!r}"
        )
    if handler.shape is not Shape.BATCH:
        return settings
    return _with_room(settings, settings.batch_max_records * settings.concurrency, who, problems)


def _on_spark(match: Match, spark: SparkDecoration, incoming: IncomingSettings, problems: list[str]) -> IncomingSpec:
    check_ordering(match, incoming, problems)  # only here: of a spark table, the settings have said so already
    if incoming.keep_out_of_order_acks:
        problems.append(
            f"{incoming.place('keep_out_of_order_acks', True)}: {match.who} has its batches stored as planned ranges, "
            "which come again whole: they have no acks to keep"
        )
    batches = BATCH_ROOM * incoming.spark.max_concurrent_jobs
    incoming = _with_room(incoming, incoming.spark.batch_max_records, match.who, problems, batches=batches)
    values, _ = _registered(incoming, incoming.topics[0] if incoming.topics else "")
    reads, texts = incoming.value_deserializer if spark.needs_texts(incoming) else None, None
    if reads is not None:
        texts = tried(match.who, problems, text_source, reads, values, incoming.cloud_events)
    planned = spark.planned(incoming, match.who, problems, texts)
    return IncomingSpec(incoming, None, None, None, spark=planned, schemas=_if_used(values, reads))


def _with_room(
    settings: IncomingSettings, records: int, who: str, problems: list[str], *, batches: int = BATCH_ROOM
) -> IncomingSettings:
    """Room for whole batches: a smaller ``max_in_flight`` would never let one fill."""
    if not settings.max_in_flight_is_set:
        return replace(settings, max_in_flight=max(settings.max_in_flight, batches * records))
    if settings.max_in_flight < records:
        problems.append(
            f"{who}: max_in_flight = {settings.max_in_flight} never lets a batch fill; it takes {records} at least"
        )
    return settings


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
    """Load what the settings name, now: custom strategies are made again when their channel starts."""
    for load in by:
        tried("", problems, load, settings)


def _of_keys(decode: Decoder, deserializer: str | None) -> KeyDecoder:
    """A record without a key has none, whatever the format; and what does not fit says that it is the key."""
    may_be_framed = deserializer in REGISTERED_FORMATS

    def decode_key(record: RawRecord) -> object:
        key = record.key
        try:
            if may_be_framed and record.headers:
                key = framed(key, record.headers, KEY_HEADER)
            return None if key is None else decode(key)
        except DecodeError as error:
            refused, cause = DecodeError(f"the record's key: {text_of(error)}"), error.__cause__
        refused.part = "key"
        raise refused from cause

    return decode_key


def outgoing_spec(settings: OutgoingSettings, problems: list[str]) -> OutgoingSpec:
    """How one channel is written."""
    values, keys = _registered(settings, settings.topic)
    encoders = [
        tried(f"channel {settings.name!r}: {key}", problems, encoder_for, getattr(settings, key), source)
        or encoder_for(None)
        for key, source in (("value_serializer", values), ("key_serializer", keys))
    ]
    is_used = _if_used(values, settings.value_serializer, settings.key_serializer) is not None
    who, named = f"channel {settings.name!r}: partitioner", settings.partitioner
    partitioner = None if named is None else tried(who, problems, load_function, named)
    found = cast("Partitioner | None", partitioner)
    return OutgoingSpec(settings, encoders[0], encoders[1], found, values if is_used else None)


def check_ordering(match: Match, settings: IncomingSettings, problems: list[str]) -> None:
    """Batches have no order by key."""
    if settings.ordering == "key":
        problems.append(
            f"{settings.place('ordering', settings.ordering)}: it orders single records, and {match.who} takes batches"
        )
