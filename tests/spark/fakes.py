"""A Spark that does as a test says, behind the engine's seam: no Java, no seconds to wait for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from reactive_kafka.spark.batches.ledger import JobProgress

T = TypeVar("T")


class FakeSession:
    """A session.

    Attributes:
        ill: What the next looks find.
        hears: Cleared: looks and orders get no answer.
        warm_up_error: What the next warm-ups raise.
        process: Stands for the driver; None: there is none of ours.
        done: What was called, in order.
    """

    def __init__(self, process: subprocess.Popen[bytes] | None = None) -> None:
        self.spark = "spark"
        self.owned = True
        self.ill: str | None = None
        self.hears = threading.Event()
        self.hears.set()
        self.warm_up_error: Exception | None = None
        self.process = process
        self.groups: list[FakeGroup] = []
        self.done: list[str] = []
        self._has_ended = threading.Event()

    @property
    def driver_pid(self) -> int | None:
        return self.process.pid if self.process else None

    def die(self) -> None:
        self._has_ended.set()

    def has_ended(self) -> bool:
        return self._has_ended.is_set() or (
            self.process is not None and self.process.poll() is not None
        )

    def _answer(self) -> None:
        while not self.hears.wait(0.005):
            if self.has_ended():
                raise ConnectionResetError("the driver is gone")

    def trouble(self) -> str | None:
        self._answer()
        return self.ill

    def warm_up(self) -> None:
        self.done.append("warm-up")
        if self.warm_up_error is not None:
            raise self.warm_up_error

    def group(self, description: str, pool: str) -> FakeGroup:
        self.groups.append(FakeGroup(self))
        return self.groups[-1]

    def stop(self) -> None:
        self.done.append("stop")
        self.die()

    def end(self) -> None:
        self.done.append("end")
        self.die()
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class FakeGroup:
    """A group; functions get it in place of the SparkSession, and block in :meth:`work`."""

    def __init__(self, session: FakeSession) -> None:
        self._session = session
        self.cancelled = threading.Event()
        self.finish = threading.Event()
        self.tasks_have_ended = True
        self.over_error: Exception | None = None

    def run(self, job: Callable[[Any], T]) -> T:
        return job(self)

    def work(self) -> None:
        """What a Spark job does: until it is done or cancelled, or the driver is gone."""
        while not self.finish.wait(0.002):
            if self._session.has_ended():
                raise ConnectionRefusedError("nobody listens")
            if self.cancelled.is_set():
                raise RuntimeError("[SPARK_JOB_CANCELLED]")

    def cancel(self) -> None:
        self._session._answer()
        self.cancelled.set()

    def progress(self) -> JobProgress:
        return JobProgress()

    def is_over(self) -> bool:
        self._session._answer()
        if self.over_error is not None:
            raise self.over_error
        return self.tasks_have_ended


class FakeMaker:
    """Opens the sessions that it was given, the last one again and again; an exception is a start
    that fails.
    """

    longest_retry_s = 0.02

    def __init__(self, *sessions: FakeSession | Exception) -> None:
        self._sessions = list(sessions)
        self.opened = 0

    def open(self) -> FakeSession:
        self.opened += 1
        session = self._sessions[min(self.opened, len(self._sessions)) - 1]
        if isinstance(session, Exception):
            raise session
        return session

    def abort(self) -> None:
        pass


def a_process() -> subprocess.Popen[bytes]:
    """A process that stands for a driver."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
