"""The partitions of a channel in its checkpoint store: each one's row, and what the channel's clients have in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.checkpoint.owned_row import OwnedRow
from reactive_kafka.records import Committed, TopicPartition

FENCED = Backoff(1.0, 30.0)
"""How soon a client claims a row again that another owner has taken over."""


class Share:
    """What one client of the channel has in a partition.

    Attributes:
        is_assigned: The group has assigned it to the client.
        may_claim: Its row may be claimed: the partition is not about to go.
        is_ours: Its row was found to be the client's in this assignment.
        in_kafka: The committed position in Kafka, as far as is known.
    """

    def __init__(self) -> None:
        self.is_assigned = False
        self.may_claim = False
        self.is_ours = False
        self.in_kafka: Committed | None = None
        self._claim_at: float | None = None  # None: not fenced
        self._waits = Waits(FENCED)

    def assign(self) -> None:
        """An assignment brings it. Whoever fenced the client before has no say in it."""
        self.is_assigned = self.may_claim = True
        self.is_ours, self.in_kafka = False, None
        self.unfence()

    def revoke(self) -> None:
        """The assignment is over."""
        self.is_assigned = self.may_claim = self.is_ours = False

    def fence(self, now: float) -> None:
        """Another owner has taken the row over: it is not to be claimed for a while."""
        self._claim_at = now + self._waits.next_s()

    def unfence(self) -> None:
        """The row is the client's again, or may be claimed."""
        self._claim_at = None
        self._waits.reset()

    def fenced_for(self, now: float) -> float | None:
        """How long the row is not to be claimed, in seconds; None: nobody has taken it over."""
        return None if self._claim_at is None else max(0.0, self._claim_at - now)


class StoredPartitions:
    """The partitions that a channel has, or has had, in its checkpoint store."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}

    def claim(self, partition: TopicPartition) -> OwnedRow | None:
        """The partition's row, if it is ours or was until lately."""
        found = self._partitions.get(partition)
        return None if found is None else found.claim

    def claims(self) -> list[OwnedRow]:
        """All rows that are ours."""
        return [found.claim for found in self._partitions.values() if found.claim is not None]

    def set_claim(self, partition: TopicPartition, claim: OwnedRow | None) -> None:
        """A client has claimed the partition's row, or another owner has it now (None)."""
        self._partitions.setdefault(partition, _Partition()).claim = claim

    def share(self, partition: TopicPartition, client: str) -> Share:
        """What the client of this name has in a partition."""
        return self._partitions.setdefault(partition, _Partition()).shares.setdefault(client, Share())

    def shares(self, client: str) -> list[tuple[TopicPartition, Share]]:
        """The same of every partition."""
        return [(partition, self.share(partition, client)) for partition in self._partitions]

    def assigned(self, partitions: Collection[TopicPartition], client: str) -> None:
        """An assignment brings a client these partitions."""
        for partition in partitions:
            self.share(partition, client).assign()

    def going(self, partitions: Collection[TopicPartition], client: str) -> None:
        """A client is about to lose these partitions: what it has is still written, and nothing is claimed."""
        for partition in partitions:
            self.share(partition, client).may_claim = False

    def revoked(self, partitions: Collection[TopicPartition], client: str) -> None:
        """A client has these partitions no longer."""
        for partition in partitions:
            self.share(partition, client).revoke()

    def of(self, client: str) -> list[TopicPartition]:
        """Those that are assigned to a client."""
        return [partition for partition, share in self.shares(client) if share.is_assigned]

    def has_all(self, partitions: Iterable[TopicPartition], client: str) -> bool:
        """Whether all of these are assigned to a client."""
        return all(self.share(partition, client).is_assigned for partition in partitions)

    def may_claim(self, partitions: Iterable[TopicPartition], client: str) -> bool:
        """Whether a client may claim the rows of all of these."""
        return all(self.share(partition, client).may_claim for partition in partitions)

    def not_in_kafka(self, client: str) -> dict[TopicPartition, Committed]:
        """partition -> the position that the store has and Kafka, as far as we know, has not; of rows that are ours."""
        moved: dict[TopicPartition, Committed] = {}
        for partition, share in self.shares(client):
            claim = self.claim(partition)
            if not share.is_ours or claim is None or claim.owner != client or claim.row.position is None:
                continue
            stored = Committed(claim.row.position, claim.row.metadata)
            if share.in_kafka != stored:
                moved[partition] = stored
        return moved


class _Partition:
    def __init__(self) -> None:
        self.claim: OwnedRow | None = None
        self.shares: dict[str, Share] = {}
