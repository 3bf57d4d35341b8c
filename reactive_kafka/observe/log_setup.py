"""Configures logging in a process that we own: handlers, formats, and levels of libraries."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

from reactive_kafka.observe.bursts import Allowance
from reactive_kafka.observe.json_values import json_value
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.sink import Sink

# These libraries log every attempt during an outage.
NOISY_LIBRARIES = ("aiokafka", "py4j", "uvicorn")

LOGGER = logging.getLogger("reactive_kafka")
NOT_CONFIGURED = (
    "logging is not configured: call logging.basicConfig(level=logging.INFO) in the module of the"
    " web application. Until then nothing below WARNING is shown of reactive_kafka, and its"
    " warnings have neither time nor level"
)
"""The warning in a web server that configures only its own loggers, so that our lines go to
Python's handler of last resort.
"""
_LOGGERS_OF_OTHERS = (*NOISY_LIBRARIES, "reactive_kafka", "asyncio")
# The attributes that any log record has, so they are no fields of the application.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def is_logging_configured() -> bool:
    """True if the root logger or ours has a handler."""
    return LOGGER.hasHandlers()


def logs_as_text() -> bool:
    """True if :func:`configure_logging` has set up lines of text."""
    return any(
        isinstance(handler.formatter, _TextFormatter) for handler in logging.getLogger().handlers
    )


def configure_logging(
    style: Literal["text", "json"] = "text",
    level: int = logging.INFO,
    stream: TextIO | None = None,
    about: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Replace the handlers of the root logger. Only the owner of a process may call it.

    A reader of the stream that stops reading blocks nothing: lines are held back, up to 1 MiB, and
    then dropped. Libraries that log every attempt during an outage log from WARNING on, unless
    their loggers have a level.

    Args:
        style: ``json`` writes one object for each line: time, level, logger, message, the traceback
            of an exception, and every field. ``text`` writes one line, and after it the lines of a
            traceback, each marked with ``|``.
        level: The lowest level that is logged.
        stream: Where to write. None: stderr.
        about: Returns fields for the lines that the application logs itself in JSON, which say
            where the line was written, such as the record being handled.
    """
    handler = Sink(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(about) if style == "json" else _TextFormatter())
    handler.addFilter(_LibraryFilter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for logger in map(logging.getLogger, NOISY_LIBRARIES):
        # A level that is set was chosen by the application.
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


class _LibraryFilter(logging.Filter):
    """Lets one line a second pass from each line of code of a noisy library.

    Lines of py4j through the root logger are dropped. For each call to a driver that is gone, py4j
    logs an error with a traceback and raises it, too. Our code reports the raised error.
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
            record.msg = f"{record.getMessage()} ({suppressed} more like it before)"
            record.args = None
        return suppressed is not None


class _TextFormatter(logging.Formatter):
    """One line for each record, and marked lines for its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        text = one_line(record.getMessage(), limit=10_000)
        # In a worker of `run --workers` each record has the worker's number.
        number = getattr(record, "worker_number", None)
        worker = "" if number is None else f"worker {number} "
        lines = [
            f"{_time(record)} {record.levelname:<7} {worker}{record.name}: {text}",
            *_traceback(self, record),
        ]
        return "\n  | ".join(lines)


class _JsonFormatter(logging.Formatter):
    """One JSON object for each record."""

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
        line |= {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD and name not in line
        }
        if record.name.partition(".")[0] not in _LOGGERS_OF_OTHERS:
            line = {**self._about(), **line}
        traceback = _traceback(self, record)
        if traceback:
            line["exception"] = "\n".join(traceback)
        return json.dumps(json_value(line), allow_nan=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """Return the lines of a record's traceback and stack, each safe for a log line."""
    traceback = formatter.formatException(record.exc_info) if record.exc_info else ""
    return [
        one_line(line)
        for part in (traceback, record.stack_info or "")
        for line in part.splitlines()
    ]
