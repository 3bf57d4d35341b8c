"""How Spark's executors read Kafka: a pinned set of jars, and ranges of offsets as a DataFrame."""

from __future__ import annotations

import json
import logging
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.jar_hashes import SHA256
from reactive_kafka.broker.jars import Artifact, cache_directory, fetched_once, not_as_pinned
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.batch import BatchPart
from reactive_kafka.spark.batches.columns import data_frame
from reactive_kafka.spark.session.conf import kafka_options, spelled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("reactive_kafka.spark")


class KafkaSource:
    """Makes DataFrames of ranges that Spark's executors read from Kafka, with the channel's rights
    and isolation.
    """

    def __init__(self, settings: IncomingSettings, servers: Callable[[], str]) -> None:
        self._settings = settings
        # Asked for the brokers' addresses when a DataFrame is made.
        self._servers = servers
        self._options = kafka_options(settings, _read_pem)

    def __call__(self, spark: SparkSession, parts: Sequence[BatchPart]) -> DataFrame:
        """The rows of *parts*, read when a job needs them; it fails if offsets are not in the log
        any more.
        """
        try:
            # Certificates may have been renewed.
            self._options = kafka_options(self._settings, _read_pem)
        except ConfigError as error:
            # A renewal is under way, perhaps: the options of the start may still work.
            logger.warning("%s", error)
        # failOnDataLoss: without it Spark skips lost records and reports a success.
        fixed = {"includeHeaders": "true", "failOnDataLoss": "true"}
        options = {"kafka.bootstrap.servers": self._servers(), **self._options, **fixed}
        frames = [
            spark.read.format("kafka").options(**options, **offsets_json(ranges)).load()
            for ranges in reads(runs(parts))
        ]
        if shipped := [
            piece for part in parts for piece in part.pieces if not isinstance(piece, range)
        ]:
            frames.append(data_frame(spark, shipped))
        return reduce(lambda one, other: one.union(other), frames)


def _read_pem(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def runs(parts: Iterable[BatchPart]) -> dict[TopicPartition, list[range]]:
    """partition -> the offsets that executors are to read, ascending, adjacent ranges joined."""
    found: dict[TopicPartition, list[range]] = {}
    for part in parts:
        if offsets := [piece for piece in part.pieces if isinstance(piece, range)]:
            found.setdefault(TopicPartition(part.range.topic, part.range.partition), []).extend(
                offsets
            )
    return {partition: _joined(offsets) for partition, offsets in found.items()}


def _joined(offsets: list[range]) -> list[range]:
    joined: list[range] = []
    for one in sorted(offsets, key=lambda one: one.start):
        if joined and one.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, one.stop))
        else:
            joined.append(one)
    return joined


def reads(offsets: Mapping[TopicPartition, Sequence[range]]) -> list[dict[TopicPartition, range]]:
    """The reads that the runs need: one read takes one range of each partition."""
    most = max(map(len, offsets.values()), default=0)
    return [
        {partition: its[number] for partition, its in offsets.items() if number < len(its)}
        for number in range(most)
    ]


def offsets_json(ranges: Mapping[TopicPartition, range]) -> dict[str, str]:
    """The options that name partitions and offsets; ends are exclusive, like ours."""
    by_topic: dict[str, dict[int, range]] = {}
    for (topic, number), offsets in ranges.items():
        by_topic.setdefault(topic, {})[number] = offsets
    named = {
        "assign": {topic: list(its) for topic, its in by_topic.items()},
        "startingOffsets": {
            topic: {at: one.start for at, one in its.items()} for topic, its in by_topic.items()
        },
        "endingOffsets": {
            topic: {at: one.stop for at, one in its.items()} for topic, its in by_topic.items()
        },
    }
    return {option: json.dumps(value) for option, value in named.items()}


# Alone: the rest is in PySpark, and the POMs of Spark's own jars would send Maven to further
# repositories.
CONNECTOR = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.3", is_alone=True)
PINNED = (
    CONNECTOR,
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", is_alone=True),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1", is_alone=True),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1", is_alone=True),
)
"""Known to work with PySpark 4.1.4. Maven need not have all of them in the versions of the newest
PySpark.
"""

_CACHED = f"spark-connector-{CONNECTOR.version}"
_FETCH = "reactive-kafka spark jars --to DIR"


def connector_folder() -> Path:
    """The default folder of the jars, in the cache. It need not exist."""
    return cache_directory() / _CACHED


def connector_jars(
    folder: Path | str | None = None, *, pinned: Mapping[str, str] = SHA256
) -> list[Path]:
    """The connector's jars in a folder, or in the cache; ConfigError if one is missing, damaged, or
    of another version.

    A jar by a pinned name must have the pinned SHA-256. One of another version is the user's own
    choice.
    """
    place = Path(folder).expanduser().absolute() if folder is not None else connector_folder()
    found = [_only_one(place, artifact) for artifact in PINNED]
    _check_version(found[0], place)
    if wrong := not_as_pinned([jar for jar in found if jar.name in pinned], pinned):
        raise ConfigError(f'{place}: {"; ".join(wrong)}: remove it and run "{_FETCH}" again')
    return found


def brings_connector(conf: Mapping[str, Any]) -> bool:
    """Whether the user's own Spark properties name a Kafka connector, so that ours is not
    needed.
    """
    return any(
        CONNECTOR.name in spelled(conf.get(name, ""))
        for name in ("spark.jars", "spark.jars.packages")
    )


def fetch_connector(to: Path | None = None, *, pinned: Mapping[str, str] = SHA256) -> Path:
    """Fetch the pinned set with Maven, once, into the cache, and copy it to *to*, where other jars
    stay; the folder.

    Raises:
        KafkaUnavailableError: Maven is missing or could not fetch them, or one is not what was
            pinned.
        ConfigError: The folder has another version of one of them.
    """
    names = [artifact.jar for artifact in PINNED]
    cached = fetched_once("Spark's Kafka connector", _CACHED, PINNED, needed=names, pinned=pinned)
    if to is None:
        return cached
    for artifact in PINNED:
        if others := [jar.name for jar in _versions(to, artifact) if jar.name != artifact.jar]:
            raise ConfigError(
                f"{to} has {', '.join(others)} already, in place of {artifact.jar}: remove it first"
            )
    to.mkdir(parents=True, exist_ok=True)
    for artifact in PINNED:
        # A jar appears complete or not at all.
        half = to / f".{artifact.jar}.{os.getpid()}"
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
        # Reported elsewhere, for every mode.
        return
    made_for = connector.stem.removeprefix(f"{CONNECTOR.name}-")
    minor = made_for.split(".")[:2]
    if minor != pyspark.split(".")[:2]:
        raise ConfigError(
            f"{folder} has the Kafka connector of Spark {made_for}, and PySpark {pyspark} is installed: "
            f"pip install 'pyspark=={'.'.join(minor)}.*', or put that PySpark's connector there"
        )
