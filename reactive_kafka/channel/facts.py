"""What is known about an incoming channel at one moment, put together from those who know it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reactive_kafka.channel.consumer import Member
from reactive_kafka.channel.session import Life, Memory
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.observe.events import idle_text
from reactive_kafka.observe.facts import ChannelFacts, ChannelState, PartitionFacts
from reactive_kafka.records import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a channel is: its state, and why; ``partitions`` are those it had when it failed, None while it has them."""

    state: ChannelState
    reason: str | None
    has_joined: bool
    partitions: tuple[PartitionFacts, ...] | None


def channel_facts(
    settings: IncomingSettings, condition: Condition, life: Life, memory: Memory, now: float
) -> ChannelFacts:
    """The facts at *now*, by the monotonic clock; nothing is kept up to date for them."""
    for tracker in life.trackers():
        life.settlements.count_acks(tracker)  # here, and not as they come
    partitions = condition.partitions
    return ChannelFacts(
        channel=settings.name,
        state=condition.state,
        reason=condition.reason,
        on_poison=settings.on_poison,
        failure_strategies=_failure_strategies(settings),
        poison_limit_s=settings.unprocessed_record_max_age_s,
        has_joined=condition.has_joined,
        broker_error=next((error for one in life.members if (error := one.connection.broker_error)), None),
        partitions=partition_facts(life, now) if partitions is None else partitions,
        poison=life.guard.facts(now),
        totals=dict(memory.totals),
        commits=dict(memory.commits.outcomes),
        commit_durations=memory.commits.durations,
        handler_durations=life.workers.durations,
        retries=life.workers.retries,
        rebalances=dict(memory.history.rebalances),
        resets=dict(memory.history.resets),
        abandoned_handlers=memory.history.abandoned + life.workers.abandoned,
        replays_avoided=memory.history.replays_avoided,
        duplicates_dropped=memory.history.duplicates_dropped,
        unsynced_age_s=None if life.storage is None else life.storage.keeper.look(),
        paused_by=memory.pauses.reasons,
        metadata_dropped=memory.commits.room.dropped,
        warnings=tuple(filter(None, (memory.commits.room.warning, _idle(settings, life)))),
        not_ready=tuple(dict.fromkeys(_not_ready(life, condition.state))),
    )


def _idle(settings: IncomingSettings, life: Life) -> str | None:
    idle = life.idle_consumers
    return idle_text(idle, settings.consumers) if idle else None


def _failure_strategies(settings: IncomingSettings) -> tuple[str, ...]:
    """What nacks are counted by: strategies; with acks before the handler, or none, the mode of ack itself."""
    names = [settings.failure_strategy, *settings.failure_routes.values()]
    names += [settings.on_poison] * (settings.on_poison == "dead-letter-queue")
    names += [settings.ack] * (settings.ack in ("pre", "none"))
    return tuple(dict.fromkeys(names))


def partition_facts(life: Life, now: float, *, also_left: bool = False) -> tuple[PartitionFacts, ...]:
    """What is known at *now* about the partitions that are ours, or with *also_left* were."""
    paused = {member: member.intake.paused(now) for member in life.members}
    return tuple(
        _partition(life, member, tracker, paused[member], now)
        for member in life.members
        for tracker in _trackers(member, also_left)
    )


def _trackers(member: Member, also_left: bool) -> Iterable[OffsetTracker]:
    return member.engine.all_trackers() if also_left else member.engine.trackers.values()


def _not_ready(life: Life, state: ChannelState) -> Iterator[str]:
    for member in life.members:
        yield from member.intake.read_errors
        yield from member.connection.reach.not_ready
        if member.beginnings.not_begun is not None and not member.assignment.is_positioned:
            yield member.beginnings.not_begun
        if member.committer.failing is not None and state in ("running", "paused"):
            yield f"the last commit was not stored: {member.committer.failing}"
    if life.storage is not None:
        yield from life.storage.keeper.not_ready()
    yield from life.settlements.not_ready


def _partition(
    life: Life, member: Member, tracker: OffsetTracker, paused: set[TopicPartition], now: float
) -> PartitionFacts:
    partition = tracker.partition
    lane = member.assignment.lanes.get(partition)
    oldest = tracker.oldest_started()
    end = member.intake.ends.get(partition)
    behind = tracker.start if tracker.committed is None else tracker.committed
    return PartitionFacts(
        partition=partition,
        position=tracker.position,
        committed=tracker.committed,
        log_end=end,
        lag=None if end is None else max(0, end - behind),
        in_flight=member.holdings.in_flight_of(tracker),
        queued=lane.waiting + lane.held if lane is not None else 0,
        oldest_unacked_s=None if oldest is None else max(0.0, life.guard.watch.age_s(oldest[1], now)),
        paused=partition in paused,
        metadata_units=member.engine.metadata_units(tracker),
    )
