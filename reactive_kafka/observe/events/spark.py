"""Events about Spark batches."""

from __future__ import annotations

from typing import Literal

from reactive_kafka.observe.batches import count_of, progress_text, ranges_text, short_id
from reactive_kafka.observe.events.base import ChannelEvent, Level, event
from reactive_kafka.observe.facts import SparkBatchFacts

PROGRESS_EVERY_S = 10.0
"""How often a running Spark batch is reported by ``SparkBatchProgress``."""


@event()
class SparkBatchEvent(ChannelEvent):
    """Something that happened to one Spark batch."""

    id: str = ""

    def subject(self) -> str:
        return f"{self.channel} {short_id(self.id)}" if self.id else self.channel


@event(apart=("outcome",))
class SparkBatchEnded(SparkBatchEvent):
    """A Spark batch has ended. Where the outcome is ``ok``, the job could not use *rejected* of its records."""

    outcome: Literal["ok", "failed", "cancelled", "lost"]
    records: int
    duration_s: float
    ranges: tuple[str, ...] = ()
    attempt: int = 1
    rejected: int = 0
    reason: str | None = None

    def loudness(self) -> Level:
        return "info" if self.outcome == "ok" else "warning"

    def text(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        rejected = f", {self.rejected} rejected" if self.rejected else ""
        reason = f": {self.reason}" if self.reason else ""
        which = f" of {ranges_text(self.ranges)}" if self.ranges else ""
        took = f"{self.duration_s:.2f} s"
        return f"spark batch {self.outcome}: {count_of(self.records)}{which} in {took}{rejected}{again}{reason}"


@event(apart=("id",))
class SparkBatchProgress(SparkBatchEvent):
    """How far a running Spark batch has come, every ``PROGRESS_EVERY_S``."""

    batch: SparkBatchFacts

    def text(self) -> str:
        return progress_text(self.batch)


@event()
class SparkBatchSplit(SparkBatchEvent):
    """A Spark batch failed on some of its *records*, as ``SparkBatchEnded`` said, and runs again in *parts*."""

    records: int
    parts: int
    reason: str

    def text(self) -> str:
        return f"spark batch split: its {count_of(self.records)} run again in {self.parts} parts"
