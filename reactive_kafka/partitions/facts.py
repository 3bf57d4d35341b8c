"""What happened to the assignments and the commits of a channel, counted for its facts."""

from __future__ import annotations

from dataclasses import dataclass, field

from reactive_kafka.commit.metadata.user import MetadataLimit
from reactive_kafka.observe.facts import DurationHistogram


@dataclass(slots=True)
class AssignmentFacts:
    """What happened to a channel's assignments, of all of its clients."""

    rebalances: dict[str, int] = field(default_factory=lambda: {"assigned": 0, "revoked": 0, "lost": 0})
    resets: dict[str, int] = field(default_factory=lambda: {"earliest": 0, "latest": 0})
    abandoned: int = 0
    replays_avoided: int = 0  # records that were not delivered again, because their acks had been kept
    duplicates_dropped: int = 0

    def dropped(self, records: int) -> None:
        """Records were settled without their handler, because the checkpoint store had them already."""
        self.duplicates_dropped += records


@dataclass(slots=True)
class CommitFacts:
    """What became of the commit requests of a channel: of all its members, and through its restarts.

    ``room`` is what is known of how much the broker takes beside a position.
    """

    outcomes: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    durations: DurationHistogram = field(default_factory=DurationHistogram)
    room: MetadataLimit = field(default_factory=MetadataLimit)
