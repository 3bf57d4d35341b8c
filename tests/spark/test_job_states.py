"""A job can be cut off and can end in every state, and does not work after it was cut off."""

from __future__ import annotations

import pytest

from reactive_kafka.spark.channel.batch_job import JOB_TRANSITIONS, JobState
from reactive_kafka.state_table import next_state

CUT_OFF = {JobState.CANCELLED, JobState.CUT_SHORT, JobState.OVER}


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.OVER])
def test_a_job_can_be_cut_off_and_can_end_in_every_state(state: JobState) -> None:
    assert next_state(JOB_TRANSITIONS, state, "end") is JobState.OVER
    assert next_state(JOB_TRANSITIONS, state, "cut off") in CUT_OFF


def test_a_job_that_was_cut_off_never_works_again() -> None:
    assert {to for state in CUT_OFF for to in JOB_TRANSITIONS[state].values()} <= CUT_OFF


def test_a_job_that_settles_is_not_cancelled() -> None:
    assert next_state(JOB_TRANSITIONS, JobState.SETTLING, "cut off") is JobState.CUT_SHORT
