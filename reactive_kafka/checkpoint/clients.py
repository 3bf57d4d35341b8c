"""What a checkpoint store asks of the clients of its channel."""

from __future__ import annotations

from typing import Protocol

from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.records import TopicPartition


class Client(Protocol):
    """One client of the channel.

    Attributes:
        name: Rows are claimed under it.
        is_for_retries: It reads retry topics, whose positions are not in the store.
    """

    name: str
    is_for_retries: bool

    def knows(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, or did so in the last assignment and may retain the partition."""

    def reads_with(self, tracker: OffsetTracker) -> bool:
        """Whether the tracker is that of a partition of the present assignment."""

    def keeps(self, tracker: OffsetTracker) -> bool:
        """The same, and the partition is not being released."""

    def start_over(self, partition: TopicPartition) -> None:
        """Discard a partition that another owner has taken over. Locate it again if it is still assigned."""

    def give_up(self, partition: TopicPartition) -> None:
        """Discard a partition of the last assignment instead of retaining it: another owner may have had its row."""

    def retains(self, partition: TopicPartition, position: int | None) -> bool:
        """Whether a partition of the last assignment goes on where it stood, given this position in the store."""

    def due(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What to store for a position."""

    def stored(self, commit: PendingCommit) -> None:
        """It is stored, which counts as a commit."""
