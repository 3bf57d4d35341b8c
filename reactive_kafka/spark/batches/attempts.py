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

# If the driver has died so many times while a batch ran alone, the batch is bad.
MOST_LOST_ALONE = 2
# If Python workers have died so many times while a batch ran, one of its records kills them.
MOST_WORKERS_LOST = 2
# A cluster in trouble refuses jobs at once, so wait before the next attempt.
AFTER_CLUSTER_FAULT_S = 1.0


@dataclass(frozen=True, slots=True)
class Again:
    """Run the batch again after a wait."""

    after_s: float
    # While no other job runs.
    alone: bool


@dataclass(frozen=True, slots=True)
class Split:
    """Search for the records that make the job fail."""

    error: OffloadError


@dataclass(frozen=True, slots=True)
class Failed:
    """Nack every record."""

    error: OffloadError


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the records unsettled and stop the channel: the job may still run, or no job can."""

    error: OffloadError


Next = Again | Split | Failed | Leave


class Attempts:
    """The attempts of one batch. It decides what follows each failure.

    Args:
        retry: How often the batch runs again if it is to blame for its failure.
        routes: The failure routes of the channel.
        splits: Search for bad records.
        number: The number of the first attempt.
    """

    def __init__(
        self, retry: RetrySettings, routes: Mapping[str, bool], *, splits: bool, number: int = 1
    ) -> None:
        self._retry = retry
        self._routes = routes
        self._splits = splits
        # Failures that the batch itself is to blame for.
        self._failures = 0
        # How often the driver died while this batch ran alone.
        self._lost_alone = 0
        # How often a Python worker died while this batch ran.
        self._workers_lost = 0
        # The number of the last attempt that has begun, from 1.
        self.begun = number - 1
        # No other job may run at the same time as the next attempt.
        self.alone = False

    def begin(self) -> int:
        """Begin an attempt, and return its number."""
        self.begun += 1
        return self.begun

    def after(self, error: OffloadError, chance: float = 0.5) -> Next:
        """Return what follows an attempt that failed with *error*.

        *chance* is a random number from 0 to 1 for the ``jitter`` of the wait.
        """
        if isinstance(error, JobStuckError | UnfitExecutorsError):
            return Leave(error)
        if isinstance(error, SessionLostError):
            if error.was_alone:
                self._lost_alone += 1
            # The next attempt runs alone. If the driver dies again, this batch is to blame.
            self.alone = True
            return Failed(error) if self._lost_alone >= MOST_LOST_ALONE else Again(0.0, alone=True)
        if isinstance(error, WorkerLostError):
            self._workers_lost += 1
            if self._workers_lost < MOST_WORKERS_LOST:
                return Again(0.0, self.alone)
            bad_data = BadDataError(str(error))
            bad_data.__cause__ = error
            return self._after_own_failure(bad_data, chance)
        if isinstance(error, ClusterError):
            return Again(AFTER_CLUSTER_FAULT_S, self.alone)
        return self._after_own_failure(error, chance)

    def _after_own_failure(self, error: OffloadError, chance: float) -> Next:
        """Return what follows a failure that the batch itself is to blame for."""
        self._failures += 1
        wait_s = after_attempt(self._failures, error, self._retry, self._routes, chance)
        if wait_s is not None:
            return Again(wait_s, self.alone)
        is_data_error = isinstance(error, BadDataError) and not isinstance(error, JobTimeoutError)
        if self._splits and is_data_error:
            return Split(error)
        return Failed(error)
