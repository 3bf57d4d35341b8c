"""Finds one record in a channel: what its partition, its window and its handlers know of it."""

from __future__ import annotations

from typing import Any

from reactive_kafka.channel.channel_session import ChannelSession
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.observe.record_whereabouts import RecordFacts, Stage
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import NOT_STARTED, OffsetTracker
from reactive_kafka.verdicts.message import Message


def look_up_record(
    channel: ChannelLifecycle, partition: TopicPartition, offset: int, now: float
) -> RecordFacts | None:
    """Return what a channel knows of a record; None: it does not read the topic.

    Args:
        now: The time of the monotonic clock.
    """
    settings = channel.settings
    retry_topics = () if settings.delayed_retry is None else settings.delayed_retry.topics
    if not settings.subscription.reads(partition.topic) and partition.topic not in retry_topics:
        return None
    facts = channel.facts()
    session = channel.session
    client = next((one for one in session.clients if partition in one.table.ours), None)
    # A channel that has failed has no client, and its facts have its last partitions.
    last = next((one for one in facts.partitions if one.partition == partition), None)
    letters = settings.dead_letter_queue
    found: dict[str, Any] = {"position": None}
    if last is not None:
        # After a restart a channel that has failed reads what it has not committed again.
        position: int | None = last.position
        if facts.state == "failed":
            position = last.committed if session.commits else None
        found = {"position": position, "committed": last.committed, "log_end": last.log_end}
    if client is not None and (tracker := client.table.trackers.get(partition)) is not None:
        found |= _in_window(session, tracker, offset, now)
    # A record that was skipped is skipped again if it comes again.
    has_come = found["position"] is not None and offset < found["position"]
    return RecordFacts(
        channel=channel.name,
        state=facts.state,
        partition=partition,
        offset=offset,
        group_id=settings.group_id,
        handlers=channel.blueprint.handlers,
        is_assigned=client is not None or last is not None,
        commits=session.commits,
        is_skipped_later=not has_come and channel.skips.has(partition, offset),
        dead_letter_topic=None if letters is None else letters.topic,
        **found,
    )


def _in_window(
    session: ChannelSession, tracker: OffsetTracker, offset: int, now: float
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "position": tracker.position,
        "began": tracker.start,
        "committed": tracker.committed,
        "first_unsettled": tracker.safe,
    }
    index = tracker.index_of(offset)
    if index is None:
        is_in_window = found["first_unsettled"] <= offset < tracker.position
        return {**found, "stage": "absent" if is_in_window else None}
    stage = stage_of(tracker, index)
    found["stage"] = stage
    if stage == "handling":
        since = tracker.started[index - tracker.base]
        found["age_s"] = session.guard.watch.age_s(since, now)
        messages = session.workers.deliveries_of(tracker, index)
        attempts = [message.attempt for message in messages if isinstance(message, Message)]
        found["attempt"] = max(attempts, default=None)
    return found


def stage_of(tracker: OffsetTracker, index: int) -> Stage:
    """Return where a record in the window is on its way, by its arrival number."""
    if tracker.is_settled(index):
        return "settled"
    if not tracker.is_open(index):
        return "failing"
    tracker.catch_up()
    return "queued" if tracker.started[index - tracker.base] == NOT_STARTED else "handling"
