"""What one client of a channel works with, and where it counts what happens."""

from __future__ import annotations

from dataclasses import dataclass, field

from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.tracking.metadata.user import MetadataLimit


@dataclass(slots=True)
class CommitOutcomes:
    """What became of the commit requests of a channel: of all its members, and through its
    restarts.
    """

    outcomes: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    durations: DurationHistogram = field(default_factory=DurationHistogram)
    # How much the broker takes beside a position.
    room: MetadataLimit = field(default_factory=MetadataLimit)
