"""What is known about an incoming channel at one moment, put together from those who know it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reactive_kafka.channel.session import ChannelSession, ChannelTotals
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.observe.events import idle_text
from reactive_kafka.observe.facts import ChannelFacts, ChannelState, PartitionFacts
from reactive_kafka.partitions.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a channel is: its state, and why; ``partitions`` are those it had when it failed, None while it has them."""

    state: ChannelState
    reason: str | None
    has_joined: bool
    partitions: tuple[PartitionFacts, ...] | None


def channel_facts(
    settings: IncomingSettings, condition: Condition, session: ChannelSession, totals: ChannelTotals, now: float
) -> ChannelFacts:
    """The facts at *now*, by the monotonic clock; nothing is kept up to date for them."""
    for tracker in session.trackers():
        session.acknowledger.count_acks(tracker)  # here, and not as they come
    partitions = condition.partitions
    return ChannelFacts(
        channel=settings.name,
        state=condition.state,
        reason=condition.reason,
        on_poison=settings.on_poison,
        failure_strategies=_failure_strategies(settings),
        poison_limit_s=settings.unprocessed_record_max_age_s,
        has_joined=condition.has_joined,
        broker_error=next((error for one in session.members if (error := one.connection.broker_error)), None),
        partitions=partition_facts(session, now) if partitions is None else partitions,
        poison=session.guard.facts(now),
        totals=dict(totals.totals),
        commits=dict(totals.commits.outcomes),
        commit_durations=totals.commits.durations,
        handler_durations=totals.handlers.durations,
        retries=totals.handlers.retries,
        rebalances=dict(totals.history.rebalances),
        resets=dict(totals.history.resets),
        abandoned_handlers=totals.history.abandoned + totals.handlers.abandoned,
        replays_avoided=totals.history.replays_avoided,
        duplicates_dropped=totals.history.duplicates_dropped,
        unsynced_age_s=None if session.storage is None else session.storage.rows.look(),
        paused_by=totals.pauses.reasons,
        metadata_dropped=totals.commits.room.dropped,
        warnings=tuple(filter(None, (totals.commits.room.warning, _idle(settings, session)))),
        not_ready=tuple(dict.fromkeys(_not_ready(session, condition.state))),
    )


def _idle(settings: IncomingSettings, session: ChannelSession) -> str | None:
    idle = session.idle_consumers
    return idle_text(idle, settings.consumers) if idle else None


def _failure_strategies(settings: IncomingSettings) -> tuple[str, ...]:
    """What nacks are counted by: strategies; with acks before the handler, or none, the mode of ack itself."""
    names = [settings.failure_strategy, *settings.failure_routes.values()]
    names += [settings.on_poison] * (settings.on_poison == "dead-letter-queue")
    names += [settings.ack] * (settings.ack in ("pre", "none"))
    return tuple(dict.fromkeys(names))


def partition_facts(session: ChannelSession, now: float, *, also_left: bool = False) -> tuple[PartitionFacts, ...]:
    """What is known at *now* about the partitions that are ours, or with *also_left* were."""
    stopped = {member: member.fetcher.stopped(now) for member in session.members}
    return tuple(
        _partition(session, one, tracker, now, is_paused=one.is_paused or one.id in stopped[member])
        for member in session.members
        for one in member.table
        if (tracker := one.tracker if also_left else one.live) is not None
    )


def _not_ready(session: ChannelSession, state: ChannelState) -> Iterator[str]:
    for member in session.members:
        yield from member.fetcher.read_errors
        yield from member.connection.reach.not_ready
        if member.starts.not_begun is not None and not member.starts.are_done:
            yield member.starts.not_begun
        if member.committer.failing is not None and state in ("running", "paused"):
            yield f"the last commit was not stored: {member.committer.failing}"
    if session.storage is not None:
        yield from session.storage.rows.not_ready()
    yield from session.acknowledger.not_ready


def _partition(
    session: ChannelSession, one: Partition, tracker: OffsetTracker, now: float, *, is_paused: bool
) -> PartitionFacts:
    oldest = tracker.oldest_started()
    behind = tracker.start if tracker.committed is None else tracker.committed
    return PartitionFacts(
        partition=one.id,
        position=tracker.position,
        committed=tracker.committed,
        log_end=one.end,
        lag=None if one.end is None else max(0, one.end - behind),
        in_flight=one.in_flight,
        queued=one.queued,
        oldest_unacked_s=None if oldest is None else max(0.0, session.guard.watch.age_s(oldest[1], now)),
        paused=is_paused,
        metadata_units=one.metadata.units(tracker),
    )
