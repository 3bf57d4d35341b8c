"""What every metric of the catalogue says at the moment: samples, made from facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reactive_kafka.observe import catalogue as names
from reactive_kafka.observe.catalogue import Metric
from reactive_kafka.observe.facts import (
    AppFacts,
    ChannelFacts,
    DurationHistogram,
    OutboxFacts,
    PartitionTotals,
    SparkFacts,
)
from reactive_kafka.observe.health import health
from reactive_kafka.records import TopicPartition

SampleValue = float | DurationHistogram
Sample = tuple[Metric, SampleValue, tuple[str, ...]]
"""A metric, its value, and the values of its labels."""


def samples_of(facts: AppFacts) -> Iterator[Sample]:
    """Return every sample of an application."""
    yield names.LOOP_LAG, facts.loop_lag_s, ()
    yield from _up(facts)
    for channel in facts.channels:
        yield from channel_samples(channel)
    for outgoing in facts.outgoing:
        yield names.SEND_DURATION, outgoing.send_durations, (outgoing.channel,)
        yield from _by(names.RECORDS_SENT, outgoing.sent, (outgoing.channel,), names.SEND_OUTCOMES)
    for spark in facts.spark:
        yield from _spark(spark)
    for action, outcomes in facts.actions.items():
        yield from _by(names.ACTIONS, outcomes, (action,), names.ACTION_OUTCOMES)


def channel_samples(facts: ChannelFacts) -> Iterator[Sample]:
    """Return the samples of an incoming channel."""
    yield from _channel(facts)
    yield from _partitions(facts)
    yield from _totals(facts)


def _up(facts: AppFacts) -> Iterator[Sample]:
    """Return one sample for each channel name.

    If an incoming and an outgoing channel have the same name, both must be up.
    """
    channels = {channel.channel for channel in facts.channels} | {
        channel.channel for channel in facts.outgoing
    }
    down = {check.channel for check in health(facts).overall.checks if check.status == "DOWN"}
    for channel in sorted(channels):
        yield names.CHANNEL_UP, float(channel not in down), (channel,)


def _channel(facts: ChannelFacts) -> Iterator[Sample]:
    channel = (facts.channel,)
    yield names.COMMIT_DURATION, facts.commit_durations, channel
    yield names.HANDLER_DURATION, facts.handler_durations, channel
    yield names.DELIVERY_DELAY, facts.delivery_delays, channel
    yield names.RECORD_AGE, facts.record_ages, channel
    yield names.STALE_RESULTS, facts.stale_results, channel
    yield names.RETRIES, facts.retries, channel
    yield names.OUTPUTS_LOST, sum(totals.outputs_lost for totals in facts.totals.values()), channel
    yield names.PAUSED_PARTITIONS, sum(partition.paused for partition in facts.partitions), channel
    yield names.ABANDONED_HANDLERS, facts.abandoned_handlers, channel
    yield names.DUPLICATES_DROPPED, facts.duplicates_dropped, channel
    yield names.REPLAYS_AVOIDED, facts.replays_avoided, channel
    yield names.METADATA_DROPPED, facts.metadata_dropped, channel
    yield names.UNSYNCED_AGE, facts.unsynced_age_s or 0.0, channel
    outbox = facts.outbox or OutboxFacts(rows=0)
    yield names.OUTBOX_ROWS, outbox.rows or 0, channel
    yield names.OUTBOX_OLDEST_AGE, outbox.oldest_s or 0.0, channel
    yield names.OUTBOX_RELAYED, outbox.relayed, channel
    yield from _by(names.COMMITS, facts.commits, channel, names.COMMIT_OUTCOMES)
    yield from _by(names.REBALANCES, facts.rebalances, channel, names.REBALANCE_KINDS)
    yield from _by(names.OFFSET_RESETS, facts.resets, channel, names.RESET_TARGETS)
    yield from _by(names.RECORDS_SKIPPED, _skipped(facts), channel, names.SKIP_REASONS)
    yield from _by(names.UNREADABLE_OFFSETS, facts.unreadable, channel, names.UNREADABLE_POLICIES)


def _skipped(facts: ChannelFacts) -> Mapping[str, int]:
    sums = PartitionTotals()
    for totals in facts.totals.values():
        sums.add(totals)
    return sums.skipped


def _partitions(facts: ChannelFacts) -> Iterator[Sample]:
    """Return the gauges of the assigned partitions; their series end with the assignment."""
    for partition in facts.partitions:
        labels = _labels(facts.channel, partition.partition)
        yield names.RECORDS_IN_FLIGHT, partition.in_flight, labels
        yield names.RECORDS_QUEUED, partition.queued, labels
        yield names.OLDEST_UNACKED_AGE, partition.oldest_unacked_s or 0.0, labels
        yield names.POSITION, partition.position, labels
        yield names.OFFSET_METADATA_UNITS, partition.metadata_units, labels
        if partition.committed is not None:
            yield names.COMMITTED_OFFSET, partition.committed, labels
        if partition.lag is not None:
            yield names.LAG, partition.lag, labels


def _totals(facts: ChannelFacts) -> Iterator[Sample]:
    """Return the counters of every partition that this process ever had.

    They outlive the assignment, because a counter must not decrease. They start at 0 with the
    assignment, so that a first nack between two scrapes counts as an increase.
    """
    assigned = {partition.partition: PartitionTotals() for partition in facts.partitions}
    for partition, totals in (assigned | dict(facts.totals)).items():
        labels = _labels(facts.channel, partition)
        yield names.RECORDS_RECEIVED, totals.received, labels
        yield names.RECORDS_ACKED, totals.acked, labels
        yield names.DEAD_LETTERS, totals.dead_lettered, labels
        yield names.DELAYED_RETRIES, totals.delayed, labels
        yield names.POISON_RECORDS, totals.poison, labels
        yield from _by(names.RECORDS_NACKED, totals.nacked, labels, facts.failure_strategies)


def _spark(facts: SparkFacts) -> Iterator[Sample]:
    channel = (facts.channel,)
    yield from _by(names.SPARK_JOBS, facts.jobs, channel, names.SPARK_OUTCOMES)
    yield names.SPARK_JOB_DURATION, facts.job_durations, channel
    yield names.SPARK_BATCH_RECORDS, facts.batch_records, channel
    yield from _by(names.SPARK_TASKS, facts.tasks, channel, names.SPARK_TASK_STATES)
    yield names.SPARK_RUNNING, len(facts.running), channel
    yield names.SPARK_REJECTED, facts.rejected, channel
    yield names.SPARK_BISECTIONS, facts.bisection_jobs, channel
    yield names.SPARK_READY, float(facts.ready), channel


def _by(
    metric: Metric, counts: Mapping[str, int], labels: tuple[str, ...], expected: tuple[str, ...]
) -> Iterator[Sample]:
    """Return one sample for each key. Expected keys start at 0, or a rate would miss the first."""
    for key in dict.fromkeys((*expected, *counts)):
        yield metric, counts.get(key, 0), (*labels, key)


def _labels(channel: str, partition: TopicPartition) -> tuple[str, ...]:
    return (channel, partition.topic, str(partition.partition))
