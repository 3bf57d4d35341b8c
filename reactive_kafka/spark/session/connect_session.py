"""A session on a Spark Connect server, and the operations that one run of a function starts.
Everything blocks.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, TypeVar
from uuid import uuid4

from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.batches.blame import reason_of
from reactive_kafka.spark.batches.ledger import JobProgress

T = TypeVar("T")

WARM_UP_LIMIT_S = 60.0
# A server's errors for a session, or a driver of its own, that is gone for good.
_GONE = (
    "INVALID_HANDLE.SESSION_",
    "NO_ACTIVE_SESSION",
    "SparkContext was shut down",
    "on a stopped SparkContext",
)
# Makes pyspark.sql.functions those of Connect.
_IS_REMOTE = "SPARK_CONNECT_MODE_ENABLED"
# The sessions that need it.
_remote_ones: set[object] = set()
_lock = threading.Lock()


class ConnectSession:
    """One session on the server, shared by the threads of all jobs."""

    owned = True
    driver_pid = None

    def __init__(
        self,
        spark: Any,
        running: threading.local,
        name: str,
        settle_s: float,
        left: dict[str, str | None],
    ) -> None:
        self.spark = spark
        # Its attribute ``group`` is the group that runs in a thread.
        self.running = running
        # How long after a cancellation a task may still be active; the server cannot be asked.
        self.settle_s = settle_s
        # The server's address, for people.
        self._name = name
        # Gets our id -> the server's, if the server was not told to forget the session.
        self._left = left
        self._lost = self._released = self._closed = False
        spark.registerProgressHandler(self._on_progress)

    def has_ended(self) -> bool:
        return self._lost or self._closed

    def trouble(self) -> str | None:
        """Ask the server for one setting of the session. Only a job can show whether it has
        executors.
        """
        try:
            self.spark.conf.get("spark.sql.session.timeZone")
        except Exception as error:
            # GRPC's, Spark's or Python's; none may end the heartbeat.
            self.note(error)
            return f"{self._name}: {said(error)}"
        return None

    def note(self, error: BaseException) -> None:
        """Keep in mind that the session is lost, if *error* says so."""
        is_unreachable = type(
            error
        ).__name__ == "SparkConnectGrpcException" and "StatusCode.UNAVAILABLE" in str(error)
        self._lost = self._lost or is_gone(error) or is_unreachable

    def warm_up(self) -> None:
        """Run a job of one row, with Python on an executor; OffloadError if it failed, or was not
        done in time.
        """
        group = self.group("warm-up", "default")

        def give_up() -> None:
            # The server may be gone.
            with suppress(Exception):
                group.cancel()

        try:
            with limited(WARM_UP_LIMIT_S, give_up):
                group.run(_one_row)
        except Exception as error:
            text = f"not even a job of one row was done in {WARM_UP_LIMIT_S:g} s: has the server free executors?"
            raise OffloadError(
                f"{self._name}: {text if group.cancelled else said(error)}"
            ) from error

    def group(self, description: str, pool: str) -> ConnectJobGroup:
        # The clients of a Connect server have neither descriptions nor pools.
        return ConnectJobGroup(self)

    def stop(self) -> None:
        """Tell the server to cancel what runs and to forget the session."""
        # A server that is gone has nothing to forget.
        with suppress(Exception):
            self.spark.client.release_session()
            self._released = True

    def end(self) -> None:
        """Close the connection; jobs that still wait for the server fail."""
        if self._closed:
            return
        self._closed = True
        client = self.spark.client
        if not self._released:
            self._left[client._session_id] = client._server_session_id
        close(client)
        self._make_current(None)
        need_remote(self.running, False)

    def _on_progress(
        self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Called by pyspark in the thread that waits for the operation."""
        group: ConnectJobGroup | None = getattr(self.running, "group", None)
        if group is not None and operation_id:
            group.operations[operation_id] = (
                {stage.stage_id: stage for stage in stages or ()},
                inflight_tasks,
                done,
            )

    def _make_current(self, spark: Any) -> None:
        """Set what ``SparkSession.active()`` returns in this thread, and in those that a function
        starts.
        """
        from pyspark.sql.connect.session import SparkSession

        with SparkSession._lock:
            if spark is not None or SparkSession._default_session is self.spark:
                SparkSession._default_session = spark
        SparkSession._active_session.session = spark


def _one_row(spark: Any) -> None:
    import pyarrow as pa
    from pyspark.sql.functions import udf

    frame = spark.createDataFrame(pa.table({"offset": pa.array([0], pa.int64())}))
    frame.select(udf(lambda offset: offset, "long")("offset")).collect()


class ConnectJobGroup:
    """All operations that one run of a function starts on the server: they have one tag."""

    def __init__(self, session: ConnectSession) -> None:
        self._session = session
        self._tag = f"reactive-kafka-{uuid4().hex}"
        # id -> the server's last report: stages by id, active tasks, done
        self.operations: dict[str, tuple[Mapping[int, Any], int, bool]] = {}
        self._has_started = self._went_well = False
        self._returned_at = 0.0
        self.cancelled = False

    def run(self, job: Callable[[Any], T]) -> T:
        spark = self._session.spark
        running = self._session.running
        running.group = self
        spark.clearTags()
        spark.addTag(self._tag)
        self._session._make_current(spark)
        try:
            result = job(spark)
            self._went_well = not self.cancelled
            return result
        except BaseException as error:
            self._session.note(error)
            raise
        finally:
            self._returned_at = time.monotonic()
            # Also those that the function has added.
            spark.clearTags()
            del running.group

    def about_to_start(self) -> None:
        """Raise OffloadError instead of sending an operation to the server, if the group was
        cancelled.
        """
        if self.cancelled:
            raise OffloadError("this batch was cancelled: no further Spark job of it starts")
        self._has_started = True

    def cancel(self) -> None:
        self.cancelled = True
        self._session.spark.interruptTag(self._tag)

    def progress(self) -> JobProgress:
        """The server's last report, from about every two seconds; it has no failed tasks."""
        operations = list(self.operations.values())
        stages = (_stages_of(known, done, self._went_well) for known, _, done in operations)
        return sum(
            chain.from_iterable(stages),
            JobProgress(tasks_active=sum(it[1] for it in operations if not it[2])),
        )

    def is_over(self) -> bool:
        """Whether no task is active: true at once if all went well, else when killed tasks have had
        time to end.
        """
        if self._went_well or not self._has_started:
            return True
        return time.monotonic() >= self._returned_at + self._session.settle_s


def _stages_of(stages: Mapping[int, Any], done: bool, well: bool) -> Iterator[JobProgress]:
    """The stages of one operation. The server does not report its end: if all went well, what was
    begun is done.
    """
    last_begun = max(
        (number for number, stage in stages.items() if stage.num_completed_tasks), default=-1
    )
    for number, stage in stages.items():
        if done and not stage.num_completed_tasks and number < last_begun:
            # skipped: Spark had its result.
            continue
        is_done = stage.done or (done and well)
        tasks_done = stage.num_tasks if is_done else stage.num_completed_tasks
        yield JobProgress(
            stages=1, stages_done=int(is_done), tasks=stage.num_tasks, tasks_done=tasks_done
        )


def need_remote(who: object, need: bool) -> None:
    """Make ``pyspark.sql.functions`` those of Connect, in the whole process, for as long as a
    session needs that.
    """
    with _lock:
        if need:
            _remote_ones.add(who)
        else:
            _remote_ones.discard(who)
        if _remote_ones:
            os.environ[_IS_REMOTE] = "1"
        else:
            os.environ.pop(_IS_REMOTE, None)


def guard(running: threading.local) -> Any:
    """An interceptor of requests: a cancelled group starts no further job."""
    import grpc

    class Guard(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
        def intercept_unary_stream(
            self, continuation: Callable[..., Any], details: Any, request: Any
        ) -> Any:
            group: ConnectJobGroup | None = getattr(running, "group", None)
            if group is not None and details.method.endswith("/ExecutePlan"):
                group.about_to_start()
            return continuation(details, request)

    return Guard()


@contextmanager
def limited(limit_s: float, give_up: Callable[[], None]) -> Iterator[None]:
    """Call *give_up*, from another thread, if the block takes longer than *limit_s*: calls have no
    deadline.
    """
    late = threading.Timer(limit_s, give_up)
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def close(client: Any) -> None:
    """Close a client at once; calls that wait for an answer fail. Its own ``close`` alone would
    wait for them.
    """
    # Whatever state it is in: it is not used again.
    with suppress(Exception):
        client._channel.close()
    with suppress(Exception):
        client.close()
    # Or it would be kept until the process exits, and call the server then.
    with suppress(Exception):
        atexit.unregister(client._cleanup_ml_cache)


def is_gone(error: BaseException) -> bool:
    return any(text in str(error) for text in _GONE)


def said(error: BaseException) -> str:
    """The error in one line. gRPC's own text begins with the name of a Python object."""
    details = re.search(r'details = "(.*)"', str(error))
    if details is None:
        return str(error) if isinstance(error, OffloadError) else reason_of(error)
    return f"the Spark Connect server does not answer: {details[1]}"
