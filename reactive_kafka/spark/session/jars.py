"""The jars with which Spark's executors read Kafka: a set that is known to work, and where it is kept."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reactive_kafka.broker.jars import Artifact, cache_directory, fetched_once
from reactive_kafka.errors import ConfigError

# Alone: the rest is in PySpark, and the POMs of Spark's own jars would send Maven to further repositories.
CONNECTOR = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.3", is_alone=True)
PINNED = (
    CONNECTOR,
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", is_alone=True),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1", is_alone=True),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1", is_alone=True),
)
"""Known to work with PySpark 4.1.4. Maven need not have all of them in the versions of the newest PySpark."""

_CACHED = f"spark-connector-{CONNECTOR.version}"
_FETCH = "reactive-kafka spark jars --to DIR"


def connector_folder() -> Path:
    """The default folder of the jars, in the cache. It need not exist."""
    return cache_directory() / _CACHED


def connector_jars(folder: Path | str | None = None) -> list[Path]:
    """The jars of the Kafka connector, for ``spark.jars``, in a folder, or in the cache; nothing is loaded or started.

    Raises:
        ConfigError: The set is incomplete, or made for another PySpark; the text says what to run.
    """
    place = Path(folder).expanduser().absolute() if folder is not None else connector_folder()
    found = [_only_one(place, artifact) for artifact in PINNED]
    _check_version(found[0], place)
    return found


def brings_connector(conf: Mapping[str, Any]) -> bool:
    """Whether the user's own Spark properties name a Kafka connector, so that ours is not needed."""
    return any(CONNECTOR.name in str(conf.get(name, "")) for name in ("spark.jars", "spark.jars.packages"))


def fetch_connector(to: Path | None = None) -> Path:
    """Fetch the pinned set with Maven, once, into the cache, and put it into *to* as well; returns the folder.

    The folder is created if it is missing, and other jars in it stay.

    Raises:
        KafkaUnavailableError: Maven is missing or could not fetch them.
        ConfigError: The folder has another version of one of them.
    """
    cached = fetched_once("Spark's Kafka connector", _CACHED, PINNED, needed=[artifact.jar for artifact in PINNED])
    if to is None:
        return cached
    for artifact in PINNED:
        if others := [jar.name for jar in _versions(to, artifact) if jar.name != artifact.jar]:
            raise ConfigError(f"{to} has {', '.join(others)} already, in place of {artifact.jar}: remove it first")
    to.mkdir(parents=True, exist_ok=True)
    for artifact in PINNED:
        half = to / f".{artifact.jar}.{os.getpid()}"  # a jar appears complete or not at all
        try:
            shutil.copyfile(cached / artifact.jar, half)
            half.replace(to / artifact.jar)
        finally:
            half.unlink(missing_ok=True)
    return to


def _only_one(folder: Path, artifact: Artifact) -> Path:
    jars = _versions(folder, artifact)
    if len(jars) > 1:
        names = ", ".join(jar.name for jar in jars)
        raise ConfigError(f"{folder} has several versions of {artifact.name}: {names}; leave one")
    if not jars:
        raise ConfigError(
            f"{folder} has no {artifact.jar}, which is of Spark's Kafka connector: "
            f'run "{_FETCH}" and set jars = "DIR" in [spark]'
        )
    if not zipfile.is_zipfile(jars[0]):
        raise ConfigError(f'{jars[0]} is damaged: remove it and run "{_FETCH}" again')
    return jars[0]


def _versions(folder: Path, artifact: Artifact) -> list[Path]:
    return sorted(folder.glob(f"{artifact.name}-[0-9]*.jar"))


def _check_version(connector: Path, folder: Path) -> None:
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        return  # reported elsewhere, for every mode
    made_for = connector.stem.removeprefix(f"{CONNECTOR.name}-")
    minor = made_for.split(".")[:2]
    if minor != pyspark.split(".")[:2]:
        raise ConfigError(
            f"{folder} has the Kafka connector of Spark {made_for}, and PySpark {pyspark} is installed: "
            f"pip install 'pyspark=={'.'.join(minor)}.*', or put that PySpark's connector there"
        )
