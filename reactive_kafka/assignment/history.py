"""Counts and reports what happens to the assignments of a channel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from reactive_kafka.assignment.incarnations import Incarnations
from reactive_kafka.assignment.start_policy import Start
from reactive_kafka.observe.events import (
    HandlerAbandoned,
    KeptAcksDropped,
    Observer,
    OffsetReset,
    PlanDropped,
    Rebalanced,
    UnreadableSkipped,
)
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.plans import PlannedRange

During = Literal["revocation", "stop"]


@dataclass(slots=True)
class AssignmentHistory:
    """What happened to the assignments of all clients of a channel, through its restarts."""

    rebalances: dict[str, int] = field(
        default_factory=lambda: {"assigned": 0, "revoked": 0, "lost": 0}
    )
    resets: dict[str, int] = field(default_factory=lambda: {"earliest": 0, "latest": 0})
    # on_unreadable -> offsets.
    unreadable: dict[str, int] = field(default_factory=dict)
    # Handlers that still ran when their partition was let go.
    abandoned: int = 0
    # Records that were not delivered again, because their acks had been kept.
    replays_avoided: int = 0
    duplicates_dropped: int = 0
    # Of the topics that were read.
    incarnations: Incarnations = field(default_factory=Incarnations)

    def dropped(self, records: int) -> None:
        """Records were settled without their handler: the checkpoint store had them already."""
        self.duplicates_dropped += records


class AssignmentReports:
    """Counts what happens to the assignments of a channel, and reports it as events."""

    def __init__(self, channel: str, observer: Observer, history: AssignmentHistory) -> None:
        self._channel = channel
        self._observer = observer
        self.history = history

    def rebalanced(
        self,
        kind: Literal["assigned", "revoked", "lost"],
        partitions: frozenset[TopicPartition],
        generation: int,
    ) -> None:
        """Partitions were assigned or taken away."""
        self.history.rebalances[kind] += 1
        self._observer.on(
            Rebalanced(
                channel=self._channel, kind=kind, partitions=partitions, generation=generation
            )
        )

    def abandoned(self, handlers: int, records: int, during: During, waited_s: float) -> None:
        """Partitions are let go while *handlers* run and *records* have no verdict."""
        self.history.abandoned += handlers
        if records:
            self._observer.on(
                HandlerAbandoned(
                    channel=self._channel, during=during, records=records, waited_s=waited_s
                )
            )

    def reset(
        self,
        partition: TopicPartition,
        wanted: int | None,
        start: Start,
        reason: str | None = None,
    ) -> None:
        """Reading starts somewhere; it is a reset if the policy chose the place.

        Args:
            wanted: Where it would have started; None: nowhere.
        """
        if start.reset is None:
            return
        self.history.resets[start.reset] += 1
        self._observer.on(
            OffsetReset(
                channel=self._channel,
                partition=partition,
                from_offset=wanted,
                to_offset=start.position,
                to=start.reset,
                skipped=start.lost if wanted is not None else None,
                reason=reason,
            )
        )

    def acks_dropped(self, partition: TopicPartition, reason: str) -> None:
        """Records are handled again, although their acks had been kept."""
        self._observer.on(
            KeptAcksDropped(channel=self._channel, partition=partition, reason=reason)
        )

    def plan_dropped(
        self, partition: TopicPartition, reason: str, planned: PlannedRange | None = None
    ) -> None:
        """Records are cut again, although an earlier owner had planned a range of them.

        Args:
            planned: The range; None: it is not known.
        """
        self._observer.on(
            PlanDropped(
                channel=self._channel,
                partition=partition,
                start=None if planned is None else planned.start,
                until=None if planned is None else planned.until,
                reason=reason,
            )
        )

    def unreadable(self, policy: str, offset: int, until: int | None) -> None:
        """Offsets cannot be read; only the first is known if *until* (exclusive) is None."""
        counts = self.history.unreadable
        offsets = (until or offset + 1) - offset
        counts[policy] = counts.get(policy, 0) + offsets

    def unreadable_skipped(
        self, partition: TopicPartition, offset: int, until: int, reason: str
    ) -> None:
        """The position passes offsets that cannot be read."""
        self._observer.on(
            UnreadableSkipped(
                channel=self._channel,
                partition=partition,
                offset=offset,
                until=until,
                reason=reason,
            )
        )
