"""Events about a channel's commits, the metadata of its positions, and its checkpoint store."""

from __future__ import annotations

from typing import Literal

from reactive_kafka.observe.events.base import ChannelEvent, PartitionEvent, Problem, event
from reactive_kafka.observe.wording import count_of
from reactive_kafka.records import TopicPartition


@event()
class CommitFailed(Problem):
    """A commit request did not succeed. The next one commits the same positions again."""

    outcome: Literal["failed", "unknown"]
    partitions: frozenset[TopicPartition]

    def text(self) -> str:
        partitions = count_of(len(self.partitions), "partition")
        return f"commit {self.outcome} for {partitions}, retrying: {self.reason}"


@event(identity=("partitions",))
class SettledNotStored(Problem):
    """Partitions were released before the positions of their settled records could be stored."""

    during: Literal["revocation", "stop"]
    partitions: frozenset[TopicPartition]
    # An upper bound: the offsets between the stored and the settled positions.
    records: int

    def text(self) -> str:
        partitions = count_of(len(self.partitions), "partition")
        again = f"at most {count_of(self.records)} may be delivered again"
        return (
            f"{self.during}: settled positions of {partitions} were not stored,"
            f" {again}: {self.reason}"
        )


@event(level="warning")
class RevocationCut(ChannelEvent):
    """A revocation was cut short, because the group waits no longer for this member."""

    # How long the group waits: rebalance.timeout.ms.
    waits_s: float
    # Hooks that were cancelled.
    hooks: int
    # Records that were left unsettled.
    records: int
    # Partitions whose settled positions were not stored.
    unstored: int

    def text(self) -> str:
        left = {
            "on_revoked hook": self.hooks,
            "unsettled record": self.records,
            "uncommitted partition": self.unstored,
        }
        counts = ", ".join(count_of(number, what) for what, number in left.items() if number)
        return (
            f"revocation cut short, for the group waits {self.waits_s:g} s:"
            f" left {counts}; raise rebalance.timeout.ms"
        )


@event(
    "{partition}: kept acks are dropped, their records will be handled again: {reason}",
    level="warning",
)
class KeptAcksDropped(PartitionEvent):
    """Acks above the committed position are dropped: their records will be handled again."""

    reason: str


@event(level="warning", identity=("start",))
class PlanDropped(PartitionEvent):
    """A range that an earlier owner planned is dropped, and its records get new ranges.

    The outputs of that owner may be written again, with other ids. ``start`` is None if the planned
    range is not known.
    """

    start: int | None = None
    until: int | None = None
    reason: str

    def text(self) -> str:
        planned = "the plan"
        if self.start is not None:
            planned = f"the planned range [{self.start}, {self.until})"
        return f"{self.partition}: {planned} is dropped: {self.reason}"


@event(level="warning", identity=("token",))
class CheckpointFenced(PartitionEvent):
    """Another owner has taken the partition in the checkpoint store. Our state is discarded."""

    # The token of this owner.
    token: int
    # The token in the store. None: the row is gone.
    found: int | None

    def text(self) -> str:
        if self.found is None:
            found = "its row is gone"
        else:
            found = f"another owner has taken it (token {self.found})"
        return (
            f"{self.partition}: {found} in the checkpoint store, our token was {self.token}; "
            "reading it again if it is still assigned"
        )


@event("the checkpoint store cannot be used: {reason}")
class StoreUnavailable(Problem):
    """The checkpoint store does not work. The channel keeps trying."""


@event("the checkpoint store is back after {away_s:.1f} s")
class StoreAvailable(ChannelEvent):
    """The end of :class:`StoreUnavailable`."""

    # Since the first failure.
    away_s: float


@event(
    "{partition} continues at {position}, the position in the checkpoint store; Kafka has"
    " {in_kafka}"
)
class CheckpointFound(PartitionEvent):
    """The checkpoint store and Kafka have different positions. That of the store counts."""

    position: int
    in_kafka: int


@event(
    "{partition} moves back from {from_offset} to {to_offset}: its state is dropped",
    level="warning",
)
class StateDropped(PartitionEvent):
    """Reading restarts before the stored position, so the stored state is dropped."""

    from_offset: int
    to_offset: int


@event("the store's positions were not committed to Kafka, retrying: {reason}")
class KafkaCommitFailed(Problem):
    """The positions in the checkpoint store could not be committed to Kafka as well."""
