"""What the engine needs from a Spark of any kind. Everything blocks, except where it says "at once"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from reactive_kafka.spark.batches.ledger import JobProgress

T = TypeVar("T")


class JobGroup(Protocol):
    """All Spark jobs that one run of a function starts: cancelled and counted together."""

    def run(self, job: Callable[[Any], T]) -> T:
        """Run *job* with the session in this thread, as this group; the thread's settings are cleared at the end."""

    def cancel(self) -> None:
        """Cancel the running jobs and those that the function would still start; may be called repeatedly.

        Tasks end some time later.
        """

    def progress(self) -> JobProgress:
        """The stages and tasks so far; takes some milliseconds."""

    def is_over(self) -> bool:
        """Whether no job of the group runs and no task of one is active; asked when *run* has returned.

        Raises:
            Exception: There is no answer. The group is over then only if the session has ended.
        """


class Session(Protocol):
    """A Spark session, classic or Connect."""

    @property
    def spark(self) -> Any:
        """The ``pyspark.sql.SparkSession`` for the user's function. At once."""

    @property
    def owned(self) -> bool:
        """False for a session that somebody else started: it is used, and neither stopped nor replaced. At once."""

    @property
    def driver_pid(self) -> int | None:
        """The driver's process; None if it is not ours. At once."""

    def has_ended(self) -> bool:
        """Whether it is beyond repair. At once: only the operating system is asked."""

    def trouble(self) -> str | None:
        """Ask the driver or server why jobs cannot run; None: they can. One call at a time, about every second.

        May find that the session is beyond repair, which :meth:`has_ended` says from then on. That it cannot be asked
        (any exception) is trouble, too.
        """

    def warm_up(self) -> None:
        """Run a small job, with Python on an executor, in a thread for jobs; raises if jobs would fail."""

    def group(self, description: str, pool: str) -> JobGroup:
        """A new group. *description* is for Spark's own pages; *pool* is the FAIR pool that it shares cores in."""

    def stop(self) -> None:
        """Stop an owned session: running jobs are cancelled. May hang."""

    def end(self) -> None:
        """End the process and the session in whatever state they are, in a bounded time; twice is harmless."""


class SessionMaker(Protocol):
    """Opens sessions, one after the other."""

    @property
    def longest_retry_s(self) -> float:
        """The longest wait between two attempts."""

    def open(self) -> Session:
        """Open a session; may take a minute. An exception's text says why it did not start."""

    def abort(self) -> None:
        """From another thread: make an :meth:`open` that is under way fail soon."""
