"""What follows a failed Spark batch: a fault of the cluster blames no batch, and nothing is tried
for ever.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import (
    BadDataError,
    ClusterError,
    JobStuckError,
    JobTimeoutError,
    OffloadError,
    SessionLostError,
    WorkerLostError,
)
from reactive_kafka.spark.batches.attempts import Again, Attempts, Failed, Leave, Split
from reactive_kafka.spark.batches.blame import UnfitExecutorsError
from tests.config.values import retry_settings

ONCE = retry_settings()


def attempts(*, splits: bool = False, retry: Any = ONCE) -> Attempts:
    return Attempts(retry, {}, splits=splits)


@pytest.mark.parametrize(
    "error", [OffloadError("code"), JobTimeoutError("late"), BadDataError("data")]
)
def test_a_failure_of_the_batch_itself_is_a_nack(error: OffloadError) -> None:
    assert attempts().after(error) == Failed(error)


def test_only_bad_data_is_split() -> None:
    bad, late, code = BadDataError("data"), JobTimeoutError("late"), OffloadError("code")
    assert attempts(splits=True).after(bad) == Split(bad)
    assert attempts(splits=True).after(late) == Failed(late)
    assert attempts(splits=True).after(code) == Failed(code)


def test_retries_come_before_a_nack_and_wait_twice_as_long_each_time() -> None:
    tries = attempts(
        retry=retry_settings(max_attempts=3, backoff_s=1.0, max_backoff_s=10.0), splits=True
    )
    error = BadDataError("data")
    assert tries.after(error) == Again(1.0, alone=False)
    assert tries.after(error) == Again(2.0, alone=False)
    assert tries.after(error) == Split(error)


def test_a_batch_whose_driver_died_runs_again_alone_and_is_bad_when_it_was_alone_twice() -> None:
    tries = attempts(splits=True)
    assert tries.after(SessionLostError("gone", was_alone=False)) == Again(0.0, alone=True)
    assert tries.after(SessionLostError("gone")) == Again(0.0, alone=True)
    last = SessionLostError("gone")
    assert tries.after(last) == Failed(last)


def test_a_python_worker_that_dies_twice_is_bad_data() -> None:
    tries = attempts(splits=True)
    assert tries.after(WorkerLostError("exited")) == Again(0.0, alone=False)
    follows = tries.after(WorkerLostError("exited"))
    assert isinstance(follows, Split)
    assert isinstance(follows.error, BadDataError)
    assert isinstance(follows.error.__cause__, WorkerLostError)


def test_a_job_that_does_not_end_leaves_its_records() -> None:
    error = JobStuckError("still there")
    assert attempts(retry=retry_settings(max_attempts=9)).after(error) == Leave(error)


def test_executors_that_cannot_read_the_format_leave_the_records_to_a_start_with_others() -> None:
    error = UnfitExecutorsError("no fastavro")
    assert attempts(retry=retry_settings(max_attempts=9), splits=True).after(error) == Leave(error)


@given(
    st.lists(
        st.sampled_from(
            [ClusterError, WorkerLostError, SessionLostError, BadDataError, OffloadError]
        ),
        max_size=30,
    )
)
def test_faults_of_the_cluster_never_blame_the_batch_and_every_attempt_has_its_number(
    kinds: list[type[OffloadError]],
) -> None:
    tries = attempts(retry=retry_settings(max_attempts=3), splits=True)
    lost = workers = own = 0
    for number, kind in enumerate(kinds, 1):
        assert tries.begin() == tries.begun == number
        follows = tries.after(kind("x"))
        lost += kind is SessionLostError
        workers += kind is WorkerLostError
        own += kind in (BadDataError, OffloadError) or (kind is WorkerLostError and workers >= 2)
        if isinstance(follows, Again):
            assert lost < 2
            assert own < 3
            continue
        assert kind is not ClusterError
        assert lost >= 2 or own >= 3
        return
