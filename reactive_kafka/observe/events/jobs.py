"""Events about jobs, which the clock calls. The channel is that of the partition whose owner runs
it, or ``*``.
"""

from __future__ import annotations

from reactive_kafka.observe.events.base import ChannelEvent, TracedProblem, event


@event("the job {job} raised: {reason}", apart=("job",))
class JobFailed(TracedProblem):
    """It is called again at its next time."""

    job: str


@event(
    "the job {job} took {took_s:.1f} s: what was due meanwhile is left out",
    level="warning",
    apart=("job",),
)
class JobLate(ChannelEvent):
    """A job was due again before it had ended; reported once until it ends in time."""

    job: str
    took_s: float


@event(level="warning", apart=("job",))
class JobLeft(ChannelEvent):
    """A job ran when its partition went, or the application stopped, and did not end in time."""

    job: str
    # Which nothing can end.
    is_in_thread: bool = False

    def text(self) -> str:
        what = "its thread goes on" if self.is_in_thread else "it was cancelled"
        return f"the job {self.job} did not end in time: {what}"
