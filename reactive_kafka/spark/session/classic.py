"""A classic Spark session and its driver; classic pyspark is imported only here. Everything blocks."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from subprocess import Popen
from typing import Any

from reactive_kafka.config.schema import SparkSettings
from reactive_kafka.errors import MissingExtraError, OffloadError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.columns import record_batch
from reactive_kafka.spark.session.conf import driver_environment, session_conf
from reactive_kafka.spark.session.driver import DriverLog, end_process, environment
from reactive_kafka.spark.session.group import ClassicJobGroup
from reactive_kafka.spark.session.java import Java, choose_java, find_javas, home_for_spark

logger = logging.getLogger("reactive_kafka.spark")

PATIENT_RETRY_S = 60.0
CLUSTER_RETRY_S = 5.0


def check_classic() -> Java:
    """The Java to run a classic session on. Nothing is imported or started.

    Raises:
        MissingExtraError: pyspark, pyarrow or pandas is not installed.
        ConfigError: There is no suitable Java.
    """
    if not all(find_spec(name) for name in ("pyspark", "pyarrow", "pandas")):
        raise MissingExtraError("@app.spark", "spark")
    return choose_java(find_javas(os.environ))


def warm_up_columns() -> Any:
    """A RecordBatch of one record.

    The first column loads pyarrow and pandas. That takes 0.4 s, so it must not happen on an event loop.
    """
    return record_batch(TopicPartition("warm-up", 0), [_OneRecord()])


@dataclass(frozen=True, slots=True)
class _OneRecord:
    offset: int = 0
    timestamp: int | None = 0
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()


class DriverSession:
    """A classic :class:`~reactive_kafka.spark.session.seam.Session` and its Java process.

    Args:
        process: The driver; None if it is not a child of this process.
        owned: False for a session that the user has started: it is used, and not stopped.
    """

    def __init__(self, spark: Any, process: Popen[bytes] | None, owned: bool) -> None:
        self.spark = spark
        self.owned = owned
        self._process = process
        self._context = spark.sparkContext
        self._has_stopped = False
        self._master = str(self._context.master)
        self._is_local = self._master == "local" or self._master.startswith("local[")  # not local-cluster[...]
        elastic = self._context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
        self._needs_executors = not elastic and not self._is_local
        if owned:
            atexit.register(self.end)  # for an exit without a stop of the app

    def has_ended(self) -> bool:
        has_exited = self._process is not None and self._process.poll() is not None
        return self._has_stopped or self._context._jsc is None or has_exited

    @property
    def driver_pid(self) -> int | None:
        return self._process.pid if self._process and self.owned else None

    def trouble(self) -> str | None:
        """Whether the context lives and has executors; takes 2 ms."""
        java_context = self._context._jsc
        if java_context is None:
            return "somebody stopped the Spark session"
        context = java_context.sc()
        if context.isStopped():
            self._has_stopped = True
            return "Spark has stopped itself (the driver's log says why)"
        if self._needs_executors and context.getExecutorMemoryStatus().size() <= 1:  # the driver itself is one
            return f"no executors: start workers at {self._master}, with cores and memory to spare"
        return None

    def warm_up(self) -> None:
        """Run a job of one row: what Spark loads for the first one takes about 2 s.

        Raises:
            Exception: It failed, or executors have another Python, so that every Python function would fail.
        """
        import pyarrow as pa

        self.spark.createDataFrame(pa.Table.from_batches([warm_up_columns()])).count()
        if not self._is_local or self._context.pythonExec != sys.executable:
            self._context.parallelize([0], 1).map(lambda number: number).count()

    def group(self, description: str, pool: str) -> ClassicJobGroup:
        return ClassicJobGroup(self.spark, description, pool)

    def stop(self) -> None:
        with suppress(Exception):  # whatever state it is in: end() follows
            self.spark.stop()

    def end(self) -> None:
        atexit.unregister(self.end)
        if self._process is None:
            return
        if self.owned:
            end_process(self._process)
        if self._process.poll() is not None:
            _forget(self._process)


class ClassicMaker:
    """Starts a driver and a session in it, or takes the session that runs in this process.

    Args:
        jars: The Kafka connector.
    """

    longest_retry_s: float  # long if no driver starts, since that seldom passes; short if a cluster is away

    def __init__(self, settings: SparkSettings, java: Java, jars: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._java = java
        self._conf = session_conf(settings, os.cpu_count() or 1, jars=jars, path=sys.path)
        self._process: Popen[bytes] | None = None  # of an open() that is under way
        self._is_aborted = False
        self.longest_retry_s = PATIENT_RETRY_S

    def open(self) -> DriverSession:
        """Open a session.

        Raises:
            OffloadError: It did not start; the text is the driver's last output, if there is any.
        """
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        silence_query_contexts()
        if SparkContext._active_spark_context is not None:
            logger.warning("a Spark session exists already: it is used as it is, and [spark] has no effect on it")
            process = getattr(SparkContext._gateway, "proc", None)
            return DriverSession(SparkSession.builder.getOrCreate(), process, owned=False)
        with home_for_spark(self._java) as home:
            needed = driver_environment(
                self._settings, os.environ, java_home=str(home), python=sys.executable, path=sys.path
            )
            with environment(needed):
                return self._open()

    def abort(self) -> None:
        self._is_aborted = True
        if self._process is not None:
            end_process(self._process)

    def _open(self) -> DriverSession:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        gateway: Any = SparkContext._gateway or self._launch()
        self._process = gateway.proc
        try:
            if self._is_aborted:
                raise OffloadError("aborted")
            context = SparkContext(conf=_spark_conf(self._conf), gateway=gateway)
            return DriverSession(SparkSession(context), gateway.proc, owned=True)
        except BaseException:
            end_process(gateway.proc)
            _forget(gateway.proc)
            raise
        finally:
            self._process = None

    def _launch(self) -> Any:
        from pyspark import java_gateway

        logger.info("starting Spark's driver on %s, master %s", self._java, self._settings.master)
        log = DriverLog()
        try:
            launch: Any = java_gateway.launch_gateway  # untyped
            gateway = launch(_spark_conf(self._conf), {"stdout": log.target, "stderr": log.target})
            self.longest_retry_s = PATIENT_RETRY_S if self._settings.master.startswith("local") else CLUSTER_RETRY_S
            return gateway
        except Exception as error:
            self.longest_retry_s = PATIENT_RETRY_S
            raise OffloadError(log.last_words() or str(error)) from error
        finally:
            log.launched()


def silence_query_contexts() -> None:
    """Keep PySpark from writing each AnalysisException, with its whole Java trace, to stderr.

    Its loggers for that have handlers of their own, and do not propagate. Our own line has the reason.
    """
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _spark_conf(conf: dict[str, str]) -> Any:
    from pyspark import SparkConf

    return SparkConf().setAll(list(conf.items()))


def _forget(process: Popen[bytes]) -> None:
    """Make pyspark forget a driver that has ended: it would raise ConnectionRefusedError for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        gateway = SparkContext._gateway
        if gateway is None or gateway.proc is not process:
            return
        with suppress(Exception):  # there is no answer; our sockets are closed all the same
            gateway.shutdown()
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
