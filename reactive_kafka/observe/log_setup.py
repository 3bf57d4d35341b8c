"""How a process that belongs to us logs: handlers, formats, and what is heard of libraries."""

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
from reactive_kafka.observe.sink import Sink
from reactive_kafka.observe.text import one_line

# They log every attempt during an outage.
NOISY_LIBRARIES = ("aiokafka", "py4j", "uvicorn")

LOGGER = logging.getLogger("reactive_kafka")
NOT_CONFIGURED = (
    "logging is not configured: call logging.basicConfig(level=logging.INFO) in the module of the web application. "
    "Until then nothing below WARNING is shown of reactive_kafka, and its warnings have neither time nor level"
)
"""What Python's handler of last resort does to our lines: a web server configures only the loggers
it has itself.
"""
_NOT_THE_APPLICATIONS = (*NOISY_LIBRARIES, "reactive_kafka", "asyncio")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def is_logging_configured() -> bool:
    """Whether somebody has said where our lines go: at the root logger, or at ours."""
    return LOGGER.hasHandlers()


def logs_as_text() -> bool:
    """Whether our lines go to a terminal or a file as the text that :func:`configure_logging`
    writes.
    """
    return any(
        isinstance(handler.formatter, _TextFormatter) for handler in logging.getLogger().handlers
    )


def configure_logging(
    style: Literal["text", "json"] = "text",
    level: int = logging.INFO,
    stream: TextIO | None = None,
    about: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Log to *stream* (default: stderr), replacing the root logger's handlers. Only the owner of a
    process calls it.

    ``json`` writes one object per line: time, level, logger, message, an exception's traceback, and
    every field; and in the application's own lines what *about* says of where they were written.
    ``text`` writes one line per record, followed by the lines of a traceback, each marked with
    ``|``. A reader of stderr that stops reading stops nothing else: lines are held back, up to 1
    MiB, and then dropped. Libraries that log every attempt during an outage are heard from WARNING
    on, unless their loggers have a level.
    """
    handler = Sink(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(about) if style == "json" else _TextFormatter())
    handler.addFilter(_LibraryFilter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for logger in map(logging.getLogger, NOISY_LIBRARIES):
        # Else a module of the application has said what it wants.
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


class _LibraryFilter(logging.Filter):
    """Passes one line a second from each place in the code of noisy libraries.

    Of py4j's lines through the root logger none passes: for each call to a driver that is gone it
    logs an error with a traceback, and raises the same error, which its caller reports in one line.
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
    def format(self, record: logging.LogRecord) -> str:
        text = one_line(record.getMessage(), limit=10_000)
        lines = [
            f"{_time(record)} {record.levelname:<7} {record.name}: {text}",
            *_traceback(self, record),
        ]
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
        line |= {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD and name not in line
        }
        if record.name.partition(".")[0] not in _NOT_THE_APPLICATIONS:
            line = {**self._about(), **line}
        if traceback := _traceback(self, record):
            line["exception"] = "\n".join(traceback)
        return json.dumps(json_value(line), allow_nan=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """The lines of the record's traceback and stack, each made safe for one line."""
    traceback = formatter.formatException(record.exc_info) if record.exc_info else ""
    return [
        one_line(line)
        for part in (traceback, record.stack_info or "")
        for line in part.splitlines()
    ]
