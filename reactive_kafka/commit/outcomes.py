"""What became of the commit requests of a channel."""

from __future__ import annotations

from dataclasses import dataclass, field

from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.tracking.metadata.user import MetadataLimit


@dataclass(slots=True)
class CommitOutcomes:
    """Counts the commit requests of all clients of a channel, through its restarts."""

    outcomes: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    durations: DurationHistogram = field(default_factory=DurationHistogram)
    # How long a string the broker stores with a position.
    room: MetadataLimit = field(default_factory=MetadataLimit)
