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
_NO_FAULT = (  # said of every batch, or at every start
    "contains a task of very large size",
    "Unable to load native-hadoop library",
    "FairSchedulableBuilder: A job was submitted with scheduler pool",  # pools need no file of their own
)
_LEVELS = {"WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.ERROR, "INFO": logging.INFO}


class DriverLog:
    """Reads what a driver prints in a thread and logs it line by line, at the level that Spark gave each.

    Python workers print there too. On the terminal it would tear a live table and break a JSON log.
    """

    def __init__(self) -> None:
        self.last_lines: deque[str] = deque(maxlen=20)
        self._source, self.target = os.pipe()  # target: what the process gets as its standard output and error
        self._thread = threading.Thread(target=self._read, name="spark-driver-log", daemon=True)
        self._thread.start()

    def launched(self) -> None:
        """The process has its copy of the pipe, or will never have one: ours must go, or no end would be seen."""
        if self.target >= 0:
            os.close(self.target)
            self.target = -1

    def last_words(self) -> str:
        """What a process that has ended printed last, in one line."""
        self.launched()
        self._thread.join(1.0)  # until it has read everything
        return " / ".join(self.last_lines)

    def _read(self) -> None:
        level = logging.INFO
        with open(self._source, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - a descriptor
            for line in lines:
                match = _LEVEL.match(line)
                level = _LEVELS.get(match[1], logging.DEBUG) if match else level  # a stack trace follows its line
                self.last_lines.append(line.rstrip())
                harmless = any(text in line for text in _NO_FAULT)
                logger.log(logging.DEBUG if harmless else level, "%s", line.rstrip())


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
