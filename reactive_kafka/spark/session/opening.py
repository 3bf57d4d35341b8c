"""Which kind of Spark session the settings ask for, and whether it can be had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reactive_kafka.config.schema import SparkSettings
from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.session.classic import ClassicMaker, check_classic
from reactive_kafka.spark.session.connect import ConnectMaker, check_connect
from reactive_kafka.spark.session.jars import brings_connector, connector_jars
from reactive_kafka.spark.session.seam import SessionMaker


def check_spark(settings: SparkSettings, *, ranges: Sequence[str] = ()) -> None:
    """Check, without importing or starting anything, that Spark can be started.

    Args:
        settings: The user's.
        ranges: Where each channel says that executors are to read Kafka, for errors.

    Raises:
        MissingExtraError: A package is not installed.
        ConfigError: There is no Java that fits, or no Kafka connector.
    """
    maker_for(settings, ranges=bool(ranges), places=ranges)


def maker_for(settings: SparkSettings, *, ranges: bool = False, places: Sequence[str] = ()) -> SessionMaker:
    """What opens sessions as *settings* say. Raises what :func:`check_spark` raises.

    Args:
        settings: The user's.
        ranges: Whether executors are to read Kafka.
        places: Where that is said, for errors.
    """
    if settings.remote is not None:  # its Java and its jars are where the server is
        check_connect()
        return ConnectMaker(settings)
    java = check_classic()
    return ClassicMaker(settings, java, tuple(map(str, _connector(settings, ranges, places))))


def _connector(settings: SparkSettings, ranges: bool, places: Sequence[str]) -> list[Path]:
    """The connector's jars where the channels need them, or the settings name them: a function may use them, too."""
    if settings.jars is None and (not ranges or brings_connector(settings.conf)):
        return []
    try:
        return connector_jars(settings.jars)
    except ConfigError as error:
        if settings.jars is not None:
            said = [settings.place("jars", settings.jars)]
        else:
            said = [f"{place}: it needs Spark's Kafka connector" for place in places or ('mode = "ranges"',)]
        raise ConfigError(*(f"{one}: {problem}" for one in said for problem in error.problems)) from None
