"""Events as log lines: one line each, whatever they hold, and no flood of the same line."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

from reactive_kafka.errors import HandlerError, ReactiveKafkaError
from reactive_kafka.observe.bursts import BURST, REPEAT_INTERVAL_S, Allowance, OffsetRuns
from reactive_kafka.observe.events.base import ChannelEvent, Event, Level
from reactive_kafka.observe.events.channel import ChannelFailed, ChannelStateChanged, OffsetReset, PartitionsReset
from reactive_kafka.observe.events.commits import SettledNotStored
from reactive_kafka.observe.events.records import FailureEvent, RecordFailed
from reactive_kafka.observe.facts import SparkBatchFacts
from reactive_kafka.observe.sink import Sink
from reactive_kafka.observe.text import one_line
from reactive_kafka.records import TopicPartition

LONGEST_TOGETHER = 4000  # characters of a line that names many offsets; the reason comes last and is what is cut
TOGETHER_S = 0.2  # how long a line about a partition waits for the others of its assignment
PARTITIONS_NAMED = 20  # of a set of partitions in a line's fields
EVENT = "event_type"
"""The field with the name of the event. structlog keeps a line's text in ``event``, where a field would replace it."""
NOISY_LIBRARIES = ("aiokafka", "py4j", "uvicorn")  # they log every attempt during an outage

LOGGER = logging.getLogger("reactive_kafka")
_NOT_THE_APPLICATIONS = (*NOISY_LIBRARIES, "reactive_kafka", "asyncio")
_LEVELS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


@dataclass(slots=True)
class _Held:
    """The last event of a kind that was held back; ``offsets`` are those of all of them where each must be logged."""

    event: Event
    due: float
    offsets: OffsetRuns | None = None
    resets: list[OffsetReset] = field(default_factory=list)  # that are told together


class LogObserver:
    """Logs each event as one line, with its fields as the record's ``extra``.

    Of repeats (failed commits of one channel, say) one a second is logged; the line says how many were suppressed
    before it, as does the field ``suppressed``. A record that failed for good is never suppressed: it has a line of
    its own, or in a flood its offset appears in a line shared with others of its partition (field ``offsets``).

    An event that is held back is logged within a second, and before the lines of events that followed from it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, logger: logging.Logger | None = None) -> None:
        self._clock = clock
        self._logger = logger or LOGGER
        self._repeats = Allowance()
        self._tracebacks = Allowance()
        self._failures = Allowance(BURST)
        self._held: dict[Hashable, _Held] = {}
        self._next_due = math.inf  # nothing held back is due earlier, so most events need not look

    def on(self, event: Event) -> None:
        """Log *event*, or hold it back for a moment."""
        now = self._clock()
        if isinstance(event, RecordFailed):
            self._flush(now)
            self._on_record(event, now)
            return
        if isinstance(event, OffsetReset):  # of the partitions of an assignment, most often: the line waits for them
            self._flush(now)
            (self._held.get(event.kind()) or self._hold(event.kind(), event, now + TOGETHER_S)).resets.append(event)
            return
        key = event.key()
        suppressed = self._repeats.take(key, now)
        if suppressed is None:
            self._hold(key, event, self._repeats.due(key))
        else:
            self._held.pop(key, None)  # it is counted as suppressed before this line
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
        """Log it by itself while there are few; otherwise with others, once their line is full or a second old."""
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

    def _hold(self, key: Hashable, event: Event, due: float, offsets: OffsetRuns | None = None) -> _Held:
        held = self._held[key] = _Held(event, due, offsets)
        self._next_due = min(self._next_due, due)
        return held

    def _flush(self, now: float) -> None:
        if now >= self._next_due:
            self._write_held([key for key, held in self._held.items() if held.due <= now], now)
            self._next_due = min((held.due for held in self._held.values()), default=math.inf)

    def _write_what_led_to(self, event: Event, now: float) -> None:
        self._write_held([key for key, held in self._held.items() if _leads_to(held.event, event)], now)

    def _write_held(self, keys: Iterable[Hashable], now: float) -> None:
        for key in keys:
            held = self._held.pop(key)
            if held.resets:
                one, several = (
                    held.resets[0],
                    PartitionsReset(channel=held.resets[0].channel, resets=tuple(held.resets)),
                )
                self._write(several if held.resets[1:] else one, 0, now)
            elif held.offsets is None:
                suppressed = self._repeats.restart(key, now)
                self._write(held.event, suppressed - 1, now)  # the event itself was counted as suppressed
            else:
                self._write_together(held.event, held.offsets, now)

    def _write(self, event: Event, suppressed: int, now: float) -> None:
        text, extra = one_line(_with_subject(event, event.text())), {}
        if suppressed > 0:
            text, extra = f"{text} ({suppressed} more like it before)", {"suppressed": suppressed}
        self._log(event, text, extra, now)

    def _write_together(self, event: Event, offsets: OffsetRuns, now: float) -> None:
        if offsets.count == 1 or not isinstance(event, RecordFailed):
            self._write(event, 0, now)
            return
        text = one_line(_with_subject(event, event.text_of(str(offsets), offsets.count)), limit=LONGEST_TOGETHER)
        self._log(event, text, {"offsets": str(offsets), "records": offsets.count}, now)

    def _log(self, event: Event, text: str, extra: dict[str, Any], now: float) -> None:
        level = _LEVELS[event.loudness()]
        if self._logger.isEnabledFor(level):
            extra = {EVENT: type(event).__name__, **_fields(event), **extra}
            self._logger.log(level, "%s", text, extra=extra, exc_info=self._traceback_of(event, now))

    def _traceback_of(self, event: Event, now: float) -> BaseException | None:
        """The error whose traceback helps: the application's own, of each kind of failure once a second."""
        error: BaseException | None = getattr(event, "error", None)
        if isinstance(error, HandlerError):
            error = error.__cause__
        if isinstance(error, ReactiveKafkaError):
            return None  # the text of this package's errors says everything
        if error is None or not isinstance(event, FailureEvent):
            return error
        return None if self._tracebacks.take((event.channel, event.kind()), now) is None else error


_LED_TO = (ChannelStateChanged, ChannelFailed, SettledNotStored)


def _leads_to(held: Event, event: Event) -> bool:
    """Whether *event* may have followed from *held*, so that its line must come later."""
    if not isinstance(held, ChannelEvent) or not isinstance(event, ChannelEvent) or held.channel != event.channel:
        return False
    if isinstance(event, _LED_TO) or isinstance(held, OffsetReset):
        return True
    return isinstance(held, FailureEvent) and getattr(event, "partition", held.partition) == held.partition


def _with_subject(event: Event, text: str) -> str:
    return f"{subject}: {text}" if (subject := event.subject()) else text


def is_logging_configured() -> bool:
    """Whether somebody has said where our lines go: at the root logger, or at ours."""
    return LOGGER.hasHandlers()


def configure_logging(
    style: Literal["text", "json"] = "text",
    level: int = logging.INFO,
    stream: TextIO | None = None,
    about: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Log to *stream* (default: stderr), replacing the root logger's handlers. Only the owner of a process calls it.

    ``json`` writes one object per line: time, level, logger, message, an exception's traceback, and every field; and
    in the application's own lines what *about* says of where they were written.
    ``text`` writes one line per record, followed by the lines of a traceback, each marked with ``|``.
    A reader of stderr that stops reading stops nothing else: lines are held back, up to 1 MiB, and then dropped.
    Libraries that log every attempt during an outage are heard from WARNING on, unless their loggers have a level.
    """
    handler = Sink(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(about) if style == "json" else _TextFormatter())
    handler.addFilter(_LibraryFilter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for logger in map(logging.getLogger, NOISY_LIBRARIES):
        if logger.level == logging.NOTSET:  # else a module of the application has said what it wants
            logger.setLevel(logging.WARNING)


def _fields(event: Event | SparkBatchFacts) -> dict[str, Any]:
    """The fields that have a value, as values that JSON knows, under names that no log record uses itself."""
    result: dict[str, Any] = {}
    for each in fields(event):
        if each.name == "error":  # shown as a traceback
            continue
        value = getattr(event, each.name)
        match value:
            case TopicPartition():
                result |= {"topic": one_line(value.topic), "partition": value.partition}
            case frozenset():
                result[each.name] = [str(item) for item in sorted(value)[:PARTITIONS_NAMED]]
                result[f"{each.name}_count"] = len(value)
            case str():
                result[each.name] = one_line(value)
            case SparkBatchFacts():
                result |= _fields(value)
            case tuple():
                result[each.name] = [one_line(str(item)) for item in value[:PARTITIONS_NAMED]]
            case None:
                pass
            case _:
                result[each.name] = value
    return result


class _LibraryFilter(logging.Filter):
    """Passes one line a second from each place in the code of noisy libraries.

    Of py4j's lines through the root logger none passes: for each call to a driver that is gone it logs an error with
    a traceback, and raises the same error, which its caller reports in one line.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._repeats = Allowance()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == "root" and Path(record.pathname).parent.name == "py4j":
            return False
        if record.name.partition(".")[0] not in NOISY_LIBRARIES:
            return True
        suppressed = self._repeats.take((record.pathname, record.lineno), self._clock())
        if suppressed:
            record.msg, record.args = f"{record.getMessage()} ({suppressed} more like it before)", None
        return suppressed is not None


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = one_line(record.getMessage(), limit=10_000)
        lines = [f"{_time(record)} {record.levelname:<7} {record.name}: {text}", *_traceback(self, record)]
        return "\n  | ".join(lines)


class _JsonFormatter(logging.Formatter):
    def __init__(self, about: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in line}
        if record.name.partition(".")[0] not in _NOT_THE_APPLICATIONS:
            line = {**self._about(), **line}
        if traceback := _traceback(self, record):
            line["exception"] = "\n".join(traceback)
        return json.dumps(line, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """The lines of the record's traceback and stack, each made safe for one line."""
    traceback = formatter.formatException(record.exc_info) if record.exc_info else ""
    return [one_line(line) for part in (traceback, record.stack_info or "") for line in part.splitlines()]
