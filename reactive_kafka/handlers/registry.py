"""What an application was decorated with, and how it fits its settings: the plan that start-up carries out. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from reactive_kafka.channel.offset_metadata import MetadataReader
from reactive_kafka.checkpoint.codec import codec_for
from reactive_kafka.commit import strategy as commit_strategies
from reactive_kafka.config.schema import AckMode, IncomingSettings, OutgoingSettings, RetrySettings, Settings
from reactive_kafka.config.values import unknown_channel
from reactive_kafka.delivery.lane import KeyOf
from reactive_kafka.delivery.ordering import key_of
from reactive_kafka.errors import ConfigError, DecodeError, text_of
from reactive_kafka.failure import named as failure_strategies
from reactive_kafka.formats import Decoder, Encoder, FormatError, decoder_for, encoder_for, refused_tombstone
from reactive_kafka.handlers.signature import (
    HandlerDraft,
    HandlerSpec,
    Shape,
    draft_handler,
    local_names_at,
    name_and_place,
)
from reactive_kafka.spark.batches.function import SparkDecoration, SparkFunction

Function = Callable[..., Any]
Load = Callable[[IncomingSettings], object]
LOADED: tuple[Load, ...] = (
    key_of,
    MetadataReader,
    codec_for,
    commit_strategies.load_custom,
    failure_strategies.load_custom,
)
MADE: tuple[Load, ...] = (MetadataReader, codec_for, commit_strategies.strategy_for, failure_strategies.strategies_of)
"""What looks at all that a channel names by its place in a module, and what makes its strategies."""
BATCH_ROOM = 2
"""Batches that a channel has room for, where ``max_in_flight`` was not set: one that runs, one that fills.

A Spark channel has as many for each of its concurrent jobs.
"""


@dataclass(slots=True)
class Incoming:
    """One ``@app.incoming`` of a function."""

    channel: str
    ack: AckMode | None
    retry: RetrySettings | None


@dataclass(slots=True)
class Registration:
    """One decorated function; ``draft`` is there from its first ``@app.incoming`` on."""

    function: Function
    draft: HandlerDraft | None = None
    incoming: list[Incoming] = field(default_factory=list)
    outgoing: list[str] = field(default_factory=list)

    def look(self, caller: FrameType) -> None:
        """Look at the signature of a handler that is decorated in the scope *caller*.

        Raises:
            ConfigError: It is not one of a handler.
        """
        if self.draft is None:
            self.draft = draft_handler(self.function, local_names=local_names_at(caller, self.function))


@dataclass(frozen=True, slots=True)
class Consuming:
    """How one incoming channel is consumed; without a handler the application iterates over it.

    ``refusal`` is what is wrong with a record without a value, where no decoder is there to say so; ``key_of`` what
    records are ordered by, where that is not their partition.
    """

    settings: IncomingSettings
    plan: HandlerSpec | None
    decode: Decoder | None
    decode_key: Decoder | None
    outgoing: tuple[str, ...] = ()
    spark: SparkFunction | None = None
    refusal: str | None = None
    key_of: KeyOf | None = None

    @property
    def has_handler(self) -> bool:
        """Whether a function works on it; else it starts when the application iterates over it."""
        return self.plan is not None or self.spark is not None


@dataclass(frozen=True, slots=True)
class Sending:
    """How one outgoing channel is written."""

    settings: OutgoingSettings
    encode: Encoder
    encode_key: Encoder


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that start-up makes: channel name -> how it is consumed or written."""

    incoming: Mapping[str, Consuming]
    outgoing: Mapping[str, Sending]


@dataclass(frozen=True, slots=True)
class _Match:
    """The function of one channel: a handler with its plan and decorator, or a Spark function."""

    who: str
    plan: HandlerSpec | None = None
    decorated: Incoming | None = None
    outgoing: tuple[str, ...] = ()
    spark: SparkDecoration | None = None


class Registry:
    """The decorated functions of one application."""

    def __init__(self) -> None:
        self._registrations: dict[Hashable, Registration] = {}
        self.spark: dict[str, SparkDecoration] = {}

    def of(self, function: Function) -> Registration:
        """The entry of a function, made at its first decorator."""
        return self._registrations.setdefault(_identity(function), Registration(function))

    def misfits(self, settings: Settings) -> list[str]:
        """What is wrong with the functions and all that is named by its place in a module.

        It is for settings of which some may be missing: nothing is made of them.
        """
        problems = self._matched(settings)[1]
        for channel in settings.incoming.values():
            _check_named(channel, problems, by=LOADED)
        return list(dict.fromkeys(problems))

    def plan(self, settings: Settings) -> Plan:
        """Fit the functions to the settings.

        Raises:
            ConfigError: All that does not fit, at once.
        """
        matches, problems = self._matched(settings)
        incoming: dict[str, Consuming] = {}
        for name, match in matches.items():
            if match.spark is not None:
                incoming[name] = _spark_consuming(match, match.spark, settings.incoming[name], problems)
            else:
                incoming[name] = _consuming(match, settings.incoming[name], problems)
        for name, channel_settings in settings.incoming.items():
            if name not in incoming:
                decode = _decoder(channel_settings, Any, f"channel {name!r}", problems)
                decode_key = _key_decoder(channel_settings, problems)
                key = _key_of(channel_settings, problems)
                incoming[name] = Consuming(channel_settings, None, decode, decode_key, key_of=key)
        for channel_settings in settings.incoming.values():
            _check_named(channel_settings, problems, by=MADE)
        outgoing = {name: _sending(sending, problems) for name, sending in settings.outgoing.items()}
        if problems:
            raise ConfigError(*dict.fromkeys(problems))
        return Plan(incoming, outgoing)

    def _matched(self, settings: Settings) -> tuple[dict[str, _Match], list[str]]:
        """Channel -> its function, and what is wrong with names and signatures."""
        matches: dict[str, _Match] = {}
        problems: list[str] = []
        for entry in self._registrations.values():
            _match(entry, settings, matches, problems)
        for channel, decorated in self.spark.items():
            who = f"@app.spark({channel!r}) of {name_and_place(decorated.function)}"
            _add(_Match(who, spark=decorated), channel, settings, matches, problems)
        for channel, match in matches.items():
            if match.plan is not None and match.plan.shape is Shape.BATCH:
                _check_ordering(match, settings.incoming[channel], problems)
        return matches, problems


def _identity(function: Function) -> Hashable:
    """What stays the same while the function lives; each access to a method makes another object."""
    return (id(function.__self__), id(function.__func__)) if inspect.ismethod(function) else id(function)


def _match(entry: Registration, settings: Settings, matches: dict[str, _Match], problems: list[str]) -> None:
    who = name_and_place(entry.function)
    for name in entry.outgoing:
        if name not in settings.outgoing:
            problems.append(unknown(f"@app.outgoing({name!r}) of {who}", "outgoing", name, settings))
    if entry.draft is None:
        problems.append(f"{who} has @app.outgoing and no @app.incoming: a source of its own is not supported yet")
        return
    try:
        plan = entry.draft.plan(sends=bool(entry.outgoing))
    except ConfigError as error:
        problems += error.problems
        return
    for decorated in entry.incoming:
        match = _Match(f"@app.incoming({decorated.channel!r}) of {who}", plan, decorated, tuple(entry.outgoing))
        _add(match, decorated.channel, settings, matches, problems)


def _add(match: _Match, channel: str, settings: Settings, matches: dict[str, _Match], problems: list[str]) -> None:
    if channel not in settings.incoming:
        problems.append(unknown(match.who, "incoming", channel, settings))
    elif channel in matches:
        problems.append(f"channel {channel!r} has two handlers: {matches[channel].who} and {match.who}")
    else:
        matches[channel] = match


def _check_ordering(match: _Match, settings: IncomingSettings, problems: list[str]) -> None:
    if settings.ordering == "key":
        problems.append(
            f"{settings.place('ordering', settings.ordering)}: it orders single records, and {match.who} takes batches"
        )


def _consuming(match: _Match, settings: IncomingSettings, problems: list[str]) -> Consuming:
    who, plan, decorated, outgoing = match.who, match.plan, match.decorated, match.outgoing
    assert plan is not None and decorated is not None  # noqa: S101  # it is no Spark function
    settings = replace(settings, ack=decorated.ack or settings.ack, retry=decorated.retry or settings.retry)
    if settings.ack == "manual" and plan.shape is Shape.PAYLOAD:
        problems.append(f"{who}: ack = 'manual', and nobody could ack it: take Message[...] or Batch[...]")
    if settings.ack == "none" and settings.commit_strategy != "ignore":
        problems.append(
            f"{who}: ack = 'none' goes with commit_strategy = 'ignore' only, and it is {settings.commit_strategy!r}"
        )
    if plan.shape is Shape.BATCH:
        if outgoing:
            problems.append(f"{who}: a batch handler with @app.outgoing is not supported yet")
        settings = _with_room(settings, settings.batch_max_records * settings.concurrency, who, problems)
    decode = _decoder(settings, plan.payload_type, who, problems)
    return Consuming(
        settings,
        plan,
        decode,
        _key_decoder(settings, problems),
        outgoing,
        refusal=refused_tombstone(plan.payload_type) if decode is None else None,
        key_of=_key_of(settings, problems),
    )


def _spark_consuming(
    match: _Match, decorated: SparkDecoration, incoming: IncomingSettings, problems: list[str]
) -> Consuming:
    who = match.who
    _check_ordering(match, incoming, problems)  # only here: of a spark table, the settings have said so already
    if incoming.keep_out_of_order_acks:
        problems.append(
            f"{incoming.place('keep_out_of_order_acks', True)}: {who} has its batches stored as planned ranges, which "
            "come again whole: they have no acks to keep"
        )
    jobs = incoming.spark.max_concurrent_jobs
    incoming = _with_room(incoming, incoming.spark.batch_max_records, who, problems, batches=BATCH_ROOM * jobs)
    return Consuming(incoming, None, None, None, spark=decorated.planned(incoming, who, problems))


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


def _decoder(settings: IncomingSettings, wanted: Any, who: str, problems: list[str]) -> Decoder | None:
    try:
        return decoder_for(wanted, settings.value_deserializer)
    except FormatError as error:
        problems.append(f"{who}: {error}")
        return None


def _key_decoder(settings: IncomingSettings, problems: list[str]) -> Decoder | None:
    if settings.key_deserializer is None:
        return None
    try:
        decode = decoder_for(Any, settings.key_deserializer)
    except FormatError as error:
        problems.append(f"channel {settings.name!r}: key_deserializer: {error}")
        return None
    return None if decode is None else _of_keys(decode)


def _key_of(settings: IncomingSettings, problems: list[str]) -> KeyOf | None:
    if settings.ordering != "key":
        return None
    try:
        return key_of(settings)
    except ConfigError as error:
        problems += error.problems
        return None


def _check_named(settings: IncomingSettings, problems: list[str], *, by: tuple[Load, ...]) -> None:
    """Custom strategies are made when their channel starts; whether they can be is found out before."""
    for load in by:
        try:
            load(settings)
        except ConfigError as error:
            problems += error.problems


def _of_keys(decode: Decoder) -> Decoder:
    """A record without a key has none, whatever the format; and what does not fit says that it is the key."""

    def decode_key(key: bytes | None) -> object:
        try:
            return None if key is None else decode(key)
        except DecodeError as error:
            refused, cause = DecodeError(f"the record's key: {text_of(error)}"), error.__cause__
        refused.part = "key"
        raise refused from cause

    return decode_key


def _sending(settings: OutgoingSettings, problems: list[str]) -> Sending:
    encoders = []
    for key, serializer in (
        ("value_serializer", settings.value_serializer),
        ("key_serializer", settings.key_serializer),
    ):
        try:
            encoders.append(encoder_for(serializer))
        except FormatError as error:
            problems.append(f"channel {settings.name!r}: {key}: {error}")
            encoders.append(encoder_for(None))
    return Sending(settings, *encoders)


def unknown(who: str, kind: str, name: str, settings: Settings) -> str:
    """The error of a decorator, or of a call, that names a channel which is not configured."""
    known = settings.incoming if kind == "incoming" else settings.outgoing
    return f"{who}: no [{kind}.{name}] is configured in {settings.source}{unknown_channel(name, known)}"
