"""Configures logging for ``run``.

The options decide; without them, what the application has configured; else text goes to stderr.
"""

from __future__ import annotations

import logging
import logging.config
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import click

from reactive_kafka.config.config_files import read_tables
from reactive_kafka.config.kinds import did_you_mean
from reactive_kafka.config.scan import Lines, line_of
from reactive_kafka.delivery.current import fields_of_call
from reactive_kafka.errors import ConfigError, describe
from reactive_kafka.observe.log_setup import LOGGER, configure_logging, is_logging_configured

DEFAULTS = {"version": 1, "disable_existing_loggers": False}
"""Defaults of a logging file.

The default of logging itself would disable every logger that a module made while it was imported.
"""
TABLES = (*DEFAULTS, "incremental", "formatters", "filters", "handlers", "loggers", "root")
"""The keys that dictConfig reads. It silently ignores all others."""
_UNABLE = re.compile(
    r"Unable to configure (handler|formatter|filter|logger) '(.+)'|Unable to configure (root)"
)


class LogOptions:
    """The logging options of ``run``. Each may be None.

    Raises:
        ConfigError: The file cannot be read. Its content is checked by :meth:`apply`.
    """

    def __init__(
        self, style: Literal["text", "json"] | None, level: str | None, file: Path | None
    ) -> None:
        if style is not None and file is not None:
            raise click.UsageError(
                "--log-format cannot be combined with --log-config, which has the format of each "
                "handler"
            )
        self._style = style
        self._level = None if level is None else logging.getLevelNamesMapping()[level.upper()]
        self._file = file
        self._tables: Mapping[str, Any] = {}
        self._lines: Lines = {}
        if file is not None:
            tables, lines = read_tables(file, "[handlers.NAME]")
            self._tables = tables
            self._lines = lines

    def apply(self) -> None:
        """Configure logging, after the modules of the application have been imported.

        Without options, what they configured is kept.
        """
        if self._file is not None:
            self._apply_file(self._file)
        elif self._style is not None or not is_logging_configured():
            level = logging.INFO if self._level is None else self._level
            configure_logging(self._style or "text", level, about=fields_of_call)
        if self._level is not None:
            logging.getLogger().setLevel(self._level)

    def _apply_file(self, file: Path) -> None:
        unknown = [name for name in self._tables if name not in TABLES]
        if unknown:
            raise ConfigError(
                *(f"{self._place(file, (name,))}: {_unknown(name)}" for name in unknown)
            )
        try:
            logging.config.dictConfig({**DEFAULTS, **self._tables})
        except Exception as error:
            # Handlers, filters and formatters may come from any package, and raise anything.
            raise ConfigError(self._explained(file, error)) from error
        if not is_logging_configured() and logging.lastResort is not None:
            # logging does the same for a logger without a handler.
            LOGGER.addHandler(logging.lastResort)

    def _explained(self, file: Path, error: Exception) -> str:
        """Return where in the file the mistake is, as far as logging says, and what it is."""
        found = _UNABLE.search(str(error))
        table: tuple[str, ...] = ()
        if found is not None:
            table = ("root",) if found[3] else (f"{found[1]}s", found[2])
        # logging wraps the real error. The outermost text only repeats the table.
        reasons: list[str] = []
        reason: BaseException = error
        while (cause := reason.__cause__ or reason.__context__) is not None:
            if reason is not error:
                reasons.append(str(reason))
            reason = cause
        reasons.append(describe(reason))
        return f"{self._place(file, table)}: {': '.join(reasons)}"

    def _place(self, file: Path, table: tuple[str, ...]) -> str:
        """Return the start of an error: file, line and table."""
        if not table:
            return f"{file}: logging cannot be configured with it"
        # A table in dotted keys has no line of its own, but its keys have.
        inside = [numbers[0] for key, numbers in self._lines.items() if key[: len(table)] == table]
        line = line_of(self._lines, table) or min(inside, default=None)
        at_line = f", line {line}" if line else ""
        return f"{file}{at_line}: [{'.'.join(table)}]"


def add_worker_to_records(number: int) -> None:
    """Give every log record of this process the attribute ``worker_number``.

    Formats of the user's own may show it: ``%(worker_number)s``.
    """
    make = logging.getLogRecordFactory()

    def make_numbered(*args: Any, **fields: Any) -> logging.LogRecord:
        record = make(*args, **fields)
        record.worker_number = number
        return record

    logging.setLogRecordFactory(make_numbered)


def _unknown(name: str) -> str:
    near = did_you_mean(name, TABLES)
    if near is not None:
        return f"unknown; did you mean {near!r}?"
    return f"unknown; there are {', '.join(TABLES)}"
