"""Skips one record of a channel by hand: a record that waits, that a handler has, or will come."""

from __future__ import annotations

from typing import Literal

from reactive_kafka.channel.blueprint import ByWorkers
from reactive_kafka.channel.channel_session import ChannelSession
from reactive_kafka.channel.clients import ChannelConsumer
from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.errors import NotOwnerError, SkipRefusedError
from reactive_kafka.fetching.record_skips import MOST_SKIPS
from reactive_kafka.records import TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker

SkipResult = Literal["skipped", "waiting", "settled"]


def skip_record(channel: ChannelLifecycle, partition: TopicPartition, offset: int) -> SkipResult:
    """Skip one record, as ``Channel.skip`` says."""
    settings = channel.settings
    retry_topics = () if settings.delayed_retry is None else settings.delayed_retry.topics
    if not settings.subscription.reads(partition.topic) and partition.topic not in retry_topics:
        raise SkipRefusedError(
            f"channel {channel.name!r} does not read the topic {partition.topic}"
        )
    consumption = channel.blueprint.consumption
    if isinstance(consumption, ByWorkers) and consumption.keeps_plans:
        raise SkipRefusedError(
            f"channel {channel.name!r} runs batches on Spark, whose records cannot be skipped one "
            "by one: call batch.reject() in its function"
        )
    session = channel.session
    client = next((one for one in session.clients if partition in one.table.ours), None)
    if client is None:
        if channel.status.state == "running":
            raise NotOwnerError(f"channel {channel.name!r}: {partition} is not ours")
        # It has failed, is stopped, or waits for its assignment.
        return _skip_later(channel, partition, offset)
    tracker = client.table.trackers.get(partition)
    if tracker is None or offset >= tracker.position:
        return _skip_later(channel, partition, offset)
    index = tracker.index_of(offset)
    if index is None or tracker.is_settled(index):
        # Before the window, or in a gap of the log: no such record will come any more.
        return "settled"
    if not tracker.is_open(index):
        raise SkipRefusedError(
            f"{partition} offset {offset} was nacked, and its failure strategy is under way"
        )
    _skip_now(session, client, tracker, index)
    channel.skips.skipped(partition, offset)
    return "skipped"


def _skip_later(channel: ChannelLifecycle, partition: TopicPartition, offset: int) -> SkipResult:
    if not channel.skips.add(partition, offset):
        raise SkipRefusedError(
            f"{MOST_SKIPS} records of channel {channel.name!r} wait to be skipped, and no more may"
        )
    return "waiting"


def _skip_now(
    session: ChannelSession, client: ChannelConsumer, tracker: OffsetTracker, index: int
) -> None:
    """Settle a record that waits in its lane, or that a handler or the application has."""
    owned = client.table.get(tracker.partition)
    lane = None if owned is None else owned.lane
    if lane is None or lane.remove(index) is None:
        _take_from_handler(session, tracker, index)
    session.acknowledger.skips.settle(tracker, index, "operator")
    session.workers.work_is_there()
    session.arrival.set()
    client.progress()


def _take_from_handler(session: ChannelSession, tracker: OffsetTracker, index: int) -> None:
    """Cancel the handler of a record, whose open transaction stores nothing.

    A batch is not cut off for one of its records.

    Raises:
        SkipRefusedError: Its transaction is being stored.
    """
    hook = session.acknowledger.hook
    if session.workers.takes_batches:
        hook.check(tracker, index)
        return
    for delivery in session.workers.deliveries_of(tracker, index):
        if hook.has_stored(delivery) or hook.may_have_stored(delivery):
            raise SkipRefusedError(
                f"{tracker.partition} offset {delivery.offset}: its transaction is being stored, "
                "and then it is settled"
            )
        hook.refuse(delivery)
    session.workers.interrupt(tracker, index)
