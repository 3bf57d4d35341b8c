"""Events as log lines: one line each whatever they hold, and no flood of the same."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

from reactive_kafka.errors import HandlerError, ReactiveKafkaError
from reactive_kafka.observe.events import ChannelStateChanged, Event, Level, SettledNotStored
from reactive_kafka.observe.facts import SparkBatchFacts
from reactive_kafka.observe.text import one_line
from reactive_kafka.records import TopicPartition

REPEAT_INTERVAL_S = 1.0
KINDS_KEPT = 1000  # of lines, before those that cannot repeat any more are forgotten
PARTITIONS_NAMED = 20  # of a set of partitions in a line's fields
NOISY_LIBRARIES = ("aiokafka", "py4j", "uvicorn")  # they log every attempt of an outage

_LEVELS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


@dataclass(slots=True)
class _Line:
    written_at: float
    suppressed: int = 0


class _Repeats:
    """Lets one line of each kind through per interval, and counts the others."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._forget_beyond = KINDS_KEPT

    def is_due(self, key: Hashable, now: float) -> bool:
        """Whether a line of this kind may be written now."""
        line = self._lines.get(key)
        return line is None or now - line.written_at >= REPEAT_INTERVAL_S

    def take(self, key: Hashable, now: float) -> int | None:
        """How many lines were suppressed before this one, or None: suppress this one too."""
        if not self.is_due(key, now):
            self._lines[key].suppressed += 1
            return None
        line = self._lines.get(key)
        if line is None and len(self._lines) >= self._forget_beyond:
            self._forget(now)
        self._lines[key] = _Line(now)
        return line.suppressed if line is not None else 0

    def _forget(self, now: float) -> None:
        """Kinds that stand for one batch or one rebalance never come again."""
        for key in [key for key, line in self._lines.items() if not line.suppressed and self.is_due(key, now)]:
            del self._lines[key]
        self._forget_beyond = max(
            KINDS_KEPT, 2 * len(self._lines)
        )  # so that a burst of kinds is not gone through each time

    def restart(self, key: Hashable, now: float) -> int:
        """A line of this kind is written whether or not it is due; how many were suppressed since the last one."""
        suppressed, self._lines[key] = self._lines[key].suppressed, _Line(now)
        return suppressed


class LogObserver:
    """Logs each event as one line, with its fields as the record's ``extra``.

    Of events that differ in nothing but their details (an ignored record, a failed commit of one channel)
    one a second is logged; its line says how many were left out before it, in ``suppressed`` too.

    Args:
        clock: Seconds that never jump.
        logger: Where to; by default the logger ``reactive_kafka``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, logger: logging.Logger | None = None) -> None:
        self._clock = clock
        self._logger = logger or logging.getLogger("reactive_kafka")
        self._repeats = _Repeats()
        self._held: dict[Hashable, Event] = {}  # the last event of each kind that was suppressed

    def on(self, event: Event) -> None:
        """Log *event*, or hold it back for a moment."""
        if isinstance(event, ChannelStateChanged | SettledNotStored):  # what led there comes first
            self._write_held([key for key, held in self._held.items() if held.subject() == event.channel])
        key = (type(event), *(getattr(event, name) for name in event.identity))
        suppressed = self._repeats.take(key, self._clock())
        if suppressed is None:
            self._held[key] = event
        else:
            self._held.pop(key, None)
            self._write(event, suppressed)
        self.flush()

    def flush(self) -> None:
        """Log the last event of each kind that was held back for long enough. Every event does it for all others."""
        now = self._clock()
        for key in [key for key in self._held if self._repeats.is_due(key, now)]:
            suppressed = self._repeats.take(key, now) or 0
            self._write(self._held.pop(key), suppressed - 1)  # the one that is written was suppressed before

    def close(self) -> None:
        """Log what is held back, at the end."""
        self._write_held(list(self._held))

    def _write_held(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            suppressed = self._repeats.restart(key, self._clock())
            self._write(self._held.pop(key), suppressed - 1)  # the one that is written was suppressed before

    def _write(self, event: Event, suppressed: int) -> None:
        level = _LEVELS[event.loudness()]
        if not self._logger.isEnabledFor(level):
            return
        subject = event.subject()
        text = one_line(f"{subject}: {event.text()}" if subject else event.text())
        extra = {"event": type(event).__name__, **_fields(event)}
        if suppressed > 0:
            extra["suppressed"] = suppressed
            text = f"{text} ({suppressed} more like it before)"
        self._logger.log(level, "%s", text, extra=extra, exc_info=_shown(getattr(event, "error", None)))


def configure_logging(
    style: Literal["text", "json"] = "text", level: int = logging.INFO, stream: TextIO | None = None
) -> None:
    """Log to *stream* (stderr), replacing what the root logger did before. For whoever owns the process.

    ``json`` writes one object a line: time, level, logger, message, an exception's traceback, and every field.
    ``text`` writes one line a record, and under it, each marked with ``|``, the lines of a traceback.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    handler.addFilter(_LibraryFilter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for library in NOISY_LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)


def _shown(error: BaseException | None) -> BaseException | None:
    """The error whose traceback helps: the application's own. Those of this package say all in their text."""
    if isinstance(error, HandlerError):
        error = error.__cause__
    return None if isinstance(error, ReactiveKafkaError) else error


def _fields(event: Event) -> dict[str, Any]:
    """The event's fields as plain values that JSON knows, under names that no log record uses itself."""
    result: dict[str, Any] = {}
    for field in fields(event):
        if field.name == "error":  # shown as a traceback
            continue
        value = getattr(event, field.name)
        match value:
            case TopicPartition():
                result |= {"topic": one_line(value.topic), "partition": value.partition}
            case frozenset():
                result[field.name] = [str(item) for item in sorted(value)[:PARTITIONS_NAMED]]
                result[f"{field.name}_count"] = len(value)
            case str():
                result[field.name] = one_line(value)
            case SparkBatchFacts():
                result |= _batch_fields(value)
            case tuple():
                result[field.name] = [one_line(str(item)) for item in value[:PARTITIONS_NAMED]]
            case None:
                pass
            case _:
                result[field.name] = value
    return result


def _batch_fields(batch: SparkBatchFacts) -> dict[str, Any]:
    """Those of a Spark batch that have a value, the long list of its ranges cut."""
    named = {field.name: getattr(batch, field.name) for field in fields(batch)}
    named["ranges"] = [one_line(place) for place in batch.ranges[:PARTITIONS_NAMED]]
    return {name: value for name, value in named.items() if value is not None}


class _LibraryFilter(logging.Filter):
    """Passes one line a second from each place in the code of the libraries that we stand on.

    Nothing passes that py4j says through the root logger, an error with its traceback for each call to a driver that
    is gone: it raises the same, and who called says so in one line.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._repeats = _Repeats()

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
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in line}
        if traceback := _traceback(self, record):
            line["exception"] = "\n".join(traceback)
        return json.dumps(line, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """The lines of the record's traceback and stack, each made safe."""
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(record.stack_info)
    return [one_line(line) for part in parts for line in part.splitlines()]
