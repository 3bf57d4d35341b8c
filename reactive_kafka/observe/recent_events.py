"""Keeps the last events of each channel that people look for: rebalances, failures, changes.

Events are rare, so no record pays for this. Failures of records may come in a flood: repeats are
counted in one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

from reactive_kafka.errors import HandlerError
from reactive_kafka.observe.events.base import ChannelEvent, Event, Problem
from reactive_kafka.observe.events.channel_events import ChannelFailed, Rebalanced
from reactive_kafka.observe.events.record_events import (
    FailureEvent,
    RecordPoisoned,
    RecordPutOff,
    RecordsSkipped,
    SparkBatchEvent,
    StopWaits,
)
from reactive_kafka.records import TopicPartition

MOST_ENTRIES = 40
"""How many entries are kept for each channel and each kind of entry."""
MOST_CHANNELS = 2_000
"""How many channels have entries. Channels may be added while an application runs."""
TEXT_LENGTH = 500

EntryKind = Literal["rebalance", "failure", "change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """An event of a channel and its repeats."""

    kind: EntryKind
    # When it happened last, in seconds since the epoch.
    at: float
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LastError:
    """The last failure of a channel or of one of its records."""

    # Seconds since the epoch.
    at: float
    # The class of the exception, or of the event if there was no exception.
    type: str
    text: str
    # The record that failed. None: it was no record.
    record: tuple[TopicPartition, int] | None = None


class RecentEvents:
    """An observer that keeps the last events of each channel.

    Args:
        wall: Returns the time in seconds since the epoch.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        # Channel -> kind -> key of the event -> entry, the last entry at the end.
        self._entries: dict[str, dict[EntryKind, dict[Hashable, TimelineEntry]]] = {}
        self._errors: dict[str, LastError] = {}

    def on(self, event: Event) -> None:
        """Keep an event, if people look for it."""
        if not isinstance(event, ChannelEvent) or isinstance(event, _LEFT_OUT):
            return
        at = self._wall()
        kind = _kind(event)
        if event.channel not in self._entries:
            if len(self._entries) >= MOST_CHANNELS:
                return
            self._entries[event.channel] = {}
        if kind == "failure":
            kind_of_error = _type(event)
            # A reason often begins with the class of the error.
            text = _reason(event).removeprefix(f"{kind_of_error}: ")
            self._errors[event.channel] = LastError(
                at=at, type=kind_of_error, text=text[:TEXT_LENGTH], record=_record(event)
            )
        entries = self._entries[event.channel].setdefault(kind, {})
        key = _key(event)
        before = entries.pop(key, None)
        entries[key] = TimelineEntry(
            kind=kind,
            at=at,
            text=_text(event)[:TEXT_LENGTH],
            count=1 if before is None else before.count + 1,
        )
        if len(entries) > MOST_ENTRIES:
            del entries[next(iter(entries))]

    def last_error(self, channel: str) -> LastError | None:
        """Return the last failure of a channel, None if there was none."""
        return self._errors.get(channel)

    def timeline(self, channel: str) -> list[TimelineEntry]:
        """Return the entries of a channel, the newest first."""
        kinds = self._entries.get(channel, {}).values()
        entries = [entry for kept in kinds for entry in kept.values()]
        return sorted(entries, key=_at, reverse=True)


_LEFT_OUT = (RecordPutOff, RecordsSkipped, SparkBatchEvent, StopWaits)
"""Events that happen while all is well, and often."""


def _kind(event: ChannelEvent) -> EntryKind:
    if isinstance(event, Rebalanced):
        return "rebalance"
    if isinstance(event, Problem | FailureEvent | RecordPoisoned):
        return "failure"
    return "change"


def _key(event: ChannelEvent) -> Hashable:
    """Return what repeats have in common. A rebalance or a change has an entry of its own."""
    if isinstance(event, FailureEvent):
        # Failures of many partitions are one entry.
        return (type(event), event.kind())
    if isinstance(event, Problem | RecordPoisoned):
        return event.key()
    return object()


def _type(event: ChannelEvent) -> str:
    error = getattr(event, "error", None)
    return type(event if error is None else error).__qualname__


def _record(event: ChannelEvent) -> tuple[TopicPartition, int] | None:
    if isinstance(event, FailureEvent | RecordPoisoned):
        return event.partition, event.offset
    error = getattr(event, "error", None)
    if isinstance(error, HandlerError):
        return error.partition, error.offset
    return None


def _reason(event: ChannelEvent) -> str:
    if isinstance(event, FailureEvent | ChannelFailed):
        return event.reason
    return event.text()


def _text(event: ChannelEvent) -> str:
    if isinstance(event, FailureEvent):
        # Its own text is made for the log, and costs more than a flood of failures should.
        return f"{event.partition} offset {event.offset}: {event.reason}"
    return event.text()


def _at(entry: TimelineEntry) -> float:
    return entry.at
