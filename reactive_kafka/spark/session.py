"""Spark's driver and session in this process: the only import of pyspark, inside functions. Everything here blocks."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from subprocess import Popen
from typing import Any
from uuid import uuid4

from reactive_kafka.config.schema import SparkSettings
from reactive_kafka.errors import MissingExtraError, OffloadError
from reactive_kafka.records import TopicPartition
from reactive_kafka.spark.columns import record_batch
from reactive_kafka.spark.conf import driver_environment, session_conf
from reactive_kafka.spark.driver import DriverLog, end_process, environment
from reactive_kafka.spark.java import Java, choose_java, find_javas, home_for_spark

logger = logging.getLogger("reactive_kafka.spark")

Job = Callable[[Any], object]  # gets the pyspark.sql.SparkSession; what it returns is dropped

_PROPERTIES_OF_A_JOB = (
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
    "spark.scheduler.pool",  # a function may have set it
)


def check_spark() -> Java:
    """Check, without importing or starting anything, that Spark can be started, and say on which Java.

    Raises:
        MissingExtraError: pyspark, pyarrow or pandas is not installed.
        ConfigError: There is no Java that fits.
    """
    if not all(find_spec(name) for name in ("pyspark", "pyarrow", "pandas")):
        raise MissingExtraError("@app.spark", "spark")
    return choose_java(find_javas(os.environ))


def warm_up_columns() -> Any:
    """Load pyarrow, and pandas, which it loads at the first column: 0.4 s that an event loop must not pay.

    Returns:
        A RecordBatch of one record.
    """
    return record_batch(TopicPartition("warm-up", 0), [_OneRecord()])


@dataclass(frozen=True, slots=True)
class _OneRecord:
    offset: int = 0
    timestamp: int | None = 0
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Spark tasks of one batch; failed ones that ran again count twice."""

    active: int = 0
    completed: int = 0
    failed: int = 0

    def __add__(self, other: TaskCounts) -> TaskCounts:
        return TaskCounts(self.active + other.active, self.completed + other.completed, self.failed + other.failed)


class DriverSession:
    """A Spark session and the Java process behind it.

    Args:
        spark: The ``pyspark.sql.SparkSession``.
        process: The driver; None where somebody else started it.
        owned: False for a session that the user had started before: it is used, and not stopped.
    """

    def __init__(self, spark: Any, process: Popen[bytes] | None, owned: bool) -> None:
        self.spark = spark
        self.owned = owned
        self._process = process
        self._context = spark.sparkContext
        if owned:
            atexit.register(self.end)  # for an exit that never came to the app's own stop

    def has_ended(self) -> bool:
        """Whether the driver is gone, or somebody stopped the session. Cheap: asks the operating system only."""
        return self._context._jsc is None or (self._process is not None and self._process.poll() is not None)

    @property
    def driver_pid(self) -> int | None:
        """The Java process, None where somebody else started it."""
        return self._process.pid if self._process else None

    def warm_up(self) -> None:
        """Run a job of one row, so that the first batch does not pay for what Spark loads (about 2 s)."""
        import pyarrow as pa

        self.spark.createDataFrame(pa.Table.from_batches([warm_up_columns()])).count()

    def stop(self) -> None:
        """Stop Spark politely: running jobs are cancelled. May hang with a driver that hangs."""
        with suppress(Exception):  # whatever state it is in: end() comes next and does not ask
            self.spark.stop()

    def end(self) -> None:
        """Leave no Java process behind, and let the next session start afresh."""
        atexit.unregister(self.end)
        if self._process is None or not self.owned:
            return
        end_process(self._process)
        _forget(self._process)


def open_session(settings: SparkSettings, java: Java) -> DriverSession:
    """Start a driver and a session in it, or take the session that runs in this process already.

    Raises:
        OffloadError: It did not start; the text is the driver's own last words where there are any.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        logger.warning("a Spark session exists already: it is used as it is, and [spark] has no effect on it")
        return DriverSession(SparkSession.builder.getOrCreate(), None, owned=False)
    conf = session_conf(settings, os.cpu_count() or 1)
    gateway: Any = SparkContext._gateway or _launch_driver(settings, conf, java)
    try:
        context = SparkContext(conf=_spark_conf(conf), gateway=gateway)
        return DriverSession(SparkSession(context), gateway.proc, owned=True)
    except BaseException:
        end_process(gateway.proc)
        _forget(gateway.proc)
        raise


def _launch_driver(settings: SparkSettings, conf: dict[str, str], java: Java) -> Any:
    from pyspark import java_gateway

    logger.info("starting Spark's driver on %s, master %s", java, settings.master)
    log = DriverLog()
    try:
        with home_for_spark(java) as home:
            needed = driver_environment(settings, os.environ, java_home=str(home), python=sys.executable, path=sys.path)
            with environment(needed):
                launch: Any = java_gateway.launch_gateway  # untyped
                return launch(_spark_conf(conf), {"stdout": log.target, "stderr": log.target})
    except Exception as error:
        raise OffloadError(log.last_words() or str(error)) from error
    finally:
        log.launched()


def _spark_conf(conf: dict[str, str]) -> Any:
    from pyspark import SparkConf

    return SparkConf().setAll(list(conf.items()))


def _forget(process: Popen[bytes]) -> None:
    """Make pyspark forget a driver that has ended; by itself it would answer ConnectionRefusedError for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        gateway = SparkContext._gateway
        if gateway is None or gateway.proc is not process:
            return
        with suppress(Exception):  # nobody listens any more; what counts is that our sockets are closed
            gateway.shutdown()
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


class JobGroup:
    """All Spark jobs that one run of a function starts: cancelled and counted together.

    Args:
        session: Where it runs.
        description: What Spark's own pages call it.
    """

    def __init__(self, session: DriverSession, description: str) -> None:
        self._session = session
        self._context = session.spark.sparkContext
        self._description = description
        self._id = f"reactive-kafka-{uuid4().hex}"  # never used again: future jobs of a cancelled group stay cancelled
        self._ended_jobs: dict[int, dict[int, TaskCounts]] = {}  # job -> stage -> tasks, none active

    def run(self, job: Job) -> None:
        """Run *job* in this thread, as this group. Raises what it raises."""
        try:
            self._context.setJobGroup(self._id, self._description, interruptOnCancel=True)
            job(self._session.spark)
        finally:
            with suppress(Exception):  # the driver is gone, and the properties with it; never hide the job's error
                self._clear_thread()

    def _clear_thread(self) -> None:
        for name in _PROPERTIES_OF_A_JOB:
            self._context.setLocalProperty(name, None)
        self._context.clearJobTags()

    def cancel(self) -> None:
        """Cancel the jobs that run and those that the function would still start. Tasks end some time later."""
        self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._id)

    def tasks(self) -> TaskCounts:
        """The tasks so far; costs some milliseconds and asks about running jobs only."""
        tracker = self._context.statusTracker()
        stages: dict[int, TaskCounts] = {}  # a stage may be shared by several jobs
        for job in tracker.getJobIdsForGroup(self._id):
            stages.update(self._ended_jobs.get(job) or self._stages_of(tracker, job))
        return sum(stages.values(), TaskCounts())

    def _stages_of(self, tracker: Any, job: int) -> dict[int, TaskCounts]:
        info = tracker.getJobInfo(job)
        if info is None:  # forgotten by Spark: long over
            return {}
        stages = {stage: _tasks_of(tracker.getStageInfo(stage)) for stage in info.stageIds}
        if info.status != "RUNNING" and not any(tasks.active for tasks in stages.values()):
            self._ended_jobs[job] = stages
        return stages

    def is_over(self) -> bool:
        """Whether no job of the group runs and no task of one is active."""
        tasks = self.tasks()
        return tasks.active == 0 and set(self._context.statusTracker().getJobIdsForGroup(self._id)) <= set(
            self._ended_jobs
        )


def _tasks_of(stage: Any) -> TaskCounts:
    if stage is None:  # not started yet
        return TaskCounts()
    return TaskCounts(stage.numActiveTasks, stage.numCompletedTasks, stage.numFailedTasks)
