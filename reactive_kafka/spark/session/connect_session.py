"""Sessions on a Spark Connect server, and the operations that one run of a function starts.

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
from typing import Any, TypeVar
from uuid import uuid4

from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.batches.blame import reason_of
from reactive_kafka.spark.batches.ledger import JobProgress

T = TypeVar("T")

WARM_UP_LIMIT_S = 60.0
# The errors of a server whose session, or whose own driver, is gone for good.
_GONE = (
    "INVALID_HANDLE.SESSION_",
    "NO_ACTIVE_SESSION",
    "SparkContext was shut down",
    "on a stopped SparkContext",
)
# If this variable is set, the functions in pyspark.sql.functions are those of Connect.
_IS_REMOTE = "SPARK_CONNECT_MODE_ENABLED"
# The sessions that need it.
_remote_sessions: set[object] = set()
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
        left_behind: dict[str, str | None],
    ) -> None:
        self.spark = spark
        # Its attribute `group` is the group that runs in a thread.
        self.running = running
        # How long after a cancellation a task may still be active. The server does not say it.
        self.settle_s = settle_s
        # The server's address, for people.
        self._name = name
        # Gets our id -> the server's id, if the server was not told to forget the session.
        self._left_behind = left_behind
        self._lost = False
        self._released = False
        self._closed = False
        spark.registerProgressHandler(self._on_progress)

    def has_ended(self) -> bool:
        return self._lost or self._closed

    def trouble(self) -> str | None:
        """Ask the server for a setting of the session.

        It does not show whether the server has executors; only a job does.
        """
        try:
            self.spark.conf.get("spark.sql.session.timeZone")
        except Exception as error:
            # It may be an error of gRPC, Spark or Python. None may end the checks of the session.
            self.note(error)
            return f"{self._name}: {reason_in_one_line(error)}"
        return None

    def note(self, error: BaseException) -> None:
        """Note that the session is lost, if *error* says so."""
        is_of_grpc = type(error).__name__ == "SparkConnectGrpcException"
        is_unreachable = is_of_grpc and "StatusCode.UNAVAILABLE" in str(error)
        if is_unreachable or is_gone(error):
            self._lost = True

    def warm_up(self) -> None:
        """Run a job of one row, with Python on an executor.

        Raises:
            OffloadError: It failed, or took too long.
        """
        group = self.group("warm-up", "default")

        def give_up() -> None:
            # This fails if the server is gone.
            with suppress(Exception):
                group.cancel()

        try:
            with limited(WARM_UP_LIMIT_S, give_up):
                group.run(_one_row)
        except Exception as error:
            reason = reason_in_one_line(error)
            if group.cancelled:
                reason = (
                    f"not even a job of one row was done in {WARM_UP_LIMIT_S:g} s:"
                    " has the server free executors?"
                )
            raise OffloadError(f"{self._name}: {reason}") from error

    def group(self, description: str, pool: str) -> ConnectJobGroup:
        # The clients of a Connect server have neither descriptions nor pools.
        return ConnectJobGroup(self)

    def stop(self) -> None:
        """Tell the server to cancel all jobs and to forget the session."""
        # If the server is gone, there is nothing to forget.
        with suppress(Exception):
            self.spark.client.release_session()
            self._released = True

    def end(self) -> None:
        """Close the connection. Jobs that still wait for the server fail."""
        if self._closed:
            return
        self._closed = True
        client = self.spark.client
        if not self._released:
            self._left_behind[client._session_id] = client._server_session_id
        close(client)
        self._make_current(None)
        need_remote(self.running, False)

    def _on_progress(
        self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Note the progress of an operation. pyspark calls this in the thread that waits for it."""
        group: ConnectJobGroup | None = getattr(self.running, "group", None)
        if group is not None and operation_id:
            group.operations[operation_id] = (
                {stage.stage_id: stage for stage in stages or ()},
                inflight_tasks,
                done,
            )

    def _make_current(self, spark: Any) -> None:
        """Set the session that ``SparkSession.active()`` returns.

        It counts in this thread, and in threads that a function starts.
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
    """All operations that one run of a function starts on the server. They share a tag."""

    def __init__(self, session: ConnectSession) -> None:
        self._session = session
        self._tag = f"reactive-kafka-{uuid4().hex}"
        # Operation -> the server's last report: stages by id, number of active tasks, is it done.
        self.operations: dict[str, tuple[Mapping[int, Any], int, bool]] = {}
        self._has_started = False
        self._went_well = False
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
            # This includes tags that the function has added.
            spark.clearTags()
            del running.group

    def about_to_start(self) -> None:
        """Allow an operation to be sent to the server.

        Raises:
            OffloadError: The group was cancelled.
        """
        if self.cancelled:
            raise OffloadError("this batch was cancelled: no further Spark job of it starts")
        self._has_started = True

    def cancel(self) -> None:
        self.cancelled = True
        self._session.spark.interruptTag(self._tag)

    def progress(self) -> JobProgress:
        """Return the server's last report. It comes every two seconds, and lacks failed tasks."""
        progress = JobProgress()
        for stages, active_tasks, is_done in list(self.operations.values()):
            for stage in _stages_of(stages, is_done, self._went_well):
                progress += stage
            if not is_done:
                progress += JobProgress(tasks_active=active_tasks)
        return progress

    def is_over(self) -> bool:
        """True if no task is active: at once if all went well, else after `settle_s`."""
        if self._went_well or not self._has_started:
            return True
        return time.monotonic() >= self._returned_at + self._session.settle_s


def _stages_of(
    stages: Mapping[int, Any], operation_done: bool, went_well: bool
) -> Iterator[JobProgress]:
    """Yield the progress of each stage of an operation.

    The server does not report the end of all tasks. If all went well, begun stages are done.
    """
    last_begun = max(
        (number for number, stage in stages.items() if stage.num_completed_tasks), default=-1
    )
    for number, stage in stages.items():
        if operation_done and not stage.num_completed_tasks and number < last_begun:
            # Spark had the result of this stage already, and skipped it.
            continue
        is_done = stage.done or (operation_done and went_well)
        tasks_done = stage.num_tasks if is_done else stage.num_completed_tasks
        yield JobProgress(
            stages=1, stages_done=int(is_done), tasks=stage.num_tasks, tasks_done=tasks_done
        )


def need_remote(session: object, need: bool) -> None:
    """Say whether a session needs the Connect variants of ``pyspark.sql.functions``.

    The whole process uses these while any session needs them.
    """
    with _lock:
        if need:
            _remote_sessions.add(session)
        else:
            _remote_sessions.discard(session)
        if _remote_sessions:
            os.environ[_IS_REMOTE] = "1"
        else:
            os.environ.pop(_IS_REMOTE, None)


def cancel_guard(running: threading.local) -> Any:
    """Return an interceptor of requests that keeps a cancelled group from starting a job."""
    import grpc

    class CancelGuard(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
        """Asks the group of the thread before it sends an operation."""

        def intercept_unary_stream(
            self, continuation: Callable[..., Any], details: Any, request: Any
        ) -> Any:
            group: ConnectJobGroup | None = getattr(running, "group", None)
            if group is not None and details.method.endswith("/ExecutePlan"):
                group.about_to_start()
            return continuation(details, request)

    return CancelGuard()


@contextmanager
def limited(limit_s: float, give_up: Callable[[], None]) -> Iterator[None]:
    """Call *give_up* in another thread if the block takes too long: calls have no deadline."""
    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def close(client: Any) -> None:
    """Close a client at once, so that calls that wait for an answer fail.

    The client's ``close`` alone would wait for them.
    """
    # The client may be in any state. It is not used again.
    with suppress(Exception):
        client._channel.close()
    with suppress(Exception):
        client.close()
    # Without this the client would be kept until the process exits, and call the server then.
    with suppress(Exception):
        atexit.unregister(client._cleanup_ml_cache)


def is_gone(error: BaseException) -> bool:
    """True if the error says that the session, or the driver of the server, is gone for good."""
    return any(text in str(error) for text in _GONE)


def reason_in_one_line(error: BaseException) -> str:
    """Return the error in one line. The text of gRPC begins with the name of a Python object."""
    details = re.search(r'details = "(.*)"', str(error))
    if details is None:
        return str(error) if isinstance(error, OffloadError) else reason_of(error)
    return f"the Spark Connect server does not answer: {details[1]}"
