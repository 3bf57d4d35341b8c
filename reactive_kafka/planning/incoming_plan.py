"""Plans an incoming channel with handlers, or without any functions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reactive_kafka.channel.blueprint import DecodeRecord, RecordReading
from reactive_kafka.channel.named_functions import key_of
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings
from reactive_kafka.delivery.skipping import filter_of
from reactive_kafka.errors import DecodeError, text_of
from reactive_kafka.formats import (
    Decoder,
    RecordDecoder,
    SchemaSource,
    decoder_for,
    framed_decoder,
    record_decoder_for,
    refused_tombstone,
)
from reactive_kafka.formats.format_names import REGISTERED_FORMATS
from reactive_kafka.formats.registered.wire_format import KEY_HEADER, framed
from reactive_kafka.handlers.predicates import takes_undecoded
from reactive_kafka.planning.channel_handlers import ChannelHandler, in_order, names_of
from reactive_kafka.planning.channel_plans import IncomingPlan
from reactive_kafka.planning.handler_plans import handler_plans
from reactive_kafka.planning.handler_settings import settings_with_handlers
from reactive_kafka.planning.outbox_rules import outbox_problems
from reactive_kafka.planning.problems import ProblemReport
from reactive_kafka.planning.schema_planning import registered_of, schemas_if_used
from reactive_kafka.planning.sharing import SharedPayload, shared_payload
from reactive_kafka.planning.transaction_rules import with_transactions
from reactive_kafka.records import RawRecord


def plan_incoming(
    handlers: Sequence[ChannelHandler],
    settings: IncomingSettings,
    outgoing: Mapping[str, OutgoingSettings],
) -> IncomingPlan:
    """Plan one channel.

    Args:
        handlers: Its handlers. None: the application iterates over it.
        outgoing: The outgoing Kafka channels of the application, which decide about transactions.

    Raises:
        ConfigError: All problems of the channel.
    """
    report = ProblemReport()
    handlers = in_order(handlers, settings)
    payload = shared_payload(handlers, settings.value_deserializer)
    configured_retry = settings.retry
    settings = settings_with_handlers(handlers, settings, report)
    values, keys = registered_of(settings, settings.topics[0] if settings.topics else "")

    def own_reading(handler: ChannelHandler) -> RecordReading:
        payload_type = handler.payload_type
        return _value_reading(handler.who, payload_type, settings, values, report)

    predicate = report.attempt("", filter_of, settings)
    reading = _reading(handlers, payload, settings, values, keys, report)
    rate = settings.rate_limit
    if not handlers and rate is not None and rate.by is not None:
        where = settings.place("rate_limit.by", rate.by)
        report.add(f"{where}: it needs a handler, and the application iterates over the channel")
    plan = IncomingPlan(
        settings,
        reading,
        handler_plans(handlers, payload, configured_retry, own_reading),
        key_of=report.attempt("", key_of, settings) if settings.ordering == "key" else None,
        filter=predicate,
        filters_undecoded=takes_undecoded(predicate),
    )
    plan = with_transactions(plan, names_of(handlers, settings), outgoing, report)
    report.add(*outbox_problems(plan, names_of(handlers, settings), outgoing))
    report.raise_if_any()
    return plan


def _reading(
    handlers: Sequence[ChannelHandler],
    payload: SharedPayload,
    settings: IncomingSettings,
    values: SchemaSource,
    keys: SchemaSource,
    report: ProblemReport,
) -> RecordReading:
    who = f"channel {settings.name!r}: key_deserializer"
    key_format = settings.key_deserializer or "bytes"
    decode_key = report.attempt(who, decoder_for, Any, key_format, keys)
    names = names_of(handlers, settings)
    reading = _value_reading(names, payload.payload_type, settings, values, report)
    formats = (settings.value_deserializer, settings.key_deserializer)
    reading = replace(reading, schemas=schemas_if_used(values, *formats))
    if decode_key is None:
        return reading
    return replace(reading, decode_key=_key_decoder(decode_key, settings.key_deserializer))


def _value_reading(
    who: str,
    payload_type: Any,
    settings: IncomingSettings,
    values: SchemaSource,
    report: ProblemReport,
) -> RecordReading:
    """Return how values of the channel are read into a type; of no use if there are problems."""
    decode = report.attempt(who, decoder_for, payload_type, settings.value_deserializer, values)
    if report:
        # The decoder may be missing, and those of records with headers are made from it.
        return RecordReading(payload_type=payload_type)
    return RecordReading(
        decode=decode,
        decode_record=_record_decoder(payload_type, settings, decode),
        refusal=refused_tombstone(payload_type) if decode is None else None,
        payload_type=payload_type,
    )


def _record_decoder(
    payload_type: Any, settings: IncomingSettings, decode: Decoder | None
) -> RecordDecoder | None:
    """Return what reads records with headers. None: they are read as all other records."""
    name = settings.value_deserializer
    if settings.cloud_events:
        return record_decoder_for(payload_type, name, decode)
    if decode is not None and name in REGISTERED_FORMATS:
        return framed_decoder(decode)
    return None


def _key_decoder(decode: Decoder, deserializer: str | None) -> DecodeRecord:
    """Return what reads the key of a record.

    A record without a key has none, whatever the format. An error says that it is about the key.
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
