"""Waits until everything that a test has sent is settled and committed, and says why it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from reactive_kafka.app import App
from reactive_kafka.channel.channel import Channel
from reactive_kafka.channel.client_roles import group_of_retries
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.errors import BrokerError, CommitStrategyError, HandlerError
from reactive_kafka.failure.headers import delay_of
from reactive_kafka.observe.events import ChannelFailed, Event, FailureEvent
from reactive_kafka.observe.facts import NOT_ASKED, PartitionFacts
from reactive_kafka.records import TopicPartition
from reactive_kafka.testing.cluster import Cluster

_STRATEGIES_THAT_COMMIT = ("throttled", "latest", "checkpoint")
_LONGEST_POLL_INTERVAL_S = 0.1
Positions = Mapping[TopicPartition, int]


class NotSettledError(AssertionError):
    """Records that the test has sent are not settled and committed; the text says which.

    ``__cause__`` is the last exception that a handler has raised for one of them, or the reason why
    their channel has failed.
    """


@dataclass(slots=True)
class Unfinished:
    """What a look at the application found unfinished.

    Attributes:
        lines: One line for each thing that is unfinished. Empty: everything is done.
        cause: The error behind it, if one is known.
        extra_wait_s: How much longer than the timeout it may take, because records wait in retry
            topics.
    """

    lines: list[str] = field(default_factory=list)
    cause: BaseException | None = None
    extra_wait_s: float = 0.0


class LastErrors:
    """An observer that keeps the last error of each channel, and of each partition in it."""

    def __init__(self) -> None:
        # Channel and partition -> offset of the record that failed last, and its error.
        self._of_partitions: dict[tuple[str, TopicPartition], tuple[int, BaseException]] = {}
        self._of_channels: dict[str, BaseException] = {}

    def on(self, event: Event) -> None:
        """Keep the error of a failure."""
        if not isinstance(event, FailureEvent | ChannelFailed) or event.error is None:
            return
        error = event.error
        if isinstance(error, HandlerError) and error.__cause__ is not None:
            # The test's author wants to see the exception that the handler has raised.
            error = error.__cause__
        self._of_channels[event.channel] = error
        if isinstance(event, FailureEvent):
            self._of_partitions[event.channel, event.partition] = event.offset, error

    def of_channel(self, channel: str) -> BaseException | None:
        """Return the last error of a channel."""
        return self._of_channels.get(channel)

    def of_partition(
        self, channel: str, partition: TopicPartition, committed: int
    ) -> BaseException | None:
        """Return the last error of a channel's partition, unless its record is committed by now."""
        offset, error = self._of_partitions.get((channel, partition), (-1, None))
        return error if offset >= committed else None


class SettlementCheck:
    """Compares a running application with its cluster."""

    def __init__(self, app: App, cluster: Cluster, errors: LastErrors) -> None:
        self._app = app
        self._cluster = cluster
        self._errors = errors

    async def wait_until_assigned(self, timeout_s: float) -> None:
        """Wait until every channel with a handler has its partitions, or has failed.

        It also waits for the first answer of each function of ``@app.readiness``.

        Raises:
            NotSettledError: The timeout has passed.
        """
        await _wait_until_finished(
            self._unassigned, timeout_s, poll_interval_s=self._cluster.poll_interval_s
        )

    async def wait_until_settled(self, timeout_s: float, *, retries: bool) -> None:
        """Wait until every record is settled and committed.

        Args:
            timeout_s: How long, without the delays of retry topics.
            retries: Wait for records in retry topics, too.

        Raises:
            NotSettledError: The timeout has passed, or a channel has failed.
        """
        look = partial(self._unsettled, retries=retries)
        await _wait_until_finished(look, timeout_s, poll_interval_s=self._cluster.poll_interval_s)

    def committed(self, settings: IncomingSettings) -> dict[TopicPartition, int]:
        """Return the committed positions of the partitions that a channel reads.

        Raises:
            ChannelClosedError: The positions are in a store, and the application does not run.
        """
        if settings.group_id is None or _has_store(settings):
            return self._committed_of_channel(settings, {})
        return self._committed_of_channel(settings, self._cluster.committed(settings.group_id))

    def _committed_of_channel(
        self, settings: IncomingSettings, committed_by_group: Positions
    ) -> dict[TopicPartition, int]:
        """Return what is committed of a channel's partitions: in its store, else by its group."""
        if _has_store(settings):
            facts = self._app.channel(settings.name).facts()
            return {
                partition.partition: partition.committed
                for partition in facts.partitions
                if partition.committed is not None
            }
        includes = settings.subscription.includes
        return {
            partition: offset
            for partition, offset in committed_by_group.items()
            if includes(partition)
        }

    def _running(self) -> list[Channel]:
        channels = map(self._app.channel, self._app.settings.incoming)
        return [channel for channel in channels if channel.is_started and not channel.is_stopped]

    async def _unassigned(self) -> Unfinished:
        unfinished = Unfinished()
        for channel in self._running():
            if channel.is_ready:
                continue
            facts = channel.facts()
            if facts.state != "failed":
                reason = facts.broker_error or facts.state
                unfinished.lines.append(
                    f"channel {channel.name!r} has no partitions yet ({reason})"
                )
        for readiness in self._app.facts().readiness:
            if readiness.reason == NOT_ASKED:
                unfinished.lines.append(f"readiness {readiness.name!r}: {readiness.reason}")
        return unfinished

    async def _unsettled(self, *, retries: bool) -> Unfinished:
        await self._commit_all()
        unfinished = Unfinished()
        ends = await self._cluster.ends()
        for channel in self._running():
            await self._add_records(unfinished, channel, ends)
            if retries:
                await self._add_retries(unfinished, channel, ends)
        for outgoing in self._app.facts().outgoing:
            if outgoing.direction == "memory" and outgoing.in_flight:
                unfinished.lines.append(
                    f"memory channel {outgoing.channel!r}: {outgoing.in_flight} in flight"
                )
        return unfinished

    async def _commit_all(self) -> None:
        """Commit now what is settled, so that a test does not wait for the next commit."""
        for channel in self._running():
            # The test itself may have made the broker fail. The next look commits again.
            with suppress(BrokerError):
                try:
                    await channel.commit()
                except CommitStrategyError as error:
                    raise NotSettledError(f"channel {channel.name!r} fails: {error}") from error

    async def _add_records(self, unfinished: Unfinished, channel: Channel, ends: Positions) -> None:
        """Add the partitions of a channel that are not settled, or not committed, to their ends.

        Raises:
            NotSettledError: The channel has failed or has lost outputs: waiting is in vain.
        """
        facts = channel.facts()
        if facts.state == "failed":
            cause = self._errors.of_channel(channel.name)
            raise NotSettledError(f"channel {channel.name!r} has failed: {facts.reason}") from cause
        lost = sum(totals.outputs_lost for totals in facts.totals.values())
        if lost:
            cause = self._errors.of_channel(channel.name)
            what = f"the output of {lost} settled record{'' if lost == 1 else 's'} is lost"
            raise NotSettledError(f"channel {channel.name!r}: {what}") from cause
        settings = self._app.settings.incoming[channel.name]
        committed_by_group: Positions = {}
        if settings.group_id is not None:
            committed_by_group = await self._cluster.positions(settings.group_id)
        committed = self._committed_of_channel(settings, committed_by_group)
        rows = None if facts.outbox is None else facts.outbox.rows
        if self._has_outbox(channel.name) and rows != 0:
            count = "an unknown number of" if rows is None else rows
            unfinished.lines.append(f"channel {channel.name!r}: {count} events wait in the outbox")
        assigned = {partition.partition: partition for partition in facts.partitions}
        commits = settings.commit_strategy in _STRATEGIES_THAT_COMMIT
        for partition in filter(settings.subscription.includes, ends):
            # The position of a partition with ranges may stay behind its end for good: the ranges
            # may leave records out, or begin behind the end.
            commits_to_end = commits and partition not in settings.ranges
            lag = _lag(
                assigned.get(partition),
                ends[partition],
                committed.get(partition),
                commits=commits_to_end,
            )
            if lag is not None:
                unfinished.lines.append(
                    f"channel {channel.name!r}: {partition} ends at {ends[partition]}, {lag}"
                )
                unfinished.cause = unfinished.cause or self._errors.of_partition(
                    channel.name, partition, committed.get(partition, 0)
                )

    def _has_outbox(self, channel: str) -> bool:
        outgoing = self._app.settings.outgoing
        plan = self._app.plan.incoming.get(channel)
        names = () if plan is None else plan.outgoing
        return any(name in outgoing and outgoing[name].outbox for name in names)

    async def _add_retries(self, unfinished: Unfinished, channel: Channel, ends: Positions) -> None:
        """Add the retry topics of a channel that are not settled and committed to their ends."""
        settings = self._app.settings.incoming[channel.name]
        retries = settings.delayed_retry
        if retries is None:
            return
        with_records = [
            partition
            for partition in ends
            if partition.topic in retries.topics and ends[partition] > 0
        ]
        if not with_records:
            return
        assigned = {partition.partition: partition for partition in channel.facts().partitions}
        committed = await self._cluster.positions(group_of_retries(settings))
        is_finished = True
        for partition in with_records:
            end = ends[partition]
            lag = _lag(assigned.get(partition), end, committed.get(partition), commits=True)
            if lag is not None:
                is_finished = False
                unfinished.lines.append(
                    f"delayed retries of channel {channel.name!r}: {partition} ends at {end}, {lag}"
                )
        if not is_finished:
            unfinished.cause = unfinished.cause or self._errors.of_channel(channel.name)
            unfinished.extra_wait_s += _longest_wait_s(retries)


def _lag(
    assigned: PartitionFacts | None, end: int, committed: int | None, *, commits: bool
) -> str | None:
    """Say how far a partition is, or return None if it is settled and committed to its end."""
    if assigned is not None:
        if assigned.done:
            # All of its ranges are handled.
            return None
        if assigned.in_flight or assigned.queued or assigned.position < end:
            return (
                f"read up to {assigned.position}, {assigned.in_flight} in flight,"
                f" {assigned.queued} queued"
            )
    if commits and (committed or 0) < end:
        return f"committed is {committed}"
    return None


def _longest_wait_s(retries: DelayedRetrySettings) -> float:
    """Return how long a record may wait in retry topics, all of its retries together."""
    last = len(retries.topics) - 1
    delays_ms = [
        # Retries that are more than the topics use the last topic again.
        delay_of(retries.topics[min(number, last)]) or 0
        for number in range(retries.max_retries)
    ]
    return min(sum(delays_ms) / 1000, retries.timeout_s)


def _has_store(settings: IncomingSettings) -> bool:
    return settings.commit_strategy == "checkpoint"


async def _wait_until_finished(
    look: Callable[[], Awaitable[Unfinished]], timeout_s: float, *, poll_interval_s: float
) -> None:
    """Look again until nothing is unfinished.

    Raises:
        NotSettledError: Something is unfinished after the timeout.
    """
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    while True:
        unfinished = await look()
        if not unfinished.lines:
            return
        waited_s = loop.time() - started_at
        longest_s = timeout_s + unfinished.extra_wait_s
        if waited_s >= longest_s:
            text = f"after {longest_s:g} s: " + "; ".join(unfinished.lines)
            raise NotSettledError(text) from unfinished.cause
        # Look less often the longer it takes: at the first interval, a minute of virtual time would
        # be ten thousand looks.
        await asyncio.sleep(max(poll_interval_s, min(waited_s / 10, _LONGEST_POLL_INTERVAL_S)))
