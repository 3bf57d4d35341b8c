"""Plans a memory channel. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reactive_kafka.channel.blueprint import RecordReading
from reactive_kafka.config.settings import MemorySettings, OutgoingSettings
from reactive_kafka.formats import checker_for, refused_tombstone
from reactive_kafka.planning.channel_handlers import ChannelHandler, in_order, names_of
from reactive_kafka.planning.channel_plans import MemoryPlan
from reactive_kafka.planning.handler_plans import handler_plans
from reactive_kafka.planning.handler_settings import settings_with_handlers
from reactive_kafka.planning.outbox_rules import outbox_of_memory
from reactive_kafka.planning.problems import ProblemReport
from reactive_kafka.planning.sharing import shared_payload
from reactive_kafka.planning.transaction_rules import transactional_outputs_of_memory


def plan_memory(
    handlers: Sequence[ChannelHandler],
    memory: MemorySettings,
    outgoing: Mapping[str, OutgoingSettings],
) -> MemoryPlan:
    """Plan one memory channel that has handlers. Its values come as objects and are only checked.

    Raises:
        ConfigError: All problems of the channel.
    """
    report = ProblemReport()
    configured = memory.as_incoming
    in_turn = in_order(handlers, configured)
    payload = shared_payload(in_turn, None, are_objects=True)
    settings = settings_with_handlers(in_turn, configured, report)
    names = names_of(in_turn, settings)
    # Where each handler reads its own payload, the channel itself checks nothing.
    payload_type = Any if payload.is_read_by_each else payload.payload_type

    def own_reading(handler: ChannelHandler) -> RecordReading:
        return _checking(handler.who, handler.payload_type, report)

    plan = MemoryPlan(
        settings,
        _checking(names, payload_type, report),
        handler_plans(in_turn, payload, configured.retry, own_reading),
    )
    for handler in handlers:
        report.add(*transactional_outputs_of_memory(handler, outgoing))
        report.add(*outbox_of_memory(handler, outgoing))
    report.raise_if_any()
    return plan


def _checking(who: str, payload_type: Any, report: ProblemReport) -> RecordReading:
    check = report.attempt(who, checker_for, payload_type)
    refusal = refused_tombstone(payload_type) if check is None else None
    return RecordReading(decode=check, refusal=refusal, payload_type=payload_type)
