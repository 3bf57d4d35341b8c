"""The settings of a channel as its functions change them: acks, retries, room for batches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.handlers.signature import Shape
from reactive_kafka.planning.channel_handlers import ChannelHandler, choose_by_record
from reactive_kafka.planning.problems import ProblemReport

BATCHES_IN_FLIGHT = 2
"""How many batches a channel, or each job on Spark, has room for if ``max_in_flight`` is not set:
one runs while the next one fills.
"""


def settings_with_handlers(
    handlers: Sequence[ChannelHandler], settings: IncomingSettings, report: ProblemReport
) -> IncomingSettings:
    """Return the settings of a channel with these handlers.

    Where several handlers share the channel, each keeps its retries to itself.
    """
    # Each handler is checked, and the first one says what the channel does: if they disagree, that
    # is a problem, and the settings are not used.
    changed = [_settings_with(handler, settings, report) for handler in handlers]
    if not changed:
        return settings
    if choose_by_record(handlers):
        return replace(changed[0], retry=settings.retry)
    return changed[0]


def _settings_with(
    handler: ChannelHandler, settings: IncomingSettings, report: ProblemReport
) -> IncomingSettings:
    who = handler.who
    decoration = handler.decoration
    settings = replace(
        settings,
        ack=decoration.ack or settings.ack,
        retry=decoration.retries(settings.retry),
    )
    if settings.ack == "manual" and handler.function.shape is Shape.PAYLOAD:
        report.add(
            f"{who}: ack = 'manual' needs a parameter that can be acked: take Message[...] or "
            "Batch[...]"
        )
    if settings.ack == "none" and settings.commit_strategy != "ignore":
        report.add(
            f"{who}: ack = 'none' goes with commit_strategy = 'ignore' only, but it is "
            f"{settings.commit_strategy!r}"
        )
    if not handler.takes_batches:
        return settings
    records = settings.batch_max_records * settings.concurrency
    return with_room_for(records, BATCHES_IN_FLIGHT, settings, who, report)


def with_room_for(
    records: int, batches: int, settings: IncomingSettings, who: str, report: ProblemReport
) -> IncomingSettings:
    """Return settings with room for batches in ``max_in_flight``, unless the user has set that.

    Args:
        records: How many records one batch has at most. A smaller ``max_in_flight`` would never
            let a batch fill.
    """
    if not settings.max_in_flight_is_set:
        return replace(settings, max_in_flight=max(settings.max_in_flight, batches * records))
    if settings.max_in_flight < records:
        report.add(
            f"{who}: max_in_flight = {settings.max_in_flight} never lets a batch fill; set it to "
            f"{records} at least"
        )
    return settings
