"""Where contenders run: environments of Python and folders of jars, made if they are not there, and
commands.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.jar_hashes import SHA256
from benchmarks.peers.plan import JVM, OWN, Family, Safety, Speed
from reactive_kafka.broker.jars import (
    Artifact,
    KafkaUnavailableError,
    cache_directory,
    fetched_once,
    find_java,
)

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SOURCES = HERE / "java"
SMALLRYE = Artifact("io.smallrye.reactive", "smallrye-reactive-messaging-kafka", "4.36.0")
PARALLEL = Artifact("io.confluent.parallelconsumer", "parallel-consumer-core", "0.5.3.3")
JARS: dict[Family, tuple[Artifact, ...]] = {
    "smallrye": (
        SMALLRYE,
        # What Quarkus brings and it leaves open: CDI, MicroProfile Config, and an interface that it
        # names.
        Artifact("org.jboss.weld.se", "weld-se-core", "6.0.4.Final"),
        Artifact("io.smallrye.config", "smallrye-config", "3.17.2"),
        Artifact(
            "org.eclipse.microprofile.reactive-streams-operators",
            "microprofile-reactive-streams-operators-api",
            "3.0.1",
        ),
    ),
    "parallel-consumer": (PARALLEL,),
}
_INSTALL_S = 240.0


class MissingError(Exception):
    """A peer cannot be installed on this machine; the text says why."""


def made(families: Sequence[Family]) -> dict[str, str]:
    """Make what is missing; family -> why it cannot be had, for those that cannot."""
    found: dict[str, str] = {}
    for family in dict.fromkeys(families):
        try:
            if family in JVM:
                _classes(_jars(family), family)
            elif family in OWN:
                _environment(family)
        except (MissingError, KafkaUnavailableError, subprocess.TimeoutExpired) as error:
            found[family] = str(error)
    return found


def command(row: Speed | Safety) -> list[str]:
    """What starts a contender, up to the options of its job."""
    if row.family in JVM:
        jars = _folder(row.family)
        return [find_java(), "-cp", f"{_target(row.family)}:{jars}/*", "peers.Main", row.run]
    return python_command(row.family, row.run)


def python_command(family: Family, run: str) -> list[str]:
    """What starts a contender in Python: ``module:function`` below ``benchmarks``."""
    return [str(_python(family)), "-m", "benchmarks.peers.contenders", run]


def version(family: Family) -> str:
    """What the results call the peers of a family that has a home of its own."""
    if family in JVM:
        return f"{JARS[family][0].name} {JARS[family][0].version}"
    lock = _lock(family).read_text().splitlines()
    pinned = [line for package in OWN[family] for line in lock if line.startswith(f"{package}==")]
    return ", ".join(line.removesuffix(" \\").replace("==", " ") for line in pinned)


def _python(family: Family) -> Path:
    return ROOT / (f".venv-peers-{family}" if family in OWN else ".venv") / "bin" / "python"


def _lock(family: Family) -> Path:
    return HERE / "requirements" / f"{family}.txt"


def _environment(family: Family) -> None:
    python = _python(family)
    lock = _lock(family)
    ready = python.parents[1] / ".ready"
    digest = _digest([str(lock)])
    if ready.exists() and ready.read_text() == digest:
        return
    print(f"installing {' and '.join(OWN[family])} into {python.parents[1].name}", flush=True)
    found = _said(["scripts/find-python.sh"]).strip()
    _said([found, "-m", "venv", "--clear", str(python.parents[1])])
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "5",
    ]
    _said([*pip, "--require-hashes", "--no-deps", "--requirement", str(lock)])
    ready.write_text(digest)


def _jars(family: Family) -> Path:
    artifacts = JARS[family]
    return fetched_once(
        artifacts[0].name,
        _folder(family).name,
        artifacts,
        needed=(artifacts[0].jar,),
        pinned=SHA256,
    )


def _folder(family: Family) -> Path:
    first = JARS[family][0]
    return cache_directory() / f"peers-{first.name}-{first.version}"


def _target(family: Family) -> Path:
    return ROOT / ".cache" / "peers" / family


def _classes(jars: Path, family: Family) -> None:
    """Compile what runs with these jars: the one source that uses them, and what all share."""
    target = _target(family)
    own = {"smallrye": "SmallRye.java", "parallel-consumer": "ParallelConsumer.java"}
    others = set(own.values()) - {own[family]}
    sources = [str(one) for one in sorted(SOURCES.glob("peers/*.java")) if one.name not in others]
    digest = _digest([*sources, str(SOURCES / "META-INF" / "beans.xml")]) + jars.name
    ready = target / ".ready"
    if ready.exists() and ready.read_text() == digest:
        return
    compiler = Path(find_java()).resolve().parent / "javac"
    if not compiler.exists():
        raise MissingError(
            f"{compiler} is not there: a JDK compiles the contender (apt-get install openjdk-17-jdk)"
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _said([str(compiler), "-d", str(target), "-cp", f"{jars}/*", *sources])
    shutil.copytree(SOURCES / "META-INF", target / "META-INF")
    ready.write_text(digest)


def _digest(files: Sequence[str]) -> str:
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def _said(words: Sequence[str]) -> str:
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=_INSTALL_S, check=False
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise MissingError(f"{' '.join(words[:4])} ... ended with code {done.returncode}: {tail}")
    return done.stdout
