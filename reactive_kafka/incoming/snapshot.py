"""What is known about an incoming channel at one moment, put together from those who know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reactive_kafka.commit.committer import Committer
from reactive_kafka.commit.engine import CommitEngine
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.commit.poison import Poison
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.incoming.assignment import Assignment
from reactive_kafka.incoming.connection import Connection
from reactive_kafka.incoming.intake import Intake
from reactive_kafka.observe.facts import ChannelFacts, ChannelState, PartitionFacts, PartitionTotals, PoisonFacts
from reactive_kafka.records import TopicPartition


class Snapshot:
    """Takes the facts of one channel when asked; nothing is kept up to date for it."""

    def __init__(
        self,
        settings: IncomingSettings,
        engine: CommitEngine,
        assignment: Assignment,
        committer: Committer,
        intake: Intake,
        connection: Connection,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._assignment = assignment
        self._committer = committer
        self._intake = intake
        self._connection = connection

    def take(
        self,
        state: ChannelState,
        reason: str | None,
        poison: tuple[PoisonFacts, ...],
        totals: Mapping[TopicPartition, PartitionTotals],
        now: float,
    ) -> ChannelFacts:
        """The facts at *now*, by the monotonic clock."""
        commits, history, workers = self._committer.facts, self._assignment.facts, self._intake.workers
        return ChannelFacts(
            channel=self._settings.name,
            state=state,
            reason=reason,
            on_poison=self._settings.on_poison,
            poison_limit_s=self._settings.unprocessed_record_max_age_s,
            has_joined=history.has_joined,
            broker_error=self._connection.broker_error,
            partitions=self.partitions(self._engine.trackers.values(), now),
            poison=poison,
            totals=totals,
            commits=dict(commits.outcomes),
            commit_durations=commits.durations,
            handler_durations=workers.durations,
            retries=workers.retries,
            rebalances=dict(history.rebalances),
            resets=dict(history.resets),
            abandoned_handlers=history.abandoned,
            not_ready=self._not_ready(state),
        )

    def partitions(self, trackers: Iterable[OffsetTracker], now: float) -> tuple[PartitionFacts, ...]:
        """What is known about the partitions of these trackers at *now*."""
        return tuple(self._partition(tracker, now) for tracker in trackers)

    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return sum(self._in_flight(tracker) for tracker in self._engine.trackers.values())

    def _in_flight(self, tracker: OffsetTracker) -> int:
        lane = self._assignment.lanes.get(tracker.partition)
        return tracker.open - (lane.waiting if lane is not None else 0)

    def _not_ready(self, state: ChannelState) -> tuple[str, ...]:
        reasons = self._intake.read_errors
        not_positioned = self._assignment.facts.not_positioned
        if not_positioned is not None and not self._assignment.is_positioned:
            reasons.append(not_positioned)
        failing = self._committer.facts.failing
        if failing is not None and state == "running":
            reasons.append(f"the last commit was not stored: {failing}")
        return tuple(reasons)

    def _partition(self, tracker: OffsetTracker, now: float) -> PartitionFacts:
        partition = tracker.partition
        lane = self._assignment.lanes.get(partition)
        oldest = tracker.oldest_started()
        end = self._intake.ends.get(partition)
        behind = tracker.start if tracker.committed is None else tracker.committed
        return PartitionFacts(
            partition=partition,
            position=tracker.position,
            committed=tracker.committed,
            log_end=end,
            lag=None if end is None else max(0, end - behind),
            in_flight=self._in_flight(tracker),
            queued=lane.waiting if lane is not None else 0,
            oldest_unacked_s=None if oldest is None else max(0.0, now - oldest[1]),
            paused=self._intake.is_paused(partition, now),
        )


def poison_facts(poison: Poison, now: float) -> PoisonFacts:
    """What health says of a poison record at *now*."""
    return PoisonFacts(
        partition=poison.tracker.partition, offset=poison.offset, age_s=now - poison.since, waiting=poison.waiting
    )
