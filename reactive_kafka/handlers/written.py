"""Checks that what functions return, as annotated, can be written to their channels. No I/O."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reactive_kafka.config.settings import OutgoingSettings
from reactive_kafka.formats import FormatError
from reactive_kafka.formats.payload_type import is_union, payload_type_of
from reactive_kafka.formats.registered.codecs import check_written
from reactive_kafka.handlers.matches import Match
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.handlers.spec import SourceSpec
from reactive_kafka.outgoing.result_records import is_sent_whole


def unwritable(
    matches: Sequence[Match],
    sources: Sequence[SourceSpec],
    outgoing: Mapping[str, OutgoingSettings],
) -> Iterator[str]:
    """A problem for each type of a return annotation that has no schema of a channel's format.

    Without this the first such value would say so. A middleware may make another value of what was
    returned.
    """
    for match in matches:
        handler = match.handler
        if handler is not None and not handler.middleware and not handler.send_middleware:
            returned = _one_of(handler.returns) if handler.yields else handler.returns
            yield from _unwritable(
                name_and_place(handler.function), returned, match.outgoing, outgoing
            )
    for source in sources:
        if not source.send_middleware:
            yield from _unwritable(
                name_and_place(source.function), _one_of(source.returns), source.outgoing, outgoing
            )


def _unwritable(
    who: str, returned: Any, names: Sequence[str], outgoing: Mapping[str, OutgoingSettings]
) -> Iterator[str]:
    for name in names:
        settings = outgoing.get(name)
        if (
            settings is None
            or settings.value_serializer is None
            or settings.schema.file is not None
        ):
            continue
        for kind in _kinds(returned):
            try:
                check_written(settings.value_serializer, kind)
            except FormatError as error:
                yield f"@app.outgoing({name!r}) of {who}: {error}"


def _one_of(iterator: Any) -> Any:
    """What an ``AsyncIterator[X]`` yields."""
    return next(iter(typing.get_args(iterator)), Any)


def _kinds(returned: Any) -> Iterator[type]:
    """The classes of values; none for what is a record by itself, or has values inside."""
    base = payload_type_of(returned).base
    for member in typing.get_args(base) if is_union(base) else (base,):
        kind = payload_type_of(member).base
        if isinstance(kind, type) and not is_sent_whole(kind):
            yield kind
