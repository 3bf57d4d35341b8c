"""Plans an outgoing channel. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from reactive_kafka.broker.key_hashes import KEY_HASHES
from reactive_kafka.config.settings import OutgoingSettings
from reactive_kafka.formats import Encoder, SchemaSource, encoder_for
from reactive_kafka.formats.cloudevents import text_problem
from reactive_kafka.formats.user_objects import load_function
from reactive_kafka.outgoing.queue.send_queue import Partitioner
from reactive_kafka.planning.channel_plans import OutgoingPlan
from reactive_kafka.planning.problems import ProblemReport
from reactive_kafka.planning.schema_planning import registered_of, schemas_if_used


def plan_outgoing(settings: OutgoingSettings) -> OutgoingPlan:
    """Plan one channel.

    Raises:
        ConfigError: All problems of the channel.
    """
    report = ProblemReport()
    values, keys = registered_of(settings, settings.topic)
    encode = _encoder("value_serializer", settings.value_serializer, values, settings, report)
    encode_key = _encoder("key_serializer", settings.key_serializer, keys, settings, report)
    schemas = schemas_if_used(values, settings.value_serializer, settings.key_serializer)
    partitioner = None
    key_hash = KEY_HASHES.get(settings.partitioner or "")
    if settings.partitioner is not None and key_hash is None:
        who = f"channel {settings.name!r}: partitioner"
        partitioner = report.attempt(who, load_function, settings.partitioner)
    report.add(*_event_problems(settings))
    report.raise_if_any()
    return OutgoingPlan(
        settings,
        encode,
        encode_key,
        partitioner=key_hash or cast("Partitioner | None", partitioner),
        registered=None if schemas is None else values,
    )


def _encoder(
    key: str,
    serializer: str | None,
    registered: SchemaSource,
    settings: OutgoingSettings,
    report: ProblemReport,
) -> Encoder:
    who = f"channel {settings.name!r}: {key}"
    encode = report.attempt(who, encoder_for, serializer, registered)
    return encode or encoder_for(None)


def _event_problems(settings: OutgoingSettings) -> Iterator[str]:
    """Yield which attributes the channel's table gives to its CloudEvents and no event may have."""
    events = settings.cloud_events
    if events is None:
        return
    attributes = (
        ("source", "source", events.source),
        ("data_content_type", "datacontenttype", events.data_content_type),
        ("data_schema", "dataschema", events.data_schema),
    )
    for key, attribute, value in attributes:
        problem = None if value is None else text_problem(attribute, value)
        if problem:
            where = f"[outgoing.{settings.name}.cloud_events]"
            yield f"{where} {key} = {value!r}: it {problem}"
