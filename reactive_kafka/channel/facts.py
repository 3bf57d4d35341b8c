"""What is known about an incoming channel at one moment, put together from its parts."""

from __future__ import annotations

from collections.abc import Iterator

from reactive_kafka.channel.session import ChannelSession
from reactive_kafka.channel.spec import ChannelTotals
from reactive_kafka.channel.status import ChannelStatus
from reactive_kafka.commit.poison import oldest_started
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.observe.events import ConsumersIdle
from reactive_kafka.observe.facts import ChannelFacts, ChannelState, PartitionFacts
from reactive_kafka.partitions.partition import Partition


def channel_facts(
    settings: IncomingSettings,
    status: ChannelStatus,
    session: ChannelSession,
    totals: ChannelTotals,
    last_partitions: tuple[PartitionFacts, ...] | None,
    now: float,
) -> ChannelFacts:
    """The facts at *now*, by the monotonic clock; nothing is kept up to date for them.

    Args:
        last_partitions: The partitions that the channel had when it failed; None: it has them still.
    """
    for tracker in session.clients.trackers():
        session.acknowledger.count_acks(tracker)  # when somebody asks, and not at each ack
    state: ChannelState = "paused" if totals.pauses.reasons and status.state == "running" else status.state
    commits, history, handlers = totals.commits, totals.history, totals.handlers
    return ChannelFacts(
        channel=settings.name, state=state, reason=status.why_failed(now), on_poison=settings.on_poison,
        failure_strategies=_failure_strategies(settings), poison_limit_s=settings.unprocessed_record_max_age_s,
        has_joined=status.has_joined, paused_by=totals.pauses.reasons,
        broker_error=next((error for client in session.clients if (error := client.connection.broker_error)), None),
        partitions=partition_facts(session, now) if last_partitions is None else last_partitions,
        poison=session.guard.facts(now), totals=dict(totals.totals),
        commits=dict(commits.outcomes), commit_durations=commits.durations,
        handler_durations=handlers.durations, retries=handlers.retries,
        rebalances=dict(history.rebalances), resets=dict(history.resets),
        abandoned_handlers=history.abandoned + handlers.abandoned,
        replays_avoided=history.replays_avoided, duplicates_dropped=history.duplicates_dropped,
        unsynced_age_s=session.hook.behind_s(), metadata_dropped=commits.room.dropped,
        warnings=tuple(filter(None, (commits.room.warning, _idle(settings, session)))),
        not_ready=tuple(dict.fromkeys(_not_ready(session, state))),
    )  # fmt: skip


def _idle(settings: IncomingSettings, session: ChannelSession) -> str | None:
    idle = session.clients.idle_consumers
    return ConsumersIdle(channel=settings.name, idle=idle, consumers=settings.consumers).text() if idle else None


def _failure_strategies(settings: IncomingSettings) -> tuple[str, ...]:
    """The labels that nacks are counted by: strategies, and the ack mode if that is "pre" or "none"."""
    names = [settings.failure_strategy, *settings.failure_routes.values()]
    names += [settings.on_poison] * (settings.on_poison == "dead-letter-queue")
    names += [settings.ack] * (settings.ack in ("pre", "none"))
    return tuple(dict.fromkeys(names))


def partition_facts(session: ChannelSession, now: float, *, also_left: bool = False) -> tuple[PartitionFacts, ...]:
    """The facts at *now* of the partitions that are ours, with *also_left* of suspended ones too."""
    found: list[PartitionFacts] = []
    for client in session.clients:
        stopped = client.fetcher.stopped(now)
        for one in client.table:
            tracker = one.tracker if also_left else one.live
            if tracker is not None:
                found.append(_partition(session, one, tracker, now, is_paused=one.is_paused or one.id in stopped))
    return tuple(found)


def _partition(
    session: ChannelSession, one: Partition, tracker: OffsetTracker, now: float, *, is_paused: bool
) -> PartitionFacts:
    oldest = oldest_started(tracker)
    behind = tracker.start if tracker.committed is None else tracker.committed
    return PartitionFacts(
        partition=one.id, position=tracker.position, committed=tracker.committed, log_end=one.end,
        lag=None if one.end is None else max(0, one.end - behind), in_flight=one.in_flight, queued=one.queued,
        oldest_unacked_s=None if oldest is None else max(0.0, session.guard.watch.age_s(oldest[1], now)),
        paused=is_paused, metadata_units=one.metadata.units(tracker),
    )  # fmt: skip


def _not_ready(session: ChannelSession, state: ChannelState) -> Iterator[str]:
    for client in session.clients:
        yield from client.fetcher.read_errors
        yield from client.connection.reach.not_ready
        if client.starts.not_begun is not None and not client.starts.are_done:
            yield client.starts.not_begun
        if client.committer.failing is not None and state in ("running", "paused"):
            yield f"the last commit was not stored: {client.committer.failing}"
    yield from session.hook.not_ready()
    yield from session.acknowledger.not_ready
