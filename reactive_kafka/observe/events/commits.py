"""Events about a channel's commits, what stands beside its positions, and its checkpoint store."""

from __future__ import annotations

from typing import Literal

from reactive_kafka.observe.batches import count_of
from reactive_kafka.observe.events.base import ChannelEvent, PartitionEvent, Problem, event
from reactive_kafka.records import TopicPartition


@event()
class CommitFailed(Problem):
    """A commit request did not succeed; the next tick commits the same positions again."""

    outcome: Literal["failed", "unknown"]
    partitions: frozenset[TopicPartition]

    def text(self) -> str:
        return f"commit {self.outcome} for {count_of(len(self.partitions), 'partition')}, retrying: {self.reason}"


@event()
class SettledNotStored(Problem):
    """Partitions were released before the positions behind their settled records could be
    stored.
    """

    during: Literal["revocation", "stop"]
    partitions: frozenset[TopicPartition]
    # At most: offsets between the stored positions and the settled ones.
    records: int

    def text(self) -> str:
        settled = (
            f"settled positions of {count_of(len(self.partitions), 'partition')} were not stored"
        )
        again = f"at most {count_of(self.records)} may be delivered again"
        return f"{self.during}: {settled}, {again}: {self.reason}"


@event(level="warning")
class RevocationCut(ChannelEvent):
    """A revocation had less time than its steps may take, for the group would have gone on without
    this member.
    """

    # How long the group waits: ``rebalance.timeout.ms``
    waits_s: float
    # Cancelled.
    hooks: int
    # Unsettled.
    records: int
    # Partitions whose settled positions were not stored.
    unstored: int

    def text(self) -> str:
        left = {
            "on_revoked hook": self.hooks,
            "unsettled record": self.records,
            "uncommitted partition": self.unstored,
        }
        told = ", ".join(count_of(number, what) for what, number in left.items() if number)
        return f"revocation cut short, for the group waits {self.waits_s:g} s: left {told}; raise rebalance.timeout.ms"


@event(
    "{partition}: kept acks are dropped, their records will be handled again: {reason}",
    level="warning",
)
class KeptAcksDropped(PartitionEvent):
    """Acks above the committed position are dropped: their records will be handled again."""

    reason: str


@event(level="warning", apart=("start",))
class PlanDropped(PartitionEvent):
    """A range planned by an earlier owner is not kept to, and its records are cut into new ranges.

    What that owner has written of the range may be written again, under other ids. Without
    ``start`` it is not known what was planned.
    """

    start: int | None = None
    until: int | None = None
    reason: str

    def text(self) -> str:
        planned = (
            "the plan" if self.start is None else f"the planned range [{self.start}, {self.until})"
        )
        return f"{self.partition}: {planned} is dropped: {self.reason}"


@event(level="warning", apart=("token",))
class CheckpointFenced(PartitionEvent):
    """Another owner has taken the partition in the checkpoint store: what this one holds of it is
    discarded.
    """

    # Of this owner.
    token: int
    # The token in the store; None: the row is gone.
    found: int | None

    def text(self) -> str:
        found = (
            "its row is gone"
            if self.found is None
            else f"another owner has taken it (token {self.found})"
        )
        return (
            f"{self.partition}: {found} in the checkpoint store, our token was {self.token}; "
            "reading it again if it is still assigned"
        )


@event("the checkpoint store cannot be used: {reason}")
class StoreUnavailable(Problem):
    """The checkpoint store does not work; the channel keeps trying."""


@event("the checkpoint store is back after {away_s:.1f} s")
class StoreAvailable(ChannelEvent):
    """The end of :class:`StoreUnavailable`."""

    # Since the first failure.
    away_s: float


@event(
    "{partition} continues at {position}, the position in the checkpoint store; Kafka has {in_kafka}"
)
class CheckpointFound(PartitionEvent):
    """The checkpoint store and Kafka have different positions: the store's counts."""

    position: int
    in_kafka: int


@event(
    "{partition} moves back from {from_offset} to {to_offset}: its state is dropped",
    level="warning",
)
class StateDropped(PartitionEvent):
    """Reading restarts before the stored position, so the stored state no longer applies and is
    dropped.
    """

    from_offset: int
    to_offset: int


@event("the store's positions were not committed to Kafka, retrying: {reason}")
class KafkaCommitFailed(Problem):
    """The positions in the checkpoint store could not be committed to Kafka as well."""
