"""Selects records by their headers before anything else looks at them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reactive_kafka.records import RawRecord


class HeaderFilter:
    """Selects the records that have all of some headers, each with an allowed value.

    If a record has several headers of a name, the last one counts.
    Source: Kafka's ``Headers.lastHeader``.

    Args:
        wanted: Header -> the values that are allowed.
    """

    def __init__(self, wanted: Mapping[str, Sequence[str]]) -> None:
        self._wanted = {
            name: frozenset(value.encode() for value in values) for name, values in wanted.items()
        }

    def selects(self, record: RawRecord) -> bool:
        """Return whether a record is selected."""
        found = dict(record.headers)
        return all(found.get(name) in values for name, values in self._wanted.items())

    def selected(
        self, records: Sequence[Any], offsets: Sequence[int]
    ) -> tuple[Sequence[Any], Sequence[int]]:
        """Return the records that are selected, and their offsets.

        For the tracker the others are a gap of the log, so the committed position passes them with
        the records around them.
        """
        kept = [index for index, record in enumerate(records) if self.selects(record)]
        if len(kept) == len(records):
            return records, offsets
        return [records[index] for index in kept], [offsets[index] for index in kept]


def header_filter_of(wanted: Mapping[str, Sequence[str]]) -> HeaderFilter | None:
    """Return the filter of a channel's ``filter_headers``; None if it is empty."""
    return HeaderFilter(wanted) if wanted else None
