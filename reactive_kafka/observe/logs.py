"""Events as log lines: one line each, whatever they hold, and no flood of the same line."""

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
from reactive_kafka.observe.events.channel import ChannelFailed, ChannelStateChanged
from reactive_kafka.observe.events.commits import SettledNotStored
from reactive_kafka.observe.events.reading import OffsetReset, PartitionsReset
from reactive_kafka.observe.events.records import FailureEvent, RecordFailed
from reactive_kafka.observe.json_values import fields_of
from reactive_kafka.observe.log_setup import LOGGER
from reactive_kafka.observe.text import one_line

# Characters of a line that names many offsets; the reason comes last and is what is cut.
LONGEST_TOGETHER = 4000
# How long a line about a partition waits for the others of its assignment.
TOGETHER_S = 0.2
EVENT = "event_type"
"""The field with the name of the event. structlog keeps a line's text in ``event``, where a field
would replace it.
"""

_LEVELS: dict[Level, int] = {
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


@dataclass(slots=True)
class _Held:
    """The last event of a kind that was held back; ``offsets`` are those of all of them where each
    must be logged.
    """

    event: Event
    due: float
    offsets: OffsetRuns | None = None
    # That are told together.
    resets: list[OffsetReset] = field(default_factory=list)


class LogObserver:
    """Logs each event as one line, with its fields as the record's ``extra``.

    Of repeats (failed commits of one channel, say) one a second is logged; the line says how many
    were suppressed before it, as does the field ``suppressed``. A record that failed for good is
    never suppressed: it has a line of its own, or in a flood its offset appears in a line shared
    with others of its partition (field ``offsets``).

    An event that is held back is logged within a second, and before the lines of events that
    followed from it.
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
        # Nothing held back is due earlier, so most events need not look.
        self._next_due = math.inf

    def on(self, event: Event) -> None:
        """Log *event*, or hold it back for a moment."""
        now = self._clock()
        if isinstance(event, RecordFailed):
            self._flush(now)
            self._on_record(event, now)
            return
        # Of the partitions of an assignment, most often: the line waits for them.
        if isinstance(event, OffsetReset):
            self._flush(now)
            (
                self._held.get(event.kind()) or self._hold(event.kind(), event, now + TOGETHER_S)
            ).resets.append(event)
            return
        key = event.key()
        suppressed = self._repeats.take(key, now)
        if suppressed is None:
            self._hold(key, event, self._repeats.due(key))
        else:
            # It is counted as suppressed before this line.
            self._held.pop(key, None)
        self._flush(now)
        if suppressed is not None or isinstance(event, _LED_TO):
            self._write_what_led_to(event, now)
        if suppressed is not None:
            self._write(event, suppressed, now)

    def flush(self) -> None:
        """Log what has been held back for long enough. Each event does this, too."""
        self._flush(self._clock())

    def close(self) -> None:
        """Log everything that is held back, due or not."""
        self._write_held(list(self._held), self._clock())

    def _on_record(self, event: RecordFailed, now: float) -> None:
        """Log it by itself while there are few; otherwise with others, once their line is full or a
        second old.
        """
        if self._failures.take((type(event), event.channel, event.kind()), now) is not None:
            self._write_what_led_to(event, now)
            self._write(event, 0, now)
            return
        key = event.key()
        held = self._held.get(key) or self._hold(key, event, now + REPEAT_INTERVAL_S, OffsetRuns())
        held.event = event
        if held.offsets is not None:
            held.offsets.add(event.offset)
            if held.offsets.is_full:
                self._write_what_led_to(event, now)

    def _hold(
        self, key: Hashable, event: Event, due: float, offsets: OffsetRuns | None = None
    ) -> _Held:
        held = self._held[key] = _Held(event, due, offsets)
        self._next_due = min(self._next_due, due)
        return held

    def _flush(self, now: float) -> None:
        if now >= self._next_due:
            self._write_held([key for key, held in self._held.items() if held.due <= now], now)
            self._next_due = min((held.due for held in self._held.values()), default=math.inf)

    def _write_what_led_to(self, event: Event, now: float) -> None:
        self._write_held(
            [key for key, held in self._held.items() if _leads_to(held.event, event)], now
        )

    def _write_held(self, keys: Iterable[Hashable], now: float) -> None:
        for key in keys:
            held = self._held.pop(key)
            if held.resets:
                one = held.resets[0]
                several = PartitionsReset(channel=held.resets[0].channel, resets=tuple(held.resets))
                self._write(several if held.resets[1:] else one, 0, now)
            elif held.offsets is None:
                suppressed = self._repeats.restart(key, now)
                # The event itself was counted as suppressed.
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
        text = one_line(
            _with_subject(event, event.text_of(str(offsets), offsets.count)), limit=LONGEST_TOGETHER
        )
        self._log(event, text, {"offsets": str(offsets), "records": offsets.count}, now)

    def _log(self, event: Event, text: str, extra: dict[str, Any], now: float) -> None:
        level = _LEVELS[event.loudness()]
        if self._logger.isEnabledFor(level):
            extra = {EVENT: type(event).__name__, **fields_of(event), **extra}
            self._logger.log(
                level, "%s", text, extra=extra, exc_info=self._traceback_of(event, now)
            )

    def _traceback_of(self, event: Event, now: float) -> BaseException | None:
        """The error whose traceback helps: the application's own, of each kind of failure once a
        second.
        """
        error: BaseException | None = getattr(event, "error", None)
        if isinstance(error, HandlerError):
            error = error.__cause__
        if isinstance(error, ReactiveKafkaError):
            # The text of this package's errors says everything.
            return None
        if error is None or not isinstance(event, FailureEvent):
            return error
        return None if self._tracebacks.take((event.channel, event.kind()), now) is None else error


_LED_TO = (ChannelStateChanged, ChannelFailed, SettledNotStored)


def _leads_to(held: Event, event: Event) -> bool:
    """Whether *event* may have followed from *held*, so that its line must come later."""
    if (
        not isinstance(held, ChannelEvent)
        or not isinstance(event, ChannelEvent)
        or held.channel != event.channel
    ):
        return False
    if isinstance(event, _LED_TO) or isinstance(held, OffsetReset):
        return True
    return (
        isinstance(held, FailureEvent)
        and getattr(event, "partition", held.partition) == held.partition
    )


def _with_subject(event: Event, text: str) -> str:
    """The text of a line. It begins with the name of the channel, and leaves it out where the text
    names it again.
    """
    subject = event.subject()
    if not subject:
        return text
    if isinstance(event, ChannelEvent):
        named = f"channel {event.channel!r}"
        # Most texts do not name it, and need no pattern.
        if named in text:
            in_full = rf"(?:\b(?:incoming|outgoing) )?{re.escape(named)}"
            text = re.sub(f"{in_full}: ", "", text)
            text = re.sub(in_full, "the channel", text)
    return f"{subject}: {text}"
