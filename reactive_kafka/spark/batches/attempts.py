"""What follows the failure of a Spark job: another attempt, smaller parts, or a nack. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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
from reactive_kafka.failure.routes import after_attempt
from reactive_kafka.spark.batches.blame import UnfitExecutorsError

# A batch that was running alone this many times when the driver died is a bad batch.
MOST_LOST_ALONE = 2
# One that was running this many times when Python workers died has a record that kills them.
MOST_WORKERS_LOST = 2
# The pause: a cluster in trouble refuses jobs at once.
AFTER_CLUSTER_FAULT_S = 1.0


@dataclass(frozen=True, slots=True)
class Again:
    """Run the batch again after a wait."""

    after_s: float
    # While no other job runs.
    alone: bool


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
    """The job may still be running, or none can: the records stay unsettled, and the channel
    stops.
    """

    error: OffloadError


Next = Again | Split | Failed | Leave


class Attempts:
    """The attempts of one batch, the first with a *number*, and what follows each failure."""

    def __init__(
        self, retry: RetrySettings, routes: Mapping[str, bool], *, splits: bool, number: int = 1
    ) -> None:
        # Of failures that are the batch's own.
        self._retry = retry
        self._routes = routes
        # Whether bad records are searched for.
        self._splits = splits
        self._failures = self._lost_alone = self._workers_lost = 0
        # The number of the last attempt that has begun, from 1.
        self.begun = number - 1
        # Whether no other job may run at the same time.
        self.alone = False

    def begin(self) -> int:
        """An attempt begins: its number."""
        self.begun += 1
        return self.begun

    def after(self, error: OffloadError, chance: float = 0.5) -> Next:
        """What follows the attempt that failed with *error*; *chance* is that of its ``jitter``."""
        if isinstance(error, JobStuckError | UnfitExecutorsError):
            return Leave(error)
        if isinstance(error, SessionLostError):
            self._lost_alone += error.was_alone
            # If the driver dies again this batch is to blame.
            self.alone = True
            return Failed(error) if self._lost_alone >= MOST_LOST_ALONE else Again(0.0, alone=True)
        if isinstance(error, WorkerLostError):
            self._workers_lost += 1
            if self._workers_lost < MOST_WORKERS_LOST:
                return Again(0.0, self.alone)
            bad = BadDataError(str(error))
            bad.__cause__ = error
            return self._failed(bad, chance)
        if isinstance(error, ClusterError):
            return Again(AFTER_CLUSTER_FAULT_S, self.alone)
        return self._failed(error, chance)

    def _failed(self, error: OffloadError, chance: float) -> Next:
        """The failure is the batch's own."""
        self._failures += 1
        wait_s = after_attempt(self._failures, error, self._retry, self._routes, chance)
        if wait_s is not None:
            return Again(wait_s, self.alone)
        if (
            self._splits
            and isinstance(error, BadDataError)
            and not isinstance(error, JobTimeoutError)
        ):
            return Split(error)
        return Failed(error)
