"""Lets Spark's executors read Kafka: DataFrames of offset ranges, and the jars that this needs."""

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
from reactive_kafka.spark.batches.columns import data_frame
from reactive_kafka.spark.batches.spark_batch import BatchPart
from reactive_kafka.spark.session.conf import spelled
from reactive_kafka.spark.session.java_client import kafka_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("reactive_kafka.spark")


class KafkaSource:
    """Makes DataFrames of ranges that executors read from Kafka.

    They read with the rights and the isolation level of the channel.
    """

    def __init__(self, settings: IncomingSettings, servers: Callable[[], str]) -> None:
        self._settings = settings
        # Returns the addresses of the brokers. Called each time a DataFrame is made.
        self._servers = servers
        self._options = kafka_options(settings, read_pem)

    def __call__(self, spark: SparkSession, parts: Sequence[BatchPart]) -> DataFrame:
        """Return the rows of *parts*, which are read when a job needs them.

        The job fails if offsets are not in the log any more.
        """
        try:
            # Certificates may have been renewed. Executors may run on other machines, so they get
            # certificates as text.
            self._options = kafka_options(self._settings, read_pem)
        except ConfigError as error:
            # The certificates may be in the middle of a renewal. The options from before may still
            # work.
            logger.warning("%s", error)
        # Without failOnDataLoss Spark would skip lost records and report success.
        fixed = {"includeHeaders": "true", "failOnDataLoss": "true"}
        options = {"kafka.bootstrap.servers": self._servers(), **self._options, **fixed}
        frames = [
            spark.read.format("kafka").options(**options, **offsets_json(ranges)).load()
            for ranges in split_into_reads(offsets_by_partition(parts))
        ]
        columns = [piece for part in parts for piece in part.pieces if not isinstance(piece, range)]
        if columns:
            frames.append(data_frame(spark, columns))
        return reduce(lambda frame, other: frame.union(other), frames)


def read_pem(path: str) -> str:
    """Return the text of a PEM file."""
    return Path(path).read_text(encoding="utf-8", errors="replace")


def offsets_by_partition(parts: Iterable[BatchPart]) -> dict[TopicPartition, list[range]]:
    """Return partition -> the offsets for executors, in ascending order, adjacent ranges joined."""
    offsets: dict[TopicPartition, list[range]] = {}
    for part in parts:
        partition = TopicPartition(part.range.topic, part.range.partition)
        for piece in part.pieces:
            if isinstance(piece, range):
                offsets.setdefault(partition, []).append(piece)
    return {partition: _joined(ranges) for partition, ranges in offsets.items()}


def _joined(ranges: list[range]) -> list[range]:
    joined: list[range] = []
    for offsets in sorted(ranges, key=lambda offsets: offsets.start):
        if joined and offsets.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, offsets.stop))
        else:
            joined.append(offsets)
    return joined


def split_into_reads(
    offsets: Mapping[TopicPartition, Sequence[range]],
) -> list[dict[TopicPartition, range]]:
    """Split ranges into reads, because one read takes only one range of each partition."""
    most = max(map(len, offsets.values()), default=0)
    return [
        {partition: ranges[number] for partition, ranges in offsets.items() if number < len(ranges)}
        for number in range(most)
    ]


def offsets_json(ranges: Mapping[TopicPartition, range]) -> dict[str, str]:
    """Return the options with partitions and offsets. Ends are exclusive, as in our ranges."""
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for (topic, number), offsets in ranges.items():
        assigned.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[number] = offsets.start
        ends.setdefault(topic, {})[number] = offsets.stop
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }


# "is_alone": without dependencies. The others are in PySpark, and the POMs of Spark's jars would
# send Maven to more repositories.
CONNECTOR = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.3", is_alone=True)
PINNED = (
    CONNECTOR,
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", is_alone=True),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.1", is_alone=True),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1", is_alone=True),
)
"""These jars work with PySpark 4.1.4. Maven may lack some in the versions of the newest PySpark."""

_CACHED = f"spark-connector-{CONNECTOR.version}"
FETCH_COMMAND = "reactive-kafka spark jars --to DIR"


def connector_folder() -> Path:
    """Return the default folder of the jars, in the cache. It need not exist."""
    return cache_directory() / _CACHED


def connector_jars(
    folder: Path | str | None = None, *, pinned: Mapping[str, str] = SHA256
) -> list[Path]:
    """Return the connector's jars in a folder, or in the cache.

    A jar with a pinned name must have the pinned SHA-256. Users may choose jars of other versions.

    Raises:
        ConfigError: A jar is missing, damaged, or does not fit PySpark.
    """
    place = Path(folder).expanduser().absolute() if folder is not None else connector_folder()
    jars = [_only_one(place, artifact) for artifact in PINNED]
    _check_version(jars[0], place)
    wrong = not_as_pinned([jar for jar in jars if jar.name in pinned], pinned)
    if wrong:
        raise ConfigError(f'{place}: {"; ".join(wrong)}: remove it and run "{FETCH_COMMAND}" again')
    return jars


def brings_connector(conf: Mapping[str, Any]) -> bool:
    """True if the user's Spark properties name a Kafka connector, so that ours is not needed."""
    return any(
        CONNECTOR.name in spelled(conf.get(name, ""))
        for name in ("spark.jars", "spark.jars.packages")
    )


def fetch_connector(to: Path | None = None, *, pinned: Mapping[str, str] = SHA256) -> Path:
    """Fetch the pinned jars with Maven into the cache, once, and copy them to *to*.

    Other jars in that folder stay. Return the folder that has the jars.

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
        others = [jar.name for jar in _versions(to, artifact) if jar.name != artifact.jar]
        if others:
            raise ConfigError(
                f"{to} has {', '.join(others)} already, in place of {artifact.jar}: remove it first"
            )
    to.mkdir(parents=True, exist_ok=True)
    for artifact in PINNED:
        # Copy under another name first, so that a jar appears complete or not at all.
        unfinished = to / f".{artifact.jar}.{os.getpid()}"
        try:
            shutil.copyfile(cached / artifact.jar, unfinished)
            unfinished.replace(to / artifact.jar)
        finally:
            unfinished.unlink(missing_ok=True)
    return to


def _only_one(folder: Path, artifact: Artifact) -> Path:
    jars = _versions(folder, artifact)
    if len(jars) > 1:
        names = ", ".join(jar.name for jar in jars)
        raise ConfigError(f"{folder} has several versions of {artifact.name}: {names}; leave one")
    if not jars:
        raise ConfigError(
            f"{folder} has no {artifact.jar}, which is of Spark's Kafka connector: "
            f'run "{FETCH_COMMAND}" and set jars = "DIR" in [spark]'
        )
    if not zipfile.is_zipfile(jars[0]):
        raise ConfigError(f'{jars[0]} is damaged: remove it and run "{FETCH_COMMAND}" again')
    return jars[0]


def _versions(folder: Path, artifact: Artifact) -> list[Path]:
    return sorted(folder.glob(f"{artifact.name}-[0-9]*.jar"))


def _check_version(connector: Path, folder: Path) -> None:
    try:
        pyspark = version("pyspark")
    except PackageNotFoundError:
        # A missing PySpark is reported elsewhere, for every mode.
        return
    made_for = connector.stem.removeprefix(f"{CONNECTOR.name}-")
    minor = made_for.split(".")[:2]
    if minor != pyspark.split(".")[:2]:
        raise ConfigError(
            f"{folder} has the Kafka connector of Spark {made_for}, and PySpark {pyspark} is"
            f" installed: pip install 'pyspark=={'.'.join(minor)}.*', or put that PySpark's"
            " connector there"
        )
