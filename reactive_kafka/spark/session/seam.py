"""What the engine needs from a Spark, of whatever kind. Everything blocks but what says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from reactive_kafka.spark.batches.progress import JobProgress

T = TypeVar("T")


class JobGroup(Protocol):
    """All Spark jobs that one run of a function starts: cancelled and counted together."""

    def run(self, job: Callable[[Any], T]) -> T:
        """Run *job* with the session in this thread, as this group. What was set for the thread is cleared at the end.

        Raises:
            BaseException: Whatever *job* raises.
        """
        ...

    def cancel(self) -> None:
        """Cancel the jobs that run and those that the function would still start; may be called again and again.

        Tasks end some time later.
        """
        ...

    def progress(self) -> JobProgress:
        """The stages and tasks so far; costs some milliseconds."""
        ...

    def is_over(self) -> bool:
        """Whether no job of the group runs and no task of one is active; asked when *run* has returned.

        Raises:
            Exception: Nobody answers. The group is over then only if the session has ended.
        """
        ...


class Session(Protocol):
    """A Spark session, classic or Connect."""

    @property
    def spark(self) -> Any:
        """What the user's function gets: a ``pyspark.sql.SparkSession``. At once."""
        ...

    @property
    def owned(self) -> bool:
        """False for a session of somebody else's: it is used, and neither stopped nor replaced. At once."""
        ...

    @property
    def driver_pid(self) -> int | None:
        """The driver's process, None where it is none of ours. At once."""
        ...

    def has_ended(self) -> bool:
        """Whether it is beyond repair. At once: asks nobody but the operating system."""
        ...

    def trouble(self) -> str | None:
        """Ask the driver or server how it is; None: jobs can run. One call at a time, about every second.

        May find that the session is beyond repair: then :meth:`has_ended` says so from here on.

        Raises:
            Exception: It cannot be asked: trouble, too.
        """
        ...

    def warm_up(self) -> None:
        """Run a small job, with Python on an executor, in the thread of a job.

        Raises:
            Exception: Jobs would fail.
        """
        ...

    def group(self, description: str, pool: str) -> JobGroup:
        """A new group. *description* is for Spark's own pages; *pool* is the FAIR pool that it shares cores with."""
        ...

    def stop(self) -> None:
        """Stop politely: running jobs are cancelled. May hang; only for one that is owned."""
        ...

    def end(self) -> None:
        """Leave no process and no session behind, in whatever state it is, in a bounded time; twice is harmless."""
        ...


class SessionMaker(Protocol):
    """Opens sessions, one after the other."""

    @property
    def longest_retry_s(self) -> float:
        """The longest wait between two attempts."""
        ...

    def open(self) -> Session:
        """Open one; may take a minute.

        Raises:
            Exception: It did not start; the text says why.
        """
        ...

    def abort(self) -> None:
        """From another thread: make an :meth:`open` that is under way fail soon."""
        ...
