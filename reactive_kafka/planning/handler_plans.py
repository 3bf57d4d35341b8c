"""Makes the plans of a channel's handlers. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reactive_kafka.channel.blueprint import RecordReading
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.handlers.predicates import takes_undecoded
from reactive_kafka.planning.channel_handlers import ChannelHandler
from reactive_kafka.planning.channel_plans import HandlerPlan
from reactive_kafka.planning.sharing import SharedPayload
from reactive_kafka.records import RawRecord

MakeReading = Callable[[ChannelHandler], RecordReading]


def handler_plans(
    handlers: Sequence[ChannelHandler],
    payload: SharedPayload,
    retry: RetrySettings,
    make_reading: MakeReading,
) -> tuple[HandlerPlan, ...]:
    """Return the plans of a channel's handlers, in their order.

    Args:
        retry: The retries of the channel, of which a decorator may say others.
        make_reading: Makes the reading of a handler that reads its own payload.
    """
    return tuple(
        HandlerPlan(
            handler.function,
            outgoing=handler.outgoing,
            retry=handler.decoration.retries(retry),
            middleware=handler.layers.around_calls(),
            send_middleware=handler.layers.around_sends(),
            when=handler.decoration.when,
            payload_types=payload_types,
            read=_own_reader(handler, payload, make_reading),
            sees_undecoded=takes_undecoded(handler.decoration.when),
        )
        for handler, payload_types in zip(handlers, payload.types_by_handler, strict=True)
    )


def _own_reader(
    handler: ChannelHandler, payload: SharedPayload, make_reading: MakeReading
) -> Callable[[RawRecord], Any] | None:
    if not payload.is_read_by_each or handler.payload_type == payload.payload_type:
        return None
    return make_reading(handler).read
