"""What follows when a Spark batch has failed: another attempt, smaller parts, or a nack. No I/O, no clock, no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import (
    BadDataError,
    ClusterError,
    JobStuckError,
    JobTimeoutError,
    OffloadError,
    SessionLostError,
    WorkerLostError,
)
from reactive_kafka.failure.decision import after_attempt

MOST_LOST_ALONE = 2  # a batch that was running alone this many times when the driver died is a bad batch
MOST_WORKERS_LOST = 2  # one that was running this many times when Python workers died has a record that kills them
AFTER_CLUSTER_FAULT_S = 1.0  # the pause: a cluster in trouble refuses jobs at once


@dataclass(frozen=True, slots=True)
class Again:
    """Run the batch again after a wait."""

    after_s: float
    alone: bool  # while no other job runs


@dataclass(frozen=True, slots=True)
class Split:
    """Some records make the job fail: search for them."""

    error: OffloadError


@dataclass(frozen=True, slots=True)
class Failed:
    """Nack every record."""

    error: OffloadError


@dataclass(frozen=True, slots=True)
class Leave:
    """The job may still be running: the records stay unsettled, and the channel stops."""

    error: OffloadError


Next = Again | Split | Failed | Leave


class Attempts:
    """The attempts of one batch, the first with a *number*, and what follows each failure."""

    def __init__(self, retry: RetrySettings, *, splits: bool, number: int = 1) -> None:
        self._retry = retry  # of failures that are the batch's own
        self._splits = splits  # whether bad records are searched for
        self._failures = self._lost_alone = self._workers_lost = 0
        self.begun = number - 1  # the number of the last attempt that has begun, from 1
        self.alone = False  # whether no other job may run at the same time

    def begin(self) -> int:
        """An attempt begins: its number."""
        self.begun += 1
        return self.begun

    def after(self, error: OffloadError) -> Next:
        """What follows the attempt that failed with *error*."""
        if isinstance(error, JobStuckError):
            return Leave(error)
        if isinstance(error, SessionLostError):
            self._lost_alone += error.was_alone
            self.alone = True  # if the driver dies again this batch is to blame
            return Failed(error) if self._lost_alone >= MOST_LOST_ALONE else Again(0.0, alone=True)
        if isinstance(error, WorkerLostError):
            self._workers_lost += 1
            if self._workers_lost < MOST_WORKERS_LOST:
                return Again(0.0, self.alone)
            bad = BadDataError(str(error))
            bad.__cause__ = error
            return self._failed(bad)
        if isinstance(error, ClusterError):
            return Again(AFTER_CLUSTER_FAULT_S, self.alone)
        return self._failed(error)

    def _failed(self, error: OffloadError) -> Next:
        """The failure is the batch's own."""
        self._failures += 1
        wait_s = after_attempt(self._failures, self._retry)
        if wait_s is not None:
            return Again(wait_s, self.alone)
        if self._splits and isinstance(error, BadDataError) and not isinstance(error, JobTimeoutError):
            return Split(error)
        return Failed(error)
