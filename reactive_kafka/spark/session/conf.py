"""The session's configuration and environment: the user's settings over our defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from reactive_kafka.config.schema import SparkSettings

LOOPBACK = "127.0.0.1"

# How long executors keep a Kafka consumer, and what it has fetched, after its task. No other job uses it again. The
# default is five minutes: after 25 small batches of two partitions 100 connections were open.
CONSUMERS: Mapping[str, str] = {
    f"spark.kafka.consumer.{cache}.{name}": "5s"
    for cache in ("cache", "fetchedData.cache")
    for name in ("timeout", "evictorThreadRunInterval")
}


def session_conf(
    settings: SparkSettings, cores: int, *, jars: Sequence[str] = (), path: Sequence[str] = ()
) -> dict[str, str]:
    """Spark's properties for the session; the user's settings win.

    *jars* are the Kafka connector, in addition to the user's own; *path* is ``sys.path``, which executors on this
    machine need, too.
    """
    conf = {
        "spark.app.name": "reactive-kafka",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.python.task.killTimeout": "200ms",  # a cancelled Python task ends in 0.2 s instead of 2 s
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.localRelationThreshold": "1m",  # larger batches are cut into partitions
    }
    if on_this_machine(settings.master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = LOOPBACK
    if settings.master.startswith("local"):
        conf["spark.sql.shuffle.partitions"] = str(local_cores(settings.master, cores))
    elif on_this_machine(settings.master):  # a worker passes on none of our environment
        conf["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(entry for entry in path if entry)
    if jars:
        conf.update(CONSUMERS)
    conf.update({name: spelled(value) for name, value in settings.conf.items()})
    conf["spark.master"] = settings.master
    if jars:
        conf["spark.jars"] = ",".join([*filter(None, [conf.get("spark.jars")]), *jars])
    return conf


def driver_environment(
    settings: SparkSettings, environ: Mapping[str, str], *, java_home: str, python: str, path: Sequence[str]
) -> dict[str, str]:
    """What is added to the environment while a session is opened; *environ*, the process's own, wins but for JAVA_HOME.

    *python* is this interpreter: executors need its version, and on other machines it has another path.
    """
    ours = {}
    if name := settings.conf.get("spark.pyspark.python"):  # read by Spark's own scripts only
        ours["PYSPARK_PYTHON"] = str(name)
    elif on_this_machine(settings.master):
        ours["PYSPARK_PYTHON"] = python
    if settings.master.startswith("local") and "PYSPARK_PYTHON" not in environ:
        ours["PYTHONPATH"] = os.pathsep.join(entry for entry in path if entry)
    if on_this_machine(settings.master):
        ours["SPARK_LOCAL_IP"] = LOOPBACK  # the machine's name need not resolve
    kept = {name: value for name, value in ours.items() if name == "PYTHONPATH" or name not in environ}
    return {**kept, "JAVA_HOME": java_home}


def on_this_machine(master: str) -> bool:
    """Whether the executors are on this machine, so that loopback is enough."""
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def local_cores(master: str, cores: int) -> int:
    """How many tasks a ``local``, ``local[N]`` or ``local[*]`` master runs at once."""
    if match := re.match(r"local\[(\d+)", master):
        return int(match[1])
    return cores if master.startswith("local[*") else 1


def spelled(value: Any) -> str:
    """A value as Spark and Java read it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
