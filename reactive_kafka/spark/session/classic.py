"""Classic Spark sessions, with a driver on this machine. Only here classic pyspark is imported.

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

# The longest wait if no driver starts, which rarely gets better by itself.
PATIENT_RETRY_S = 60.0
# The longest wait if a cluster is away.
CLUSTER_RETRY_S = 5.0
_JOB_PROPERTIES = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.scheduler.pool",
)


def warm_up_columns() -> Any:
    """Return one record as columns.

    The first columns of a process import pyarrow and pandas. That takes 0.4 s, too long for an
    event loop, so call it in a thread.
    """
    return record_batch(TopicPartition("warm-up", 0), [ColumnRecord(0, 0, None, b"", ())])


class DriverSession:
    """A classic session and its Java process, if that is a child of this process."""

    def __init__(self, spark: Any, process: Popen[bytes] | None, owned: bool) -> None:
        self.spark = spark
        self.owned = owned
        self._process = process
        self._context = spark.sparkContext
        self._has_stopped = False
        master = str(self._context.master)
        self._master = masked("", master)
        # This excludes local-cluster[...], which has executors.
        self._is_local = master == "local" or master.startswith("local[")
        elastic = self._context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
        self._needs_executors = not elastic and not self._is_local
        if owned:
            # The process may exit without stopping the application.
            atexit.register(self.end)

    def has_ended(self) -> bool:
        if self._has_stopped or self._context._jsc is None:
            return True
        return self._process is not None and self._process.poll() is not None

    @property
    def driver_pid(self) -> int | None:
        return self._process.pid if self._process and self.owned else None

    def trouble(self) -> str | None:
        """Ask whether the context lives and has executors. It takes 2 ms."""
        java_context = self._context._jsc
        if java_context is None:
            return "the Spark session was stopped"
        context = java_context.sc()
        if context.isStopped():
            self._has_stopped = True
            return "Spark has stopped itself (the driver's log says why)"
        # The driver itself counts as one.
        if self._needs_executors and context.getExecutorMemoryStatus().size() <= 1:
            return f"no executors: start workers at {self._master}, with cores and memory to spare"
        return None

    def warm_up(self) -> None:
        """Run a job of one row, because the first job of a session takes about 2 s longer.

        If executors use another Python, run a Python job, too: it shows whether they have ours.
        """
        import pyarrow as pa

        self.spark.createDataFrame(pa.Table.from_batches([warm_up_columns()])).count()
        if not self._is_local or self._context.pythonExec != sys.executable:
            self._context.parallelize([0], 1).map(lambda number: number).count()

    def group(self, description: str, pool: str) -> ClassicJobGroup:
        return ClassicJobGroup(self.spark, description, pool)

    def stop(self) -> None:
        # It may be in any state. `end` follows in any case.
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
        # The id must be unique, because a cancelled group stays cancelled.
        self._id = f"reactive-kafka-{uuid4().hex}"
        # Job -> stage -> progress, of jobs without active tasks.
        self._ended_jobs: dict[int, dict[int, JobProgress]] = {}

    def run(self, job: Callable[[Any], T]) -> T:
        try:
            self._context.setJobGroup(self._id, self._description, interruptOnCancel=True)
            self._context.setLocalProperty("spark.scheduler.pool", self._pool)
            return job(self._spark)
        finally:
            # If the driver is gone, so are the properties. An error here would hide the job's.
            with suppress(Exception):
                for name in _JOB_PROPERTIES:
                    self._context.setLocalProperty(name, None)
                self._context.clearJobTags()

    def cancel(self) -> None:
        self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._id)

    def progress(self) -> JobProgress:
        tracker = self._context.statusTracker()
        # By the stage's number, because several jobs may share a stage.
        stages: dict[int, JobProgress] = {}
        for job in tracker.getJobIdsForGroup(self._id):
            # Spark is not asked again about jobs that have ended.
            stages.update(self._ended_jobs.get(job) or self._stages_of(tracker, job))
        return sum(stages.values(), JobProgress())

    def _stages_of(self, tracker: Any, job: int) -> dict[int, JobProgress]:
        info = tracker.getJobInfo(job)
        if info is None:
            # Spark has forgotten it, so it ended long ago.
            return {}
        stages = {stage: _progress_of(tracker.getStageInfo(stage)) for stage in info.stageIds}
        if info.status == "RUNNING" or any(stage.tasks_active for stage in stages.values()):
            return stages
        # The stages without any ended task were skipped.
        begun = {
            number: stage
            for number, stage in stages.items()
            if stage.tasks_done or stage.tasks_failed
        }
        self._ended_jobs[job] = begun
        return begun

    def is_over(self) -> bool:
        # Without this private method the answer may be some milliseconds old.
        with suppress(Exception):
            self._context._jsc.sc().listenerBus().waitUntilEmpty(1_000)
        if self.progress().tasks_active:
            return False
        jobs = set(self._context.statusTracker().getJobIdsForGroup(self._id))
        return self._ended_jobs.keys() >= jobs


def _progress_of(stage: Any) -> JobProgress:
    if stage is None:
        # Spark has forgotten it.
        return JobProgress()
    done = stage.numCompletedTasks
    tasks = stage.numTasks
    return JobProgress(
        1, int(done == tasks), tasks, done, stage.numActiveTasks, stage.numFailedTasks
    )


class ClassicMaker:
    """Starts a driver with a session, or uses the session that this process has already.

    pyspark puts every property on a command line that all users of the machine can read. So secrets
    go into a file that only we can read. At DEBUG pyspark also logs each property, so
    `debug_lines` drops these lines.
    """

    def __init__(self, settings: SparkSettings, java: Java, jars: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._java = java
        self._path = os.pathsep.join(filter(None, sys.path))
        self._conf = session_conf(settings, os.cpu_count() or 1, jars=jars, path=self._path)
        self._secret = frozenset(secret_names(settings))
        # The driver of an `open` that is running.
        self._process: Popen[bytes] | None = None
        self._is_aborted = False
        self.longest_retry_s = PATIENT_RETRY_S

    def open(self) -> DriverSession:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        silence_query_contexts()
        if SparkContext._active_spark_context is not None:
            logger.warning(
                "a Spark session exists already: it is used as it is, and [spark] has no effect"
                " on it"
            )
            process = getattr(SparkContext._gateway, "proc", None)
            return DriverSession(SparkSession.builder.getOrCreate(), process, owned=False)
        if SparkContext._gateway is None:
            self.longest_retry_s = CLUSTER_RETRY_S
            master = self._settings.master
            reach_master(str(revealed(master)), str(masked("", master)))
        with home_for_spark(self._java) as home:
            variables = driver_environment(
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
                environment({**variables, **submit}),
            ):
                return self._open()

    def abort(self) -> None:
        self._is_aborted = True
        if self._process is not None:
            end_process(self._process)

    def _open(self) -> DriverSession:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        public = [(name, value) for name, value in self._conf.items() if name not in self._secret]
        gateway: Any = SparkContext._gateway or self._launch(SparkConf().setAll(public))
        self._process = gateway.proc
        try:
            if self._is_aborted:
                raise OffloadError("aborted")
            conf = SparkConf().setAll(list(self._conf.items()))
            context = SparkContext(conf=conf, gateway=gateway)
            return DriverSession(SparkSession(context), gateway.proc, owned=True)
        except BaseException as error:
            # Read the text of the error before the driver ends: that of a Java error is in there.
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
            # The function has no types.
            launch: Any = java_gateway.launch_gateway
            gateway = launch(conf, {"stdout": log.target, "stderr": log.target})
            is_local = self._settings.master.startswith("local")
            self.longest_retry_s = PATIENT_RETRY_S if is_local else CLUSTER_RETRY_S
            return gateway
        except Exception as error:
            self.longest_retry_s = PATIENT_RETRY_S
            # The driver's output says more than pyspark's error, if there is any.
            raise OffloadError(log.last_words() or str(error)) from error
        finally:
            log.launched()


def silence_query_contexts() -> None:
    """Keep PySpark from writing each AnalysisException and its Java trace to stderr.

    Our own log line has the reason.
    """
    from pyspark.logger import PySparkLogger

    # These loggers have handlers of their own.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _forget(process: Popen[bytes]) -> None:
    """Make pyspark forget a driver that has ended, or it would raise ConnectionRefusedError."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        gateway = SparkContext._gateway
        if gateway is None or gateway.proc is not process:
            return
        # The driver does not answer, but this closes our sockets.
        with suppress(Exception):
            gateway.shutdown()
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
