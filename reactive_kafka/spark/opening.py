"""Which kind of Spark session the settings ask for, and whether it can be had."""

from __future__ import annotations

from reactive_kafka.config.schema import SparkSettings
from reactive_kafka.spark.connect import ConnectMaker, check_connect
from reactive_kafka.spark.jars import brings_connector, connector_jars
from reactive_kafka.spark.seam import Maker
from reactive_kafka.spark.session import ClassicMaker, check_classic


def check_spark(settings: SparkSettings, *, ranges: bool = False) -> None:
    """Check, without importing or starting anything, that Spark can be started.

    Args:
        settings: The user's.
        ranges: Whether executors are to read Kafka.

    Raises:
        MissingExtraError: A package is not installed.
        ConfigError: There is no Java that fits, or no Kafka connector.
    """
    maker_for(settings, ranges=ranges)


def maker_for(settings: SparkSettings, *, ranges: bool = False) -> Maker:
    """What opens sessions as *settings* say. Raises what :func:`check_spark` raises."""
    if settings.remote is not None:  # its Java and its jars are where the server is
        check_connect()
        return ConnectMaker(settings)
    java = check_classic()
    return ClassicMaker(settings, java, _connector(settings, ranges))


def _connector(settings: SparkSettings, ranges: bool) -> tuple[str, ...]:
    if settings.jars is None and (not ranges or brings_connector(settings.conf)):
        return ()
    return tuple(str(jar) for jar in connector_jars(settings.jars))
