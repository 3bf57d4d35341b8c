"""A classic Spark session, its driver and its jobs; classic pyspark is imported only here.
Everything blocks.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from subprocess import Popen
from typing import Any, TypeVar
from uuid import uuid4

from reactive_kafka.config.secrets import masked, revealed
from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.errors import OffloadError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.batches.blame import reason_of
from reactive_kafka.spark.batches.columns import ColumnRecord, record_batch
from reactive_kafka.spark.batches.ledger import JobProgress
from reactive_kafka.spark.session.conf import (
    driver_environment,
    properties_text,
    secret_names,
    session_conf,
)
from reactive_kafka.spark.session.debug_lines import hide
from reactive_kafka.spark.session.driver import (
    DriverLog,
    Java,
    end_process,
    environment,
    home_for_spark,
    submit_arguments,
)
from reactive_kafka.spark.session.masters import reach_master

logger = logging.getLogger("reactive_kafka.spark")
T = TypeVar("T")

# If no driver starts, since that seldom passes.
PATIENT_RETRY_S = 60.0
# If a cluster is away.
CLUSTER_RETRY_S = 5.0
_JOB_PROPERTIES = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.scheduler.pool",
)


def warm_up_columns() -> Any:
    """One record. The first column loads pyarrow and pandas: that takes 0.4 s, which an event loop
    does not have.
    """
    return record_batch(TopicPartition("warm-up", 0), [ColumnRecord(0, 0, None, b"", ())])


class DriverSession:
    """A classic session and its Java process; None if that is not a child of this process."""

    def __init__(self, spark: Any, process: Popen[bytes] | None, owned: bool) -> None:
        self.spark = spark
        self.owned = owned
        self._process = process
        self._context = spark.sparkContext
        self._has_stopped = False
        master = str(self._context.master)
        self._master = masked("", master)
        # Not local-cluster[...]
        self._is_local = master == "local" or master.startswith("local[")
        elastic = self._context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
        self._needs_executors = not elastic and not self._is_local
        if owned:
            # For an exit without a stop of the app.
            atexit.register(self.end)

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
        # The driver itself is one.
        if self._needs_executors and context.getExecutorMemoryStatus().size() <= 1:
            return f"no executors: start workers at {self._master}, with cores and memory to spare"
        return None

    def warm_up(self) -> None:
        """Run a job of one row: what Spark loads for the first one takes about 2 s. Executors need
        our Python, too.
        """
        import pyarrow as pa

        self.spark.createDataFrame(pa.Table.from_batches([warm_up_columns()])).count()
        if not self._is_local or self._context.pythonExec != sys.executable:
            self._context.parallelize([0], 1).map(lambda number: number).count()

    def group(self, description: str, pool: str) -> ClassicJobGroup:
        return ClassicJobGroup(self.spark, description, pool)

    def stop(self) -> None:
        # Whatever state it is in: end() follows.
        with suppress(Exception):
            self.spark.stop()

    def end(self) -> None:
        atexit.unregister(self.end)
        if self._process is None:
            return
        if self.owned:
            end_process(self._process)
        if self._process.poll() is not None:
            _forget(self._process)


class ClassicJobGroup:
    """The Spark jobs of one run of a function."""

    def __init__(self, spark: Any, description: str, pool: str) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._description = description
        self._pool = pool
        # unique: a cancelled group stays cancelled.
        self._id = f"reactive-kafka-{uuid4().hex}"
        # Job -> stage -> its part, none active.
        self._ended_jobs: dict[int, dict[int, JobProgress]] = {}

    def run(self, job: Callable[[Any], T]) -> T:
        try:
            self._context.setJobGroup(self._id, self._description, interruptOnCancel=True)
            self._context.setLocalProperty("spark.scheduler.pool", self._pool)
            return job(self._spark)
        finally:
            # With the driver the properties are gone, too; the job's error must be seen.
            with suppress(Exception):
                for name in _JOB_PROPERTIES:
                    self._context.setLocalProperty(name, None)
                self._context.clearJobTags()

    def cancel(self) -> None:
        self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._id)

    def progress(self) -> JobProgress:
        tracker = self._context.statusTracker()
        # A stage may be shared by several jobs.
        stages: dict[int, JobProgress] = {}
        for job in tracker.getJobIdsForGroup(self._id):
            # What has ended is not asked for.
            stages.update(self._ended_jobs.get(job) or self._stages_of(tracker, job))
        return sum(stages.values(), JobProgress())

    def _stages_of(self, tracker: Any, job: int) -> dict[int, JobProgress]:
        info = tracker.getJobInfo(job)
        # Forgotten by Spark: long over.
        if info is None:
            return {}
        stages = {stage: _progress_of(tracker.getStageInfo(stage)) for stage in info.stageIds}
        if info.status != "RUNNING" and not any(stage.tasks_active for stage in stages.values()):
            begun = {
                number: stage
                for number, stage in stages.items()
                if stage.tasks_done or stage.tasks_failed
            }
            # The others were skipped.
            stages = self._ended_jobs[job] = begun
        return stages

    def is_over(self) -> bool:
        # A private name; without it the answer may be some milliseconds old.
        with suppress(Exception):
            self._context._jsc.sc().listenerBus().waitUntilEmpty(1_000)
        active = self.progress().tasks_active
        return active == 0 and self._ended_jobs.keys() >= set(
            self._context.statusTracker().getJobIdsForGroup(self._id)
        )


def _progress_of(stage: Any) -> JobProgress:
    # Forgotten by Spark.
    if stage is None:
        return JobProgress()
    done = stage.numCompletedTasks
    tasks = stage.numTasks
    return JobProgress(
        1, int(done == tasks), tasks, done, stage.numActiveTasks, stage.numFailedTasks
    )


class ClassicMaker:
    """Starts a driver (with the Kafka connector's jars) and a session in it, or takes the one of
    this process.
    """

    def __init__(self, settings: SparkSettings, java: Java, jars: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._java = java
        self._path = os.pathsep.join(filter(None, sys.path))
        self._conf = session_conf(settings, os.cpu_count() or 1, jars=jars, path=self._path)
        self._secret = frozenset(secret_names(settings))
        # Of an open() that is under way.
        self._process: Popen[bytes] | None = None
        self._is_aborted = False
        self.longest_retry_s = PATIENT_RETRY_S

    def open(self) -> DriverSession:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        silence_query_contexts()
        if SparkContext._active_spark_context is not None:
            logger.warning(
                "a Spark session exists already: it is used as it is, and [spark] has no effect on it"
            )
            process = getattr(SparkContext._gateway, "proc", None)
            return DriverSession(SparkSession.builder.getOrCreate(), process, owned=False)
        if SparkContext._gateway is None:
            self.longest_retry_s = CLUSTER_RETRY_S
            reach_master(
                str(revealed(self._settings.master)), str(masked("", self._settings.master))
            )
        with home_for_spark(self._java) as home:
            needed = driver_environment(
                self._settings,
                os.environ,
                java_home=str(home),
                python=sys.executable,
                path=self._path,
            )
            secrets = {name: self._conf[name] for name in self._secret if name in self._conf}
            hide((*secrets, *secrets.values()))
            with (
                submit_arguments(properties_text(secrets), os.environ) as submit,
                environment({**needed, **submit}),
            ):
                return self._open()

    def abort(self) -> None:
        self._is_aborted = True
        if self._process is not None:
            end_process(self._process)

    def _open(self) -> DriverSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        public = [item for item in self._conf.items() if item[0] not in self._secret]
        gateway: Any = SparkContext._gateway or self._launch(SparkConf().setAll(public))
        self._process = gateway.proc
        try:
            if self._is_aborted:
                raise OffloadError("aborted")
            conf = SparkConf().setAll(list(self._conf.items()))
            context = SparkContext(conf=conf, gateway=gateway)
            return DriverSession(SparkSession(context), gateway.proc, owned=True)
        except BaseException as error:
            # now: the text of a Java error is in the driver.
            why = reason_of(error)
            end_process(gateway.proc)
            _forget(gateway.proc)
            if isinstance(error, Exception):
                raise OffloadError(why.removeprefix("OffloadError: ")) from None
            raise
        finally:
            self._process = None

    def _launch(self, conf: Any) -> Any:
        from pyspark import java_gateway

        logger.info(
            "starting Spark's driver on %s, master %s",
            self._java,
            masked("", self._settings.master),
        )
        log = DriverLog()
        try:
            # Untyped.
            launch: Any = java_gateway.launch_gateway
            gateway = launch(conf, {"stdout": log.target, "stderr": log.target})
            self.longest_retry_s = (
                PATIENT_RETRY_S if self._settings.master.startswith("local") else CLUSTER_RETRY_S
            )
            return gateway
        except Exception as error:
            self.longest_retry_s = PATIENT_RETRY_S
            # What the driver said, if anything.
            raise OffloadError(log.last_words() or str(error)) from error
        finally:
            log.launched()


def silence_query_contexts() -> None:
    """Keep PySpark from writing each AnalysisException, with its Java trace, to stderr: our own
    line has the reason.
    """
    from pyspark.logger import PySparkLogger

    # They have handlers of their own.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _forget(process: Popen[bytes]) -> None:
    """Make pyspark forget a driver that has ended: it would raise ConnectionRefusedError for
    ever.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        gateway = SparkContext._gateway
        if gateway is None or gateway.proc is not process:
            return
        # There is no answer; our sockets are closed all the same.
        with suppress(Exception):
            gateway.shutdown()
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
