"""Remembers what happened to single records that did not simply succeed: failures, retries, skips.

Records that were acked at their first attempt leave nothing here, so they pay nothing for it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from reactive_kafka.errors import HandlerError
from reactive_kafka.observe.events.base import ChannelEvent, Event
from reactive_kafka.observe.events.channel_events import ActionTaken, ChannelFailed
from reactive_kafka.observe.events.record_events import (
    FailureEvent,
    HandlerRetried,
    OutputLost,
    PoisonSettled,
    RecordDeadLettered,
    RecordDelayed,
    RecordIgnored,
    RecordLeft,
    RecordPoisoned,
    RecordPutOff,
)
from reactive_kafka.records import TopicPartition

MOST_RECORDS = 2_000
"""How many records are remembered."""
MOST_ENTRIES = 10
"""How many of its last events are remembered of one record."""
TEXT_LENGTH = 300

Ending = Literal["dead-letter", "delayed", "put-off", "ignored", "skipped", "output-lost", "failed"]
"""What became of a record, as far as an event says it.

- ``dead-letter``: it was written to the dead-letter topic.
- ``delayed``: it was nacked and written to a retry topic; ``put-off``: its handler asked for that.
- ``ignored``: it was nacked, and counts as settled.
- ``skipped``: an operator has skipped it.
- ``output-lost``: it was settled, and its output could not be written.
- ``failed``: its channel has stopped for it, or it was left uncommitted.
"""


@dataclass(frozen=True, slots=True)
class PastEvent:
    """Something that happened to one record."""

    # Seconds since the epoch.
    at: float
    text: str
    # None: that was not its end.
    ending: Ending | None = None
    # The topic that it was written to.
    to: str | None = None
    # The number of the attempt that comes next.
    next_attempt: int | None = None


class RecordPasts:
    """An observer that remembers the last records to which something happened.

    Args:
        wall: Returns the time in seconds since the epoch.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        # The record that something happened to last is at the end.
        self._records: OrderedDict[tuple[str, TopicPartition, int], tuple[PastEvent, ...]] = (
            OrderedDict()
        )
        self._has_forgotten = False

    @property
    def has_forgotten(self) -> bool:
        """Whether there were more records than are remembered."""
        return self._has_forgotten

    def of(self, channel: str, partition: TopicPartition, offset: int) -> tuple[PastEvent, ...]:
        """Return what happened to a record in a channel, the oldest first."""
        return self._records.get((channel, partition, offset), ())

    def on(self, event: Event) -> None:
        """Remember an event, if it is about one record."""
        if not isinstance(event, ChannelEvent):
            return
        found = _past_of(event, self._wall())
        if found is None:
            return
        partition, offset, past = found
        key = (event.channel, partition, offset)
        before = self._records.pop(key, ())
        self._records[key] = (*before, past)[-MOST_ENTRIES:]
        if len(self._records) > MOST_RECORDS:
            self._records.popitem(last=False)
            self._has_forgotten = True


_Found = tuple[TopicPartition, int, PastEvent]


def _past_of(event: ChannelEvent, at: float) -> _Found | None:
    """Return the record that an event is about, and its entry; None: it is about no record."""
    if isinstance(event, FailureEvent):
        return event.partition, event.offset, _failure(event, at)
    if isinstance(event, RecordPoisoned):
        text = f"it became poison after {event.age_s:.1f} s with its handler"
        return event.partition, event.offset, PastEvent(at, text)
    if isinstance(event, PoisonSettled):
        text = f"it was settled after {event.age_s:.1f} s, and is no longer poison"
        return event.partition, event.offset, PastEvent(at, text)
    if isinstance(event, ChannelFailed) and isinstance(event.error, HandlerError):
        error = event.error
        text = f"the channel stopped for it: {event.reason}"[:TEXT_LENGTH]
        return error.partition, error.offset, PastEvent(at, text, "failed")
    if isinstance(event, ActionTaken):
        return _skipped(event, at)
    return None


def _failure(event: FailureEvent, at: float) -> PastEvent:
    why = event.reason[:TEXT_LENGTH]
    if isinstance(event, HandlerRetried):
        text = f"attempt {event.attempt} failed, the next one came in {event.wait_s:g} s: {why}"
        return PastEvent(at, text, next_attempt=event.attempt + 1)
    if isinstance(event, RecordPutOff):
        text = f"its handler put it off for {event.delay_s:g} s, through {event.to}"
        return PastEvent(at, text, "put-off", event.to)
    if isinstance(event, RecordDelayed):
        text = f"it was nacked, and written to {event.to} for a retry in {event.delay_s:g} s: {why}"
        return PastEvent(at, text, "delayed", event.to)
    if isinstance(event, RecordDeadLettered):
        text = f"it was nacked, and became a dead letter in {event.to}: {why}"
        return PastEvent(at, text, "dead-letter", event.to)
    if isinstance(event, RecordIgnored):
        return PastEvent(at, f"it was nacked and ignored: {why}", "ignored")
    if isinstance(event, OutputLost):
        return PastEvent(at, f"it was settled, and its output is lost: {why}", "output-lost")
    if isinstance(event, RecordLeft):
        return PastEvent(at, f"it was nacked, and left uncommitted: {why}", "failed")
    return PastEvent(at, f"it failed: {why}")


def _skipped(event: ActionTaken, at: float) -> _Found | None:
    if event.action != "skip" or event.outcome != "ok":
        return None
    try:
        given = json.loads(event.arguments)
        partition = TopicPartition(given["topic"], given["partition"])
        offset = int(given["offset"])
    except (ValueError, KeyError, TypeError):
        # The arguments are cut in the event where they are long.
        return None
    text = f"an operator at {event.remote} asked to skip it"
    if not event.has_changed:
        return partition, offset, PastEvent(at, f"{text} after it was settled")
    return partition, offset, PastEvent(at, text, "skipped")
