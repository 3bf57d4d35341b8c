"""What a checkpoint store asks of the clients of its channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from reactive_kafka.commit.metadata.pending import PendingCommit
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.partition import verdicts_of


class Client(Protocol):
    """One client of the channel."""

    @property
    def name(self) -> str:
        """Rows are claimed under this name."""

    @property
    def is_for_retries(self) -> bool:
        """It reads retry topics, whose positions are not in the store."""

    def knows(self, tracker: OffsetTracker) -> bool:
        """Whether it reads with the tracker, or did so in the last assignment and may retain the partition."""

    def reads_with(self, tracker: OffsetTracker) -> bool:
        """Whether the tracker is that of a partition of the present assignment."""

    def keeps(self, tracker: OffsetTracker) -> bool:
        """The same, and the partition is not being released."""

    def start_over(self, partition: TopicPartition) -> None:
        """Discard a partition that another owner has taken over. Locate it again if it is still assigned."""

    def give_up(self, partition: TopicPartition) -> None:
        """Discard a partition of the last assignment instead of retaining it."""

    def retains(self, partition: TopicPartition, position: int | None) -> bool:
        """Whether a partition of the last assignment goes on where it stood, given this position in the store."""

    def due(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What to store for a position."""

    def stored(self, commit: PendingCommit) -> None:
        """It is stored."""


class Clients:
    """The clients of one channel.

    Args:
        clients: Returns them; asked at each use, because the store is made first.
    """

    def __init__(self, clients: Callable[[], Sequence[Client]]) -> None:
        self._clients = clients

    def _knowing(self, tracker: OffsetTracker) -> Iterator[Client]:
        return (client for client in self._clients() if client.knows(tracker))

    def is_of_retries(self, tracker: OffsetTracker) -> bool:
        """Whether the tracker's partition is of a retry topic."""
        return any(client.is_for_retries for client in self._knowing(tracker))

    def read_with(self, tracker: OffsetTracker) -> bool:
        """Whether the tracker is that of a partition of a present assignment."""
        return any(client.reads_with(tracker) for client in self._clients())

    def keep(self, tracker: OffsetTracker) -> bool:
        """The same, and the partition is not being released."""
        return any(client.keeps(tracker) for client in self._clients())

    def fenced(self, partition: TopicPartition, owner: str) -> None:
        """Another owner has the row: *owner* discards the partition, and locates it again if it is still assigned."""
        for client in self._clients():
            if client.name == owner:
                client.start_over(partition)

    def give_up(self, partition: TopicPartition) -> None:
        """Another owner may have had the row: discard the partition instead of retaining it."""
        for client in self._clients():
            client.give_up(partition)

    def retain(self, partition: TopicPartition, position: int | None) -> bool:
        """Whether a partition of the last assignment goes on where it stood, given this position in the store."""
        return any(client.retains(partition, position) for client in self._clients())

    def due(self, tracker: OffsetTracker, position: int) -> PendingCommit:
        """What a transaction stores for a position."""
        # Also for a partition that was released: its row is ours until somebody else claims it.
        for client in self._knowing(tracker):
            return client.due(tracker, position)
        return PendingCommit(tracker, position, is_new=True)

    def stored(self, commit: PendingCommit) -> None:
        """A transaction has stored it, which counts as a commit."""
        for client in self._knowing(commit.tracker):
            client.stored(commit)
        verdicts_of(commit.tracker).committed_by_transaction(commit.position)
