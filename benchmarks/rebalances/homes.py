"""Where the contenders run: environments of Python, and Kafka's own jars with one class of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from benchmarks.peers import homes
from benchmarks.rebalances.plan import Restarted, RestartFamily
from reactive_kafka.broker.jars import KafkaUnavailableError, find_java, kafka_jars

_SOURCE = Path(__file__).resolve().parent / "java" / "RestartedMember.java"
_CLASSES = homes.ROOT / ".cache" / "rebalances"
_COMPILE_S = 120.0


def made(rows: Iterable[Restarted]) -> dict[RestartFamily, str]:
    """Make what is missing; family -> why it cannot be had, for those that cannot."""
    found: dict[RestartFamily, str] = {}
    for family in dict.fromkeys(row.family for row in rows):
        if family == "java":
            try:
                _compile()
            except (homes.MissingError, KafkaUnavailableError) as error:
                found[family] = str(error)
        elif family == "faststream":
            found.update((family, why) for why in homes.made([family]).values())
    return found


def command(row: Restarted) -> list[str]:
    """What starts a member, up to the options of its job."""
    if row.family == "java":
        classes = f"{_CLASSES}:{kafka_jars()}/*"
        # Six of them share the machine with the broker.
        return [find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", classes, _SOURCE.stem, row.run]
    return homes.python_command(row.family, row.run)


def _compile() -> None:
    """Compile the member if its class is older than its source."""
    done = _CLASSES / f"{_SOURCE.stem}.class"
    if done.exists() and done.stat().st_mtime >= _SOURCE.stat().st_mtime:
        return
    compiler = Path(find_java()).resolve().parent / "javac"
    if not compiler.exists():
        raise homes.MissingError(
            f"{compiler} is not there: a JDK compiles the member (apt-get install openjdk-17-jdk)"
        )
    words = [str(compiler), "-d", str(_CLASSES), "-cp", f"{kafka_jars()}/*", str(_SOURCE)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    if ended.returncode:
        raise homes.MissingError(f"javac ended with code {ended.returncode}: {ended.stderr}")
