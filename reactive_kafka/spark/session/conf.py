"""Translates the user's settings into Spark's properties. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from reactive_kafka.config.secrets import SECRET_NAMES, Secret, revealed
from reactive_kafka.config.settings import SparkSettings

LOOPBACK = "127.0.0.1"
# Options of Kafka's Java clients with secret values.
SECRET = ("kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.key.password")

# How long executors keep a Kafka consumer, and the records it has fetched, after its task. No other
# job uses it again. With the default of five minutes, 100 connections were open after 25 small
# batches of two partitions.
CONSUMERS: Mapping[str, str] = {
    f"spark.kafka.consumer.{cache}.{name}": "5s"
    for cache in ("cache", "fetchedData.cache")
    for name in ("timeout", "evictorThreadRunInterval")
}


def session_conf(
    settings: SparkSettings, cores: int, *, jars: Sequence[str] = (), path: str = ""
) -> dict[str, str]:
    """Return Spark's properties. Those of the user replace ours.

    Args:
        settings: The table ``[spark]``.
        cores: The number of processors of this machine.
        jars: The jars of the Kafka connector.
        path: Our PYTHONPATH, for executors on this machine.
    """
    conf = {
        "spark.app.name": "reactive-kafka",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        # A cancelled Python task ends after 0.2 s instead of 2 s.
        "spark.python.task.killTimeout": "200ms",
        "spark.sql.session.timeZone": "UTC",
        # Larger batches are cut into partitions.
        "spark.sql.execution.arrow.localRelationThreshold": "1m",
    }
    if on_this_machine(settings.master):
        conf["spark.driver.host"] = LOOPBACK
        conf["spark.driver.bindAddress"] = LOOPBACK
    if settings.master.startswith("local"):
        conf["spark.sql.shuffle.partitions"] = str(local_cores(settings.master, cores))
    elif on_this_machine(settings.master):
        # A worker does not pass our environment on to its executors.
        conf["spark.executorEnv.PYTHONPATH"] = path
    if jars:
        conf.update(CONSUMERS)
    # Spark shows Hadoop's properties also under Hadoop's own names.
    hidden = [
        f"\\Q{name.removeprefix('spark.hadoop.')}\\E" for name in (*SECRET, *secret_names(settings))
    ]
    # Spark's pages and its event log do not show the values of these properties.
    conf["spark.redaction.regex"] = "|".join((SECRET_NAMES, *hidden))
    conf.update({name: spelled(value) for name, value in settings.conf.items()})
    conf["spark.master"] = spelled(settings.master)
    if jars:
        conf["spark.jars"] = ",".join([*filter(None, [conf.get("spark.jars")]), *jars])
    return conf


def secret_names(settings: SparkSettings) -> list[str]:
    """Return the names of the properties whose values are secrets."""
    properties = {**settings.conf, "spark.master": settings.master}
    return [name for name, value in properties.items() if isinstance(value, Secret)]


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the text of a Java properties file. Source: java.util.Properties.load."""
    lines = (
        f"{_escaped(name, ' =:#!')}={_escaped(value, ' ')}\n" for name, value in properties.items()
    )
    return "".join(lines)


def _escaped(text: str, special: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return "".join(f"\\{char}" if char in special else char for char in escaped)


def driver_environment(
    settings: SparkSettings, environ: Mapping[str, str], *, java_home: str, python: str, path: str
) -> dict[str, str]:
    """Return the variables to set while a session is opened.

    Except for JAVA_HOME and PYTHONPATH, variables in *environ*, that of the process, stay.
    """
    ours = {}
    named_python = settings.conf.get("spark.pyspark.python")
    if named_python:
        # Only Spark's own scripts read that property. pyspark reads this variable.
        ours["PYSPARK_PYTHON"] = spelled(named_python)
    elif on_this_machine(settings.master):
        # Executors need the same version. On other machines, Python may have another path.
        ours["PYSPARK_PYTHON"] = python
    if settings.master.startswith("local") and "PYSPARK_PYTHON" not in environ:
        ours["PYTHONPATH"] = path
    if on_this_machine(settings.master):
        # It may be impossible to resolve the name of the machine.
        ours["SPARK_LOCAL_IP"] = LOOPBACK
    variables = {
        name: value for name, value in ours.items() if name == "PYTHONPATH" or name not in environ
    }
    return {**variables, "JAVA_HOME": java_home}


def on_this_machine(master: str) -> bool:
    """True if the executors are on this machine, so that they can use its loopback interface."""
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def masters_in(master: str) -> list[tuple[str, int]]:
    """Return host and port of each master in the URL of a standalone cluster.

    ``spark://a:7077,b:7077`` has two; other URLs have none.
    """
    if not master.startswith("spark://"):
        return []
    masters = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if host and port.isdecimal():
            masters.append((host.strip("[]"), int(port)))
    return masters


def local_cores(master: str, cores: int) -> int:
    """Return how many tasks a ``local``, ``local[N]`` or ``local[*]`` master runs at once."""
    match = re.match(r"local\[(\d+)", master)
    if match:
        return int(match[1])
    return cores if master.startswith("local[*") else 1


def spelled(value: Any) -> str:
    """Return a value as Spark and Java read it; of a secret, its text."""
    value = revealed(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
