"""How the handlers of an incoming channel fit its settings, and how its records are read for them.
No I/O.

Functions that take *problems* add to it what does not fit, as those of :mod:`.spec` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reactive_kafka.channel.functions import key_of
from reactive_kafka.config.settings import IncomingSettings, MemorySettings
from reactive_kafka.delivery.skipping import filter_of
from reactive_kafka.errors import DecodeError, text_of
from reactive_kafka.formats import (
    Decoder,
    RecordDecoder,
    SchemaSource,
    checker_for,
    decoder_for,
    framed_decoder,
    record_decoder_for,
    refused_tombstone,
)
from reactive_kafka.formats.format_names import REGISTERED_FORMATS
from reactive_kafka.formats.registered.wire_format import KEY_HEADER, framed
from reactive_kafka.handlers.matches import (
    BranchSpec,
    Incoming,
    Match,
    Reading,
    in_order,
    is_chosen,
    reading_of,
)
from reactive_kafka.handlers.signature import HandlerSpec, Shape
from reactive_kafka.handlers.spec import (
    IncomingSpec,
    KeyDecoder,
    check_ordering,
    if_used,
    registered,
    tried,
)
from reactive_kafka.records import RawRecord

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkDecoration

BATCH_ROOM = 2
"""Batches that a channel, or each job on Spark, has room for if ``max_in_flight`` is not set: one
runs, one fills.
"""


def incoming_spec(
    matches: Sequence[Match], settings: IncomingSettings, problems: list[str]
) -> IncomingSpec:
    """How one channel is consumed."""
    matches = in_order(matches, settings) or [
        Match(f"channel {settings.name!r}", Incoming(settings.name))
    ]
    for match in matches:
        if match.spark is not None:
            return _on_spark(match, match.spark, settings, problems)
    reading = reading_of(matches, settings.value_deserializer)
    settings = _all_handled(matches, settings, problems)
    who = f"channel {settings.name!r}: key_deserializer"
    names = " and ".join(match.who for match in matches)
    values, keys = registered(settings, settings.topics[0] if settings.topics else "")
    decode_key = tried(who, problems, decoder_for, Any, settings.key_deserializer or "bytes", keys)
    decode = tried(names, problems, decoder_for, reading.asked, settings.value_deserializer, values)
    decode_record = None
    if not problems:
        decode_record = _record_decoder(reading.asked, settings, decode)
    return IncomingSpec(
        settings,
        matches[0].handler,
        decode,
        None if decode_key is None else _of_keys(decode_key, settings.key_deserializer),
        decode_record,
        _outgoing_of(matches),
        refusal=refused_tombstone(reading.asked) if decode is None else None,
        key_of=tried("", problems, key_of, settings) if settings.ordering == "key" else None,
        schemas=if_used(values, settings.value_deserializer, settings.key_deserializer),
        asked=reading.asked,
        branches=_branches(
            matches, reading, settings, problems, partial(_own_reader, settings, values)
        ),
        filter=tried("", problems, filter_of, settings),
    )


def _outgoing_of(matches: Sequence[Match]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for match in matches for name in match.outgoing))


def _branches(
    matches: Sequence[Match],
    reading: Reading,
    settings: IncomingSettings,
    problems: list[str],
    reader: Callable[[Match, list[str]], Callable[[RawRecord], Any] | None],
) -> tuple[BranchSpec, ...]:
    """The handlers among which a record is given to one, or to several; none: one handler has them
    all.
    """
    if not is_chosen(matches):
        return ()
    return tuple(
        BranchSpec(
            match.handler,
            match.outgoing,
            match.decorated.retries(settings.retry),
            match.decorated.when,
            kinds,
            reader(match, problems)
            if reading.is_plain and match.payload_type != reading.asked
            else None,
        )
        for match, kinds in zip(matches, reading.kinds, strict=True)
        if match.handler is not None
    )


def _own_reader(
    settings: IncomingSettings, values: SchemaSource, match: Match, problems: list[str]
) -> Callable[[RawRecord], Any] | None:
    """What reads the payload of one handler, whose type is no other's."""
    asked = match.payload_type
    decode = tried(match.who, problems, decoder_for, asked, settings.value_deserializer, values)
    return None if problems else _reader(asked, decode, _record_decoder(asked, settings, decode))


def _own_checker(match: Match, problems: list[str]) -> Callable[[RawRecord], Any]:
    """The same of a memory channel."""
    return _reader(
        match.payload_type, tried(match.who, problems, checker_for, match.payload_type), None
    )


def _reader(
    asked: Any, decode: Decoder | None, decode_record: RecordDecoder | None
) -> Callable[[RawRecord], Any]:
    refusal = refused_tombstone(asked) if decode is None else None

    def read(record: RawRecord) -> Any:
        if decode_record is not None and record.headers:
            payload = decode_record(record)
        else:
            payload = record.value if decode is None else decode(record.value)
        if payload is None and refusal is not None:
            raise DecodeError(refusal)
        return payload

    return read


def _record_decoder(
    wanted: Any, settings: IncomingSettings, decode: Decoder | None
) -> RecordDecoder | None:
    """What reads records with headers; None: they are read as all others are."""
    name = settings.value_deserializer
    if settings.cloud_events:
        return record_decoder_for(wanted, name, decode)
    return framed_decoder(decode) if decode is not None and name in REGISTERED_FORMATS else None


def memory_spec(
    matches: Sequence[Match], memory: MemorySettings, problems: list[str]
) -> IncomingSpec:
    """How what goes into a memory channel is handled: values come as objects, which are checked,
    not decoded.
    """
    settings = memory.as_incoming
    matches = in_order(matches, settings)
    reading = reading_of(matches, None, are_objects=True)
    settings = _all_handled(matches, settings, problems)
    asked = Any if reading.is_plain else reading.asked
    check = tried(" and ".join(match.who for match in matches), problems, checker_for, asked)
    refusal = refused_tombstone(asked) if check is None else None
    branches = _branches(matches, reading, settings, problems, _own_checker)
    outgoing = _outgoing_of(matches)
    handler = matches[0].handler
    return IncomingSpec(
        settings,
        handler,
        check,
        None,
        outgoing=outgoing,
        refusal=refusal,
        asked=asked,
        branches=branches,
    )


def _all_handled(
    matches: Sequence[Match], settings: IncomingSettings, problems: list[str]
) -> IncomingSettings:
    """The settings of a channel with these handlers; the retries of several are each handler's
    own.
    """
    made = [
        _handled(match, match.handler, settings, problems)
        for match in matches
        if match.handler is not None
    ]
    if not made:
        return settings
    return replace(made[0], retry=settings.retry) if is_chosen(matches) else made[0]


def _handled(
    match: Match, handler: HandlerSpec, settings: IncomingSettings, problems: list[str]
) -> IncomingSettings:
    """The settings of a channel with a handler: what its decorator says, and room for its
    batches.
    """
    who = match.who
    ack = match.decorated.ack
    settings = replace(
        settings, ack=ack or settings.ack, retry=match.decorated.retries(settings.retry)
    )
    if settings.ack == "manual" and handler.shape is Shape.PAYLOAD:
        problems.append(
            f"{who}: ack = 'manual', and nobody could ack it: take Message[...] or Batch[...]"
        )
    if settings.ack == "none" and settings.commit_strategy != "ignore":
        problems.append(
            f"{who}: ack = 'none' goes with commit_strategy = 'ignore' only, and it is {settings.commit_strategy!r}"
        )
    if handler.shape is not Shape.BATCH:
        return settings
    return _with_room(settings, settings.batch_max_records * settings.concurrency, who, problems)


def _on_spark(
    match: Match, spark: SparkDecoration, incoming: IncomingSettings, problems: list[str]
) -> IncomingSpec:
    # Only here: of a spark table, the settings have said so already.
    check_ordering(match, incoming, problems)
    if incoming.keep_out_of_order_acks:
        problems.append(
            f"{incoming.place('keep_out_of_order_acks', True)}: {match.who} has its batches stored as planned ranges, "
            "which come again whole: they have no acks to keep"
        )
    for key, value in (("filter", incoming.filter), ("max_record_age", incoming.max_record_age_s)):
        if value is not None:
            why = "gets whole batches: filter the DataFrame in it"
            problems.append(f"{incoming.place(key, value)}: {match.who} {why}")
    batches = BATCH_ROOM * incoming.spark.max_concurrent_jobs
    incoming = _with_room(
        incoming, incoming.spark.batch_max_records, match.who, problems, batches=batches
    )
    values, _ = registered(incoming, incoming.topics[0] if incoming.topics else "")
    reads = incoming.value_deserializer if spark.needs_texts(incoming) else None
    texts = None
    if reads is not None:
        from reactive_kafka.formats.json_text import text_source

        texts = tried(match.who, problems, text_source, reads, values, incoming.cloud_events)
    planned = spark.planned(incoming, match.who, problems, texts)
    return IncomingSpec(incoming, None, None, None, spark=planned, schemas=if_used(values, reads))


def _with_room(
    settings: IncomingSettings,
    records: int,
    who: str,
    problems: list[str],
    *,
    batches: int = BATCH_ROOM,
) -> IncomingSettings:
    """Room for whole batches: a smaller ``max_in_flight`` would never let one fill."""
    if not settings.max_in_flight_is_set:
        return replace(settings, max_in_flight=max(settings.max_in_flight, batches * records))
    if settings.max_in_flight < records:
        problems.append(
            f"{who}: max_in_flight = {settings.max_in_flight} never lets a batch fill; it takes {records} at least"
        )
    return settings


def _of_keys(decode: Decoder, deserializer: str | None) -> KeyDecoder:
    """A record without a key has none, whatever the format; and what does not fit says that it is
    the key.
    """
    may_be_framed = deserializer in REGISTERED_FORMATS

    def decode_key(record: RawRecord) -> object:
        key = record.key
        try:
            if may_be_framed and record.headers:
                key = framed(key, record.headers, KEY_HEADER)
            return None if key is None else decode(key)
        except DecodeError as error:
            refused = DecodeError(f"the record's key: {text_of(error)}")
            cause = error.__cause__
        refused.part = "key"
        raise refused from cause

    return decode_key
