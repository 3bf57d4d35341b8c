"""What health, metrics and the page show of an incoming channel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reactive_kafka.channel.caught_up import not_caught_up
from reactive_kafka.channel.channel_session import ChannelSession
from reactive_kafka.channel.client_connection import CONNECTING
from reactive_kafka.channel.status import ChannelStatus
from reactive_kafka.channel.totals import ChannelTotals
from reactive_kafka.config.incoming_kinds import AssignedPartition
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.observe.events import ConsumersIdle
from reactive_kafka.observe.facts import ChannelFacts, ChannelState, PartitionFacts
from reactive_kafka.partitions.partition import Partition, is_done, lag_begins
from reactive_kafka.tracking.poison_watch import oldest_started
from reactive_kafka.tracking.settled_ranges import settled_above
from reactive_kafka.tracking.tracker import OffsetTracker

SET_BY_THE_BROKER = ("session_timeout_ms", "heartbeat_interval_ms")
"""Properties that only members of the classic protocol decide on.

With ``group_protocol = "auto"`` it shows only in a running group that they do nothing.
"""
MOST_ERRORS = 3
"""How many errors of a channel's clients are named in one reason."""


def channel_facts(
    settings: IncomingSettings,
    status: ChannelStatus,
    session: ChannelSession,
    totals: ChannelTotals,
    last_partitions: tuple[PartitionFacts, ...] | None,
    now: float,
    handlers: tuple[str, ...] = (),
) -> ChannelFacts:
    """Return the facts of a channel.

    Args:
        last_partitions: The partitions that the channel had when it failed, if it has failed.
        now: The time of the monotonic clock.
        handlers: The names of the functions that take its records.
    """
    for tracker in session.clients.trackers():
        # Acks are counted when the facts are read, and not at each ack.
        session.acknowledger.count_acks(tracker)
    state = _state(status, session, totals)
    commits = totals.commits
    history = totals.history
    calls = totals.handlers
    partitions = partition_facts(session, now) if last_partitions is None else last_partitions
    return ChannelFacts(
        channel=settings.name,
        state=state,
        reason=status.why_failed(now),
        on_poison=settings.on_poison,
        failure_strategies=_failure_strategies(settings),
        poison_limit_s=settings.unprocessed_record_max_age_s,
        has_joined=status.has_joined,
        paused_by=totals.pauses.reasons,
        stopped_by=status.stopped_by,
        postponed=tuple(session.workers.postponed(now)),
        limited_by=_limited_by(settings, session),
        broker_error=None if status.stopped_by else _broker_error(session),
        partitions=partitions,
        poison=session.guard.facts(now),
        totals=totals.bounded(facts.partition for facts in partitions),
        commits=dict(commits.outcomes),
        commit_durations=commits.durations,
        handler_durations=calls.durations,
        retries=calls.retries,
        stale_results=calls.stale_results,
        record_ages=totals.times.ages,
        delivery_delays=totals.times.delays,
        rebalances=dict(history.rebalances),
        resets=dict(history.resets),
        unreadable=dict(history.unreadable),
        abandoned_handlers=history.abandoned + calls.abandoned,
        replays_avoided=history.replays_avoided,
        duplicates_dropped=history.duplicates_dropped,
        unsynced_age_s=session.hook.behind_s(),
        outbox=session.hook.outbox(),
        metadata_dropped=commits.room.dropped,
        warnings=tuple(filter(None, (commits.room.warning, *_warnings(settings, session, now)))),
        not_ready=()
        if status.stopped_by
        else tuple(dict.fromkeys(_not_ready(session, state, now))),
        health_enabled=settings.health_enabled,
        topics=_topics(settings),
        group_id=settings.group_id,
        protocol=session.clients.group_protocol,
        handlers=handlers,
        dead_letter_topic=None
        if settings.dead_letter_queue is None
        else settings.dead_letter_queue.topic,
    )


def _topics(settings: IncomingSettings) -> tuple[str, ...]:
    """Return what the channel reads: topics, a pattern, or the topics of given partitions."""
    if settings.pattern is not None:
        return (settings.pattern,)
    assigned = (
        one.partition.topic if isinstance(one, AssignedPartition) else one.topic
        for one in settings.assign
    )
    return settings.topics or tuple(dict.fromkeys(assigned))


def _limited_by(settings: IncomingSettings, session: ChannelSession) -> str | None:
    """Return the setting that records wait for while nothing else keeps them; None: none does."""
    if session.after is not None and session.lanes.ready:
        names = session.after.waits_for
        if names:
            return f"channel {' and '.join(names)} (after)"
    if session.lanes.waits_for_limit:
        return f"rate_limit = {settings.rate_limit}"
    if session.slots is not None and session.slots.waits and session.lanes.ready:
        return str(session.slots)
    return None


def _state(status: ChannelStatus, session: ChannelSession, totals: ChannelTotals) -> ChannelState:
    if status.state != "running":
        return status.state
    if totals.pauses.reasons:
        return "paused"
    return "done" if _is_done(session) else "running"


def _is_done(session: ChannelSession) -> bool:
    """Return whether the channel has settled all of its ranges, and nothing waits for a retry."""
    read = [partition for client in session.clients.consumers for partition in client.table]
    return (
        bool(read)
        and all(map(is_done, read))
        and not any(tracker.unsettled for tracker in session.clients.all_trackers())
    )


def _broker_error(session: ChannelSession) -> str | None:
    """Return why the clients cannot use their brokers, each reason once; None: they can.

    The client of delayed retries may have other brokers than the channel.
    """
    errors = [client.connection.broker_error for client in session.clients]
    reasons = dict.fromkeys(error for error in errors if error)
    if not reasons:
        return None
    # If a client has an error, it explains nothing that another one is still connecting.
    telling = [reason for reason in reasons if reason != CONNECTING][:MOST_ERRORS]
    return "; ".join(telling or reasons)


def _warnings(settings: IncomingSettings, session: ChannelSession, now: float) -> Iterator[str]:
    if idle := session.clients.idle_consumers:
        yield ConsumersIdle(channel=settings.name, idle=idle, consumers=settings.consumers).text()
    yield from session.workers.warnings(now)
    for client in session.clients:
        yield from client.connection.stable.warnings(now)
    without_effect = [name for name in SET_BY_THE_BROKER if name in settings.client]
    if without_effect and session.clients.group_protocol == "consumer":
        yield (
            f"no effect of {', '.join(without_effect)}: with the group protocol 'consumer' "
            "the broker decides"
        )


def _failure_strategies(settings: IncomingSettings) -> tuple[str, ...]:
    """Return the labels that nacks are counted by.

    These are the failure strategies, and the ack mode if that is "pre" or "none".
    """
    names = [settings.failure_strategy, *settings.failure_routes.values()]
    if settings.on_poison == "dead-letter-queue":
        names.append(settings.on_poison)
    if settings.ack in ("pre", "none"):
        names.append(settings.ack)
    return tuple(dict.fromkeys(names))


def partition_facts(
    session: ChannelSession, now: float, *, also_left: bool = False
) -> tuple[PartitionFacts, ...]:
    """Return the facts of the partitions that are ours.

    Args:
        also_left: Suspended partitions are among them.
    """
    found: list[PartitionFacts] = []
    for client in session.clients:
        stopped = client.fetcher.stops.now(now)
        for partition in client.table:
            tracker = partition.tracker if also_left else partition.live
            if tracker is not None:
                is_paused = (
                    partition.fetch.is_paused or partition.id in stopped
                ) and not partition.is_read_out
                found.append(_partition(session, partition, tracker, now, is_paused=is_paused))
    return tuple(found)


def _partition(
    session: ChannelSession,
    partition: Partition,
    tracker: OffsetTracker,
    now: float,
    *,
    is_paused: bool,
) -> PartitionFacts:
    oldest = oldest_started(tracker)
    behind = lag_begins(tracker, tracker.committed, commits=session.commits)
    return PartitionFacts(
        partition=partition.id,
        position=tracker.position,
        committed=tracker.committed,
        log_end=partition.log.end,
        lag=None if partition.log.end is None else max(0, partition.log.end - behind),
        in_flight=partition.in_flight,
        queued=partition.queued,
        oldest_unacked_s=None
        if oldest is None
        else max(0.0, session.guard.watch.age_s(oldest[1], now)),
        paused=is_paused,
        metadata_units=partition.commits.metadata.units(tracker),
        done=is_done(partition),
        settled_above=settled_above(tracker),
    )


def _not_ready(session: ChannelSession, state: ChannelState, now: float) -> Iterator[str]:
    """Yield why a channel is not ready, one text a reason; nothing if it is."""
    for client in session.clients:
        # Too many settled records are not committed yet.
        yield from _if_any(client.uncommitted.not_ready(now))
        # The group does not answer, and the session is over.
        yield from _if_any(client.lifeline.not_ready(now))
        # Partitions that a failed record has stopped.
        yield from client.fetcher.stops.failures.reasons
        # The broker, a topic or a leader is away.
        yield from client.connection.reach.not_ready
        if not client.starts.are_done:
            # Where to begin to read is not known everywhere.
            yield from _if_any(client.starts.not_begun)
        # A channel in another state, such as one that has failed, says more about itself.
        if state in ("running", "paused", "done") and client.committer.not_stored is not None:
            yield f"the last commit was not stored: {client.committer.not_stored}"
    yield from _if_any(not_caught_up(client.catch_up for client in session.clients.consumers))
    # The checkpoint store, or the outbox.
    yield from session.hook.not_ready()
    if session.schemas is not None:
        yield from session.schemas.not_ready()
    # Dead letters or retries that cannot be written.
    yield from session.acknowledger.not_ready
    yield from session.workers.not_ready(now)


def _if_any(reason: str | None) -> Iterable[str]:
    return () if reason is None else (reason,)
