"""Which kind of Spark session the settings ask for, and whether it can be started."""

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
        ranges: The places, for errors, where channels have executors read Kafka.

    Raises:
        MissingExtraError: A package is not installed.
        ConfigError: There is no suitable Java, or no Kafka connector.
    """
    maker_for(settings, ranges=bool(ranges), places=ranges)


def maker_for(settings: SparkSettings, *, ranges: bool = False, places: Sequence[str] = ()) -> SessionMaker:
    """The maker of the sessions that *settings* ask for. Raises the errors of :func:`check_spark`.

    Args:
        ranges: Whether executors are to read Kafka.
        places: Where that is configured, for errors.
    """
    if settings.remote is not None:  # Java and the jars are the server's
        check_connect()
        return ConnectMaker(settings)
    java = check_classic()
    return ClassicMaker(settings, java, tuple(map(str, _connector(settings, ranges, places))))


def _connector(settings: SparkSettings, ranges: bool, places: Sequence[str]) -> list[Path]:
    """The connector's jars if channels need them, or the settings name them: functions may use them, too."""
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
