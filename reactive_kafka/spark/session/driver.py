"""The Java process that is Spark's driver: what it prints goes to our log, and none is left behind."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

logger = logging.getLogger("reactive_kafka.spark.driver")

_LEVEL = re.compile(r"^[\d/ :.-]+(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s")
_JAVAS_OWN = re.compile(r'^Exception in thread "|^Error\b')  # how Java itself says that it cannot go on
_FRAME = re.compile(r"^\s|^$|^Caused by: ")
_NAMED_ERROR = re.compile(r"^([\w$]+\.)*[\w$]+(Exception|Error)\b")
_TELLING = re.compile(r"Exception|Error", re.IGNORECASE)
SHOWN_OF_AN_ERROR = 3  # lines: the reason is among them, and our own line about the job has it once more
_NO_FAULT = (  # said of every batch, or at every start
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
    "contains a task of very large size",
    "CacheManager: Data has already been cached",  # of two batches with equal plans
    "TaskKilled (",  # once for each task of a job that we cancelled, and have told of
    ": Incomplete task ",
    "Unable to load native-hadoop library",
    "FairSchedulableBuilder: A job was submitted with scheduler pool",  # pools need no file of their own
)
_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.ERROR, "INFO": logging.INFO}


class DriverLog:
    """Reads what a driver prints in a thread and logs it line by line, at the level that Spark gave each.

    Of an error's stack trace the first lines are at its level, the rest at DEBUG. Python workers print there too. On
    the terminal it would tear a live table and break a JSON log.
    """

    def __init__(self) -> None:
        self.last_lines: deque[str] = deque(maxlen=20)  # but for what says nothing about its end
        self._source, self.target = os.pipe()  # target: what the process gets as its standard output and error
        self._thread = threading.Thread(target=self._read, name="spark-driver-log", daemon=True)
        self._thread.start()

    def launched(self) -> None:
        """The process has its copy of the pipe, or will never have one: ours must go, or no end would be seen."""
        if self.target >= 0:
            os.close(self.target)
            self.target = -1

    def last_words(self) -> str:
        """What a process that has ended printed last, in one line: from its first error on, where it named one."""
        self.launched()
        self._thread.join(1.0)  # until it has read everything
        lines = list(self.last_lines)
        first = next((number for number, line in enumerate(lines) if _TELLING.search(line)), None)
        return " / ".join(lines[-3:] if first is None else lines[first:])

    def _read(self) -> None:
        levels = _LineLevels()
        with open(self._source, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - a descriptor
            for line in map(str.rstrip, lines):
                level = levels.of(line)
                is_word = level == logging.ERROR or (level == logging.INFO and not _LEVEL.match(line))
                if is_word and not _FRAME.match(line):
                    self.last_lines.append(line)
                logger.log(level, "%s", line)


class _LineLevels:
    """How loud each line of a driver is, one after the other."""

    def __init__(self) -> None:
        self._in_trace = False
        self._left = 0  # lines of an error's trace that are still to be shown

    def of(self, line: str) -> int:
        """The level of the next line."""
        if any(text in line for text in _NO_FAULT):
            return logging.DEBUG
        if (match := _LEVEL.match(line)) or _JAVAS_OWN.match(line):
            level = _LEVELS.get(match[1], logging.DEBUG) if match else logging.ERROR
            self._in_trace, self._left = True, SHOWN_OF_AN_ERROR - 1 if level == logging.ERROR else 0
            return level
        if _FRAME.match(line) or (self._in_trace and _NAMED_ERROR.match(line)):
            self._left -= 1
            return logging.ERROR if self._left >= 0 else logging.DEBUG
        self._in_trace, self._left = False, 0
        return logging.INFO  # a launcher's word, or what a Python worker prints


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as the block lasts: Spark's launcher hands on only the process's own."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def end_process(process: subprocess.Popen[bytes], grace_s: float = 5.0) -> None:
    """End a driver: by closing its standard input, which it watches, then by SIGTERM, then by SIGKILL. Blocks.

    Args:
        process: The Java process itself, for Spark's scripts replace themselves with it.
        grace_s: How long each of the first two ways may take.
    """
    if process.stdin is not None:
        with suppress(OSError):  # a broken pipe: it is dead already
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
        return
    process.kill()
    process.wait()
