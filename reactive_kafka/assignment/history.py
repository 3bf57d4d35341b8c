"""What one client of a channel works with, and where it counts what happens."""

from __future__ import annotations

from dataclasses import dataclass, field

from reactive_kafka.assignment.incarnations import Incarnations


@dataclass(slots=True)
class AssignmentHistory:
    """What happened to a channel's assignments, of all of its clients."""

    rebalances: dict[str, int] = field(
        default_factory=lambda: {"assigned": 0, "revoked": 0, "lost": 0}
    )
    resets: dict[str, int] = field(default_factory=lambda: {"earliest": 0, "latest": 0})
    # on_unreadable -> offsets.
    unreadable: dict[str, int] = field(default_factory=dict)
    abandoned: int = 0
    # Records that were not delivered again, because their acks had been kept.
    replays_avoided: int = 0
    duplicates_dropped: int = 0
    # Of the topics that were read.
    incarnations: Incarnations = field(default_factory=Incarnations)

    def dropped(self, records: int) -> None:
        """Records were settled without their handler, because the checkpoint store had them
        already.
        """
        self.duplicates_dropped += records
