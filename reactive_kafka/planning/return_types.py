"""Checks that what functions return, as annotated, can be written to their channels. No I/O."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reactive_kafka.config.settings import OutgoingSettings
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.payload_type import is_union, payload_type_of
from reactive_kafka.formats.registered.codecs import check_written
from reactive_kafka.formats.sent_values import is_sent_whole
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.planning.channel_handlers import ChannelHandler
from reactive_kafka.planning.channel_plans import SourcePlan


def types_without_schema(
    handlers: Sequence[ChannelHandler],
    sources: Sequence[SourcePlan],
    outgoing: Mapping[str, OutgoingSettings],
) -> Iterator[str]:
    """Yield a problem for each annotated type that the format of a channel has no schema for.

    Without this the first such value would fail. Functions with middleware are not judged: it may
    make another value of what they return.
    """
    for handler in handlers:
        if handler.layers.around_calls() or handler.layers.around_sends():
            continue
        function = handler.function
        returned = _item_of(function.returns) if function.yields else function.returns
        who = name_and_place(function.function)
        yield from _types_without_schema(who, returned, handler.outgoing, outgoing)
    for source in sources:
        if not source.send_middleware:
            who = name_and_place(source.function)
            yield from _types_without_schema(
                who, _item_of(source.returns), source.outgoing, outgoing
            )


def _types_without_schema(
    who: str, returned: Any, names: Sequence[str], outgoing: Mapping[str, OutgoingSettings]
) -> Iterator[str]:
    for name in names:
        settings = outgoing.get(name)
        if settings is None or settings.value_serializer is None:
            continue
        if settings.schema.file is not None:
            # The schema of the file decides then, and not the class.
            continue
        for kind in _classes_in(returned):
            try:
                check_written(settings.value_serializer, kind)
            except FormatError as error:
                yield f"@app.outgoing({name!r}) of {who}: {error}"


def _item_of(iterator: Any) -> Any:
    """Return what an annotated ``AsyncIterator[X]`` yields: X, or Any."""
    return next(iter(typing.get_args(iterator)), Any)


def _classes_in(returned: Any) -> Iterator[type]:
    """Yield the classes of the values that an annotation promises.

    None for a Record, and for what has values inside.
    """
    base = payload_type_of(returned).base
    members = typing.get_args(base) if is_union(base) else (base,)
    for member in members:
        kind = payload_type_of(member).base
        if isinstance(kind, type) and not is_sent_whole(kind):
            yield kind
