"""The rules of handlers whose outputs are rows of their transaction: an outbox. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from reactive_kafka.config import store_urls
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.planning.channel_handlers import ChannelHandler
from reactive_kafka.planning.channel_plans import HandlerPlan, IncomingPlan, SourcePlan

REQUIRED_SETTINGS = (
    ("commit_strategy", "checkpoint"),
    ("ordering", "partition"),
    ("ack", "post"),
    ("keep_out_of_order_acks", False),
    ("broadcast", False),
)
"""What a channel has to be set to. Its transactions follow each other in each partition."""

STORES = (*store_urls.SQL, "memory")
"""The schemes of stores whose transactions take events. Those in memory are for tests."""


def outbox_problems(
    plan: IncomingPlan, who: str, outgoing: Mapping[str, OutgoingSettings]
) -> Iterator[str]:
    """Yield what keeps the handlers of a channel from sending to an outbox.

    Args:
        who: The handlers of the channel, for errors.
        outgoing: The outgoing Kafka channels of the application.
    """
    boxes = outboxes(outgoing)
    used = [name for name in plan.outgoing if name in boxes]
    if not used:
        return
    begin = f"{who} sends to [outgoing.{used[0]}], which has outbox = true"
    for why in _unfit_settings(plan.settings):
        yield f"{begin}: {why}"
    for handler in plan.handlers:
        yield from _unfit_handler(handler, boxes)


def outboxes(outgoing: Mapping[str, OutgoingSettings]) -> frozenset[str]:
    """Return the names of the channels that have an outbox."""
    return frozenset(name for name, settings in outgoing.items() if settings.outbox)


def _unfit_settings(settings: IncomingSettings) -> Iterator[str]:
    for key, required in REQUIRED_SETTINGS:
        value = getattr(settings, key)
        if value != required:
            where = settings.place(key, value)
            yield f"it needs {key} = {_as_written(required)}, and {where} is given"
    checkpoint = settings.checkpoint
    if checkpoint is not None:
        store = store_urls.shown(checkpoint.store)
        if store_urls.scheme_of(store) not in STORES:
            where = settings.place("checkpoint.store", store)
            yield f"{where}: it needs a store at postgresql:// or sqlite://"
    if settings.delayed_retry is not None:
        yield (
            "records of retry topics have no transaction: use retry in place of a "
            "delayed-retry-topic"
        )


def _unfit_handler(plan: HandlerPlan, boxes: Collection[str]) -> Iterator[str]:
    used = [name for name in plan.outgoing if name in boxes]
    others = [name for name in plan.outgoing if name not in boxes]
    if not used:
        return
    place = name_and_place(plan.handler.function)
    if others:
        yield (
            f"{place} sends to {used[0]!r}, which has an outbox, and to {others[0]!r}, which has "
            "none: what a handler sends is one transaction, so give all of its channels one, or "
            "none"
        )
    if not plan.handler.is_async and not plan.handler.yields:
        yield (
            f"{place} sends to {used[0]!r}, which has an outbox: a transaction needs the event "
            "loop, so make the handler async"
        )


def outbox_of_memory(
    handler: ChannelHandler, outgoing: Mapping[str, OutgoingSettings]
) -> Iterator[str]:
    """Yield a problem for each outbox that a handler of a memory channel sends to."""
    for name in handler.outgoing:
        if name in outboxes(outgoing):
            yield (
                f"{handler.who} takes values of a memory channel, and [outgoing.{name}] has outbox "
                "= true: an event goes with the position of a record; have the handler of the "
                "record send it"
            )


def outbox_without_handler(
    sources: Collection[SourcePlan],
    emitters: Collection[str],
    outgoing: Mapping[str, OutgoingSettings],
) -> Iterator[str]:
    """Yield a problem for each outbox that a source or an emitter sends to."""
    for name in sorted(outboxes(outgoing)):
        senders = [
            f"@app.outgoing({name!r}) of {source.name}"
            for source in sources
            if name in source.outgoing
        ]
        if name in emitters:
            senders.append(f"app.emitter({name!r})")
        for sender in senders:
            yield f"{sender}: {emitter_problem(name)}"


def emitter_problem(name: str) -> str:
    """Return why nothing but a handler may send to an outbox."""
    return (
        f"[outgoing.{name}] has outbox = true: its events are rows of a handler's transaction; "
        "send them from the handler, or to a channel of its own without an outbox"
    )


def _as_written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'
