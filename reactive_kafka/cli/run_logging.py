"""How ``run`` logs: as its options say, else as the application has configured it, else as text to
stderr.
"""

from __future__ import annotations

import logging
import logging.config
import re
from pathlib import Path
from typing import Literal

import click

from reactive_kafka.config.config_files import read_tables
from reactive_kafka.config.kinds import did_you_mean
from reactive_kafka.config.scan import line_of
from reactive_kafka.delivery.current import fields_of_call
from reactive_kafka.errors import ConfigError, describe
from reactive_kafka.observe.log_setup import LOGGER, configure_logging, is_logging_configured

DEFAULTS = {"version": 1, "disable_existing_loggers": False}
"""What a file need not say. logging's own default would silence each logger that a module has made
while loading.
"""
TABLES = (*DEFAULTS, "incremental", "formatters", "filters", "handlers", "loggers", "root")
"""What dictConfig reads; it passes over all else."""
_UNABLE = re.compile(
    r"Unable to configure (handler|formatter|filter|logger) '(.+)'|Unable to configure (root)"
)


class LogOptions:
    """The options of ``run``, of which each may be None.

    Raises:
        ConfigError: The file cannot be read. What it says is found out by :meth:`apply`.
    """

    def __init__(
        self, style: Literal["text", "json"] | None, level: str | None, file: Path | None
    ) -> None:
        if style is not None and file is not None:
            raise click.UsageError(
                "--log-format goes without --log-config, which says the format of each handler"
            )
        self._style = style
        self._level = None if level is None else logging.getLevelNamesMapping()[level.upper()]
        self._file = file
        self._tables, self._lines = (
            read_tables(file, "[handlers.NAME]") if file is not None else ({}, {})
        )

    def apply(self) -> None:
        """Configure logging; the application's modules are loaded, and what they have configured is
        kept.
        """
        if self._file is not None:
            self._apply_file(self._file)
        elif self._style is not None or not is_logging_configured():
            level = logging.INFO if self._level is None else self._level
            configure_logging(self._style or "text", level, about=fields_of_call)
        if self._level is not None:
            logging.getLogger().setLevel(self._level)

    def _apply_file(self, file: Path) -> None:
        if unknown := [name for name in self._tables if name not in TABLES]:
            raise ConfigError(*(f"{self._at(file, (name,))}: {_unknown(name)}" for name in unknown))
        try:
            logging.config.dictConfig({**DEFAULTS, **self._tables})
        except Exception as error:
            # Handlers, filters and formatters may be anybody's, and raise anything.
            raise ConfigError(self._told(file, error)) from error
        if not is_logging_configured() and logging.lastResort is not None:
            # As logging itself does for a logger that has no handler.
            LOGGER.addHandler(logging.lastResort)

    def _told(self, file: Path, error: Exception) -> str:
        """Where in the file the mistake is, as far as logging tells, and what it is."""
        found = _UNABLE.search(str(error))
        place = () if found is None else ("root",) if found[3] else (f"{found[1]}s", found[2])
        why: list[str] = []
        reason: BaseException = error
        while (cause := reason.__cause__ or reason.__context__) is not None:
            if reason is not error:
                why.append(str(reason))
            reason = cause
        why.append(describe(reason))
        return f"{self._at(file, place)}: {': '.join(why)}"

    def _at(self, file: Path, place: tuple[str, ...]) -> str:
        inside = (at[0] for key, at in self._lines.items() if place and key[: len(place)] == place)
        line = line_of(self._lines, place) or min(inside, default=None)
        what = f"[{'.'.join(place)}]" if place else "logging cannot be configured with it"
        return f"{file}, line {line}: {what}" if line else f"{file}: {what}"


def _unknown(name: str) -> str:
    near = did_you_mean(name, TABLES)
    return f"unknown; did you mean {near!r}?" if near else f"unknown; there are {', '.join(TABLES)}"
