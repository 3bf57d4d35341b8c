"""The states of a Spark job and the transitions between them, as a table. Pure."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """What a job does at the moment.

    ``working``: it stores plans, runs on Spark, or waits for another attempt; ``settling``: outcomes are carried out;
    ``cancelled``: it was cut off, and what it runs on Spark is being ended; ``cut short``: it was cut off while it
    settled, and waits for no nack; ``over``: nothing of it runs.
    """

    WORKING = "working"
    SETTLING = "settling"
    CANCELLED = "cancelled"
    CUT_SHORT = "cut short"
    OVER = "over"


JOB_TRANSITIONS: dict[JobState, dict[str, JobState]] = {
    JobState.WORKING: {"settle": JobState.SETTLING, "cut off": JobState.CANCELLED, "end": JobState.OVER},
    JobState.SETTLING: {
        "settle": JobState.SETTLING, "go on": JobState.WORKING, "cut off": JobState.CUT_SHORT, "end": JobState.OVER
    },
    JobState.CANCELLED: {"settle": JobState.CUT_SHORT, "cut off": JobState.CANCELLED, "end": JobState.OVER},
    JobState.CUT_SHORT: {"settle": JobState.CUT_SHORT, "cut off": JobState.CUT_SHORT, "end": JobState.OVER},
    JobState.OVER: {"cut off": JobState.OVER},
}  # fmt: skip
"""state -> event -> next state.

``settle``: the outcome of runs is known; ``go on``: other parts of the batch are to run; ``cut off``: the partition is
going or gone, or the channel stops; ``end``: its task has ended."""
