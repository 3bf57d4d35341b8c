"""Logs events: one line for each, whatever it contains, and no flood of the same line."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.errors import HandlerError, ReactiveKafkaError
from reactive_kafka.observe.bursts import BURST, REPEAT_INTERVAL_S, Allowance, OffsetRuns
from reactive_kafka.observe.events.base import ChannelEvent, Event, Level
from reactive_kafka.observe.events.channel_events import ChannelFailed, ChannelStateChanged
from reactive_kafka.observe.events.commits import SettledNotStored
from reactive_kafka.observe.events.reading import OffsetReset, PartitionsReset
from reactive_kafka.observe.events.record_events import FailureEvent, RecordFailed
from reactive_kafka.observe.json_values import fields_of
from reactive_kafka.observe.log_setup import LOGGER
from reactive_kafka.observe.safe_text import one_line

# Longest line that names many offsets, in characters. The reason comes last, so it is cut.
LONGEST_SHARED_LINE = 4000
# How long an offset reset waits for the others of the same assignment, to share their line.
RESETS_WAIT_S = 0.2
EVENT = "event_type"
"""The field with the name of the event. It is not ``event``, where structlog keeps the text of a
line: the field would replace that.
"""

_LEVELS: dict[Level, int] = {
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


@dataclass(slots=True)
class _Held:
    """The events of one kind that are held back; ``event`` is the last one."""

    event: Event
    due: float
    # The offsets of all of them, if each must be logged.
    offsets: OffsetRuns | None = None
    # The offset resets that will share a line.
    resets: list[OffsetReset] = field(default_factory=list)


class LogObserver:
    """Logs each event as one line, with its fields as ``extra``.

    Repeats, such as failed commits of one channel, are logged once a second. The line and its field
    ``suppressed`` say how many were suppressed before it. A record that failed for good is never
    suppressed: it has a line of its own, or, in a flood, its offset is in a line that it shares
    with other records of its partition (field ``offsets``).

    An event that is held back is logged within a second, and before the lines of events that it has
    caused.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, logger: logging.Logger | None = None
    ) -> None:
        self._clock = clock
        self._logger = logger or LOGGER
        self._repeats = Allowance()
        self._tracebacks = Allowance()
        self._failures = Allowance(BURST)
        self._held: dict[Hashable, _Held] = {}
        # Earliest due time of the events held back, so that most calls need not look at them.
        self._next_due = math.inf

    def on(self, event: Event) -> None:
        """Log *event*, or hold it back for a moment."""
        now = self._clock()
        if isinstance(event, RecordFailed):
            self._flush(now)
            self._on_failed_record(event, now)
        elif isinstance(event, OffsetReset):
            self._flush(now)
            self._hold_reset(event, now)
        else:
            self._on_repeatable(event, now)

    def flush(self) -> None:
        """Log the events that have been held back for long enough. `on` does this, too."""
        self._flush(self._clock())

    def close(self) -> None:
        """Log everything that is held back, due or not."""
        self._write_held(list(self._held), self._clock())

    def _on_repeatable(self, event: Event, now: float) -> None:
        """Log an event, or hold it back if it repeats one of the last second."""
        key = event.key()
        suppressed = self._repeats.take(key, now)
        if suppressed is None:
            self._hold(key, event, self._repeats.due(key))
        else:
            # The line of this event counts the one that was held as suppressed.
            self._held.pop(key, None)
        self._flush(now)
        if suppressed is not None or isinstance(event, _CONSEQUENCES):
            self._write_causes_of(event, now)
        if suppressed is not None:
            self._write(event, suppressed, now)

    def _hold_reset(self, event: OffsetReset, now: float) -> None:
        """Hold an offset reset: the other partitions of its assignment usually have one, too."""
        key = event.kind()
        held = self._held.get(key)
        if held is None:
            held = self._hold(key, event, now + RESETS_WAIT_S)
        held.resets.append(event)

    def _on_failed_record(self, event: RecordFailed, now: float) -> None:
        """Log a failed record in a line of its own, or in a flood together with others.

        A shared line is written when it is full, or after a second.
        """
        if self._failures.take((type(event), event.channel, event.kind()), now) is not None:
            self._write_causes_of(event, now)
            self._write(event, 0, now)
            return
        key = event.key()
        held = self._held.get(key)
        if held is None:
            held = self._hold(key, event, now + REPEAT_INTERVAL_S, OffsetRuns())
        held.event = event
        if held.offsets is not None:
            held.offsets.add(event.offset)
            if held.offsets.is_full:
                # This includes the events of its own kind.
                self._write_causes_of(event, now)

    def _hold(
        self, key: Hashable, event: Event, due: float, offsets: OffsetRuns | None = None
    ) -> _Held:
        held = _Held(event, due, offsets)
        self._held[key] = held
        self._next_due = min(self._next_due, due)
        return held

    def _flush(self, now: float) -> None:
        if now >= self._next_due:
            self._write_held([key for key, held in self._held.items() if held.due <= now], now)
            self._next_due = min((held.due for held in self._held.values()), default=math.inf)

    def _write_causes_of(self, event: Event, now: float) -> None:
        causes = [key for key, held in self._held.items() if _may_have_caused(held.event, event)]
        self._write_held(causes, now)

    def _write_held(self, keys: Iterable[Hashable], now: float) -> None:
        for key in keys:
            held = self._held.pop(key)
            if len(held.resets) > 1:
                resets = tuple(held.resets)
                self._write(PartitionsReset(channel=resets[0].channel, resets=resets), 0, now)
            elif held.resets:
                self._write(held.resets[0], 0, now)
            elif held.offsets is None:
                suppressed = self._repeats.restart(key, now)
                # The count includes the event that is written here.
                self._write(held.event, suppressed - 1, now)
            else:
                self._write_together(held.event, held.offsets, now)

    def _write(self, event: Event, suppressed: int, now: float) -> None:
        text = one_line(_with_subject(event, event.text()))
        extra = {}
        if suppressed > 0:
            text = f"{text} ({suppressed} more like it before)"
            extra = {"suppressed": suppressed}
        self._log(event, text, extra, now)

    def _write_together(self, event: Event, offsets: OffsetRuns, now: float) -> None:
        if offsets.count == 1 or not isinstance(event, RecordFailed):
            self._write(event, 0, now)
            return
        text = _with_subject(event, event.text_of(str(offsets), offsets.count))
        text = one_line(text, limit=LONGEST_SHARED_LINE)
        self._log(event, text, {"offsets": str(offsets), "records": offsets.count}, now)

    def _log(self, event: Event, text: str, extra: dict[str, Any], now: float) -> None:
        level = _LEVELS[event.loudness()]
        if self._logger.isEnabledFor(level):
            extra = {EVENT: type(event).__name__, **fields_of(event), **extra}
            self._logger.log(
                level, "%s", text, extra=extra, exc_info=self._traceback_of(event, now)
            )

    def _traceback_of(self, event: Event, now: float) -> BaseException | None:
        """Return the error whose traceback is logged: of each kind of failure one a second."""
        error: BaseException | None = getattr(event, "error", None)
        if isinstance(error, HandlerError):
            error = error.__cause__
        if isinstance(error, ReactiveKafkaError):
            # The texts of this package's errors say everything.
            return None
        if error is None or not isinstance(event, FailureEvent):
            return error
        if self._tracebacks.take((event.channel, event.kind()), now) is None:
            return None
        return error


# Events that are often caused by events held back.
_CONSEQUENCES = (ChannelStateChanged, ChannelFailed, SettledNotStored)


def _may_have_caused(held: Event, event: Event) -> bool:
    """True if *held* may have caused *event*, so that its line must come first."""
    if not isinstance(held, ChannelEvent) or not isinstance(event, ChannelEvent):
        return False
    if held.channel != event.channel:
        return False
    if isinstance(event, _CONSEQUENCES) or isinstance(held, OffsetReset):
        return True
    if not isinstance(held, FailureEvent):
        return False
    # A failed record may have caused an event of its partition, or one of the whole channel.
    return bool(getattr(event, "partition", held.partition) == held.partition)


def _with_subject(event: Event, text: str) -> str:
    """Put the channel's name before a text, and remove it inside the text."""
    subject = event.subject()
    if not subject:
        return text
    if isinstance(event, ChannelEvent):
        named = f"channel {event.channel!r}"
        # Most texts do not contain the name, so look for that before matching a pattern.
        if named in text:
            in_full = rf"(?:\b(?:incoming|outgoing) )?{re.escape(named)}"
            text = re.sub(f"{in_full}: ", "", text)
            text = re.sub(in_full, "the channel", text)
    return f"{subject}: {text}"
