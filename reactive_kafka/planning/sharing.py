"""The rules of channels with several handlers: whose a record is, and what they must agree on.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.formats.discriminated_unions import classes_of_annotation, discriminated_union
from reactive_kafka.formats.payload_type import name_of, payload_type_of
from reactive_kafka.planning.channel_handlers import ChannelHandler, choose_by_record
from reactive_kafka.planning.channel_plans import PayloadTypes


@dataclass(frozen=True, slots=True)
class SharedPayload:
    """What the values of a channel are read into, for all of its handlers.

    Attributes:
        payload_type: The type that a value is read into once, for all handlers.
        types_by_handler: The classes that each handler takes. ``()`` for all handlers: the class
            of a payload does not say whose a record is.
        is_read_by_each: The handlers' types have nothing in common, so each handler reads its own
            payload. *payload_type* is what ``when`` gets.
    """

    payload_type: Any
    types_by_handler: Sequence[PayloadTypes]
    is_read_by_each: bool = False


def shared_payload(
    handlers: Sequence[ChannelHandler], deserializer: str | None, *, are_objects: bool = False
) -> SharedPayload:
    """Return how the values of a channel are read.

    Args:
        are_objects: The values are objects already, as in a memory channel.
    """
    if not handlers:
        return SharedPayload(Any, ())
    payload_types = [handler.payload_type for handler in handlers]
    any_class: Sequence[PayloadTypes] = [()] * len(handlers)
    if all(payload_type == payload_types[0] for payload_type in payload_types):
        return SharedPayload(payload_types[0], any_class)
    union = discriminated_union(payload_types, are_objects=are_objects)
    if union is not None:
        classes = [classes_of_annotation(payload_type) or () for payload_type in payload_types]
        return SharedPayload(union, classes)
    takes_raw = any(
        payload_type_of(payload_type).base in (bytes, str) for payload_type in payload_types
    )
    as_bytes = deserializer is None and takes_raw
    return SharedPayload(bytes | None if as_bytes else Any, any_class, is_read_by_each=True)


def sharing_problems(
    handlers: Sequence[ChannelHandler], settings: IncomingSettings, *, are_objects: bool
) -> Iterator[str]:
    """Yield what keeps several handlers from sharing a channel."""
    if not choose_by_record(handlers):
        return
    for handler in handlers:
        if handler.takes_batches:
            yield (
                f"{handler.who}: a handler that takes batches must be the only one of its channel, "
                "without when=; divide the batch inside it"
            )
    acks = {handler.decoration.ack or settings.ack: handler.who for handler in handlers}
    if len(acks) > 1:
        modes = ", ".join(f"{who} has {ack!r}" for ack, who in acks.items())
        yield (
            f"channel {settings.name!r}: all of its handlers need the same ack mode, but {modes}"
        )
    if settings.broadcast:
        yield from _broadcast_problems(handlers, settings)
    else:
        yield from _overlap(handlers, settings, are_objects=are_objects)


def _broadcast_problems(
    handlers: Sequence[ChannelHandler], settings: IncomingSettings
) -> Iterator[str]:
    where = settings.place("broadcast", True)
    for handler in handlers:
        ack = handler.decoration.ack or settings.ack
        if ack != "post":
            yield (
                f"{where}: the record is acked when all handlers are done, so each of them needs "
                f"ack = 'post', but {handler.who} has {ack!r}"
            )
    if settings.commit_strategy == "checkpoint":
        yield (
            f'{where}: it does not go with commit_strategy = "checkpoint", whose states and '
            "transactions belong to one handler"
        )


def _overlap(
    handlers: Sequence[ChannelHandler], settings: IncomingSettings, *, are_objects: bool
) -> Iterator[str]:
    """Yield a problem for the first two handlers that would take the same record."""
    payload = shared_payload(handlers, settings.value_deserializer, are_objects=are_objects)
    unconditional = [
        (handler, classes)
        for handler, classes in zip(handlers, payload.types_by_handler, strict=True)
        if handler.decoration.when is None
    ]
    for (first, its_classes), (second, other_classes) in combinations(unconditional, 2):
        if its_classes and other_classes and not set(its_classes) & set(other_classes):
            continue
        types = f"{name_of(first.payload_type)} and {name_of(second.payload_type)}"
        yield (
            f"channel {settings.name!r} has two handlers: {first.who} and {second.who}; their "
            f"types ({types}) do not say which of them a record is for: give one of them when=, "
            "or types of a discriminated union, or set broadcast = true"
        )
        return


def handlers_taking_all(
    handlers: Sequence[ChannelHandler], settings: IncomingSettings
) -> list[ChannelHandler]:
    """Return one handler, or several together, that take every record.

    An empty list: there may be records that no handler takes.
    """
    payload = shared_payload(handlers, settings.value_deserializer)
    unconditional = [
        (handler, classes)
        for handler, classes in zip(handlers, payload.types_by_handler, strict=True)
        if handler.decoration.when is None
    ]
    for handler, classes in unconditional:
        if not classes:
            return [handler]
    all_classes = set(chain.from_iterable(payload.types_by_handler))
    if all_classes.difference(*(classes for _, classes in unconditional)):
        return []
    return [handler for handler, _ in unconditional]
