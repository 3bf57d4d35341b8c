"""Events about scheduled jobs.

The channel is that of the partition whose owner runs the job, or ``*``.
"""

from __future__ import annotations

from reactive_kafka.observe.events.base import ChannelEvent, TracedProblem, event


@event("the job {job} raised: {reason}", identity=("job",))
class JobFailed(TracedProblem):
    """A job raised an exception. It is called again at its next time."""

    job: str


@event(
    "the job {job} took {took_s:.1f} s: its calls that were due meanwhile are left out",
    level="warning",
    identity=("job",),
)
class JobLate(ChannelEvent):
    """A job was due again before it had ended. Reported once until it ends in time."""

    job: str
    took_s: float


@event(level="warning", identity=("job",))
class JobLeft(ChannelEvent):
    """A job did not end in time when its partition was revoked, or the application stopped."""

    job: str
    # Python cannot end a thread, so the job still runs.
    is_in_thread: bool = False

    def text(self) -> str:
        outcome = "its thread still runs" if self.is_in_thread else "it was cancelled"
        return f"the job {self.job} did not end in time: {outcome}"
