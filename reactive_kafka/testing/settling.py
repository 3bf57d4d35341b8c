"""Whether what a test has sent is settled and committed, and why it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from reactive_kafka.app import App
from reactive_kafka.channel.channel import Channel
from reactive_kafka.channel.client_roles import group_of_retries
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.errors import BrokerError, CommitStrategyError, HandlerError
from reactive_kafka.failure.headers import delay_of
from reactive_kafka.observe.events import ChannelFailed, Event, FailureEvent
from reactive_kafka.observe.facts import PartitionFacts
from reactive_kafka.records import TopicPartition
from reactive_kafka.testing.cluster import Cluster

_COMMITTING = ("throttled", "latest", "checkpoint")
_SELDOM_S = 0.1
Positions = Mapping[TopicPartition, int]


class NotSettledError(AssertionError):
    """What was sent is not settled and committed; the text says which records, and why as far as
    that is known.

    ``__cause__`` is what a handler has raised for one of them last, or why their channel has
    failed.
    """


@dataclass(slots=True)
class Missing:
    """What is missing, in lines; why, as far as that is known; and how long all of that may be
    meant to wait.
    """

    lines: list[str] = field(default_factory=list)
    cause: BaseException | None = None
    later_s: float = 0.0


class Causes:
    """An observer that keeps why records and channels have failed last."""

    def __init__(self) -> None:
        # The last failure in each.
        self._records: dict[TopicPartition, tuple[int, BaseException]] = {}
        self._channels: dict[str, BaseException] = {}

    def on(self, event: Event) -> None:
        """Keep the error of a failure."""
        if not isinstance(event, FailureEvent | ChannelFailed) or event.error is None:
            return
        error = event.error
        if isinstance(error, HandlerError) and error.__cause__ is not None:
            # The user's own exception.
            error = error.__cause__
        self._channels[event.channel] = error
        if isinstance(event, FailureEvent):
            self._records[event.partition] = event.offset, error

    def of_channel(self, channel: str) -> BaseException | None:
        """What has failed last there."""
        return self._channels.get(channel)

    def of_partition(self, partition: TopicPartition, committed: int) -> BaseException | None:
        """The same of a record that is not committed."""
        offset, error = self._records.get(partition, (-1, None))
        return error if offset >= committed else None


class Settling:
    """Looks at a running application and at its cluster."""

    def __init__(self, app: App, cluster: Cluster, causes: Causes) -> None:
        self._app = app
        self._cluster = cluster
        self._causes = causes

    async def joined(self, timeout_s: float) -> None:
        """Wait until every channel with a handler has its partitions, or has failed. Raises
        NotSettledError.
        """

        async def missing() -> Missing:
            waiting = (channel for channel in self._running() if not channel.is_ready)
            facts = [
                (channel.name, facts)
                for channel in waiting
                if (facts := channel.facts()).state != "failed"
            ]
            return Missing(
                [
                    f"channel {name!r} has no partitions yet ({of.broker_error or of.state})"
                    for name, of in facts
                ]
            )

        await _until(missing, timeout_s, self._cluster.look_s)

    async def settled(self, timeout_s: float, *, retries: bool) -> None:
        """Wait until everything is settled and committed, *retries* included. Raises
        NotSettledError.
        """
        await _until(partial(self._missing, retries=retries), timeout_s, self._cluster.look_s)

    def committed(self, channel: str) -> dict[TopicPartition, int]:
        """What is committed of what a channel reads; KeyError: there is no such channel."""
        settings = self._app.settings.incoming[channel]
        of_group = not _has_store(settings) and settings.group_id is not None
        return self._of(
            settings, self._cluster.committed(settings.group_id or "") if of_group else {}
        )

    def _of(self, settings: IncomingSettings, of_group: Positions) -> dict[TopicPartition, int]:
        if _has_store(settings):
            facts = self._app.channel(settings.name).facts()
            return {
                one.partition: one.committed
                for one in facts.partitions
                if one.committed is not None
            }
        includes = settings.subscription.includes
        return {partition: offset for partition, offset in of_group.items() if includes(partition)}

    def _running(self) -> list[Channel]:
        channels = map(self._app.channel, self._app.settings.incoming)
        return [channel for channel in channels if channel.is_started and not channel.is_stopped]

    async def _missing(self, *, retries: bool) -> Missing:
        found = Missing()
        for channel in self._running():
            # A test's own fault: the next look tries again.
            with suppress(BrokerError):
                try:
                    await channel.commit()
                except CommitStrategyError as error:
                    raise NotSettledError(f"channel {channel.name!r} fails: {error}") from error
        ends = await self._cluster.ends()
        for channel in self._running():
            await self._add(found, channel, ends)
            if retries:
                await self._add_retries(found, channel, ends)
        memory = [
            one for one in self._app.facts().outgoing if one.direction == "memory" and one.in_flight
        ]
        found.lines += [
            f"memory channel {one.channel!r}: {one.in_flight} in flight" for one in memory
        ]
        return found

    async def _add(self, found: Missing, channel: Channel, ends: Positions) -> None:
        """Add what of one channel is missing."""
        facts = channel.facts()
        if facts.state == "failed":
            cause = self._causes.of_channel(channel.name)
            raise NotSettledError(f"channel {channel.name!r} has failed: {facts.reason}") from cause
        lost = sum(one.outputs_lost for one in facts.totals.values())
        if lost:
            cause = self._causes.of_channel(channel.name)
            what = f"the output of {lost} settled record{'' if lost == 1 else 's'} is lost"
            raise NotSettledError(f"channel {channel.name!r}: {what}") from cause
        settings = self._app.settings.incoming[channel.name]
        here = {known.partition: known for known in facts.partitions}
        group = settings.group_id
        committed = self._of(
            settings, {} if group is None else await self._cluster.positions(group)
        )
        commits = settings.commit_strategy in _COMMITTING
        ranges = settings.ranges
        for partition in filter(settings.subscription.includes, ends):
            # A hole, or a start behind the end, keeps positions back.
            reaches_end = commits and partition not in ranges
            at = _behind(
                here.get(partition), ends[partition], committed.get(partition), commits=reaches_end
            )
            if at is not None:
                found.lines.append(
                    f"channel {channel.name!r}: {partition} ends at {ends[partition]}, {at}"
                )
                found.cause = found.cause or self._causes.of_partition(
                    partition, committed.get(partition, 0)
                )

    async def _add_retries(self, found: Missing, channel: Channel, ends: Positions) -> None:
        """Add what is missing of its delayed retries."""
        settings = self._app.settings.incoming[channel.name]
        retries = settings.delayed_retry
        topics = () if retries is None else retries.topics
        there = [
            partition for partition in ends if partition.topic in topics and ends[partition] > 0
        ]
        if retries is None or not there:
            return
        here = {known.partition: known for known in channel.facts().partitions}
        committed = await self._cluster.positions(group_of_retries(settings))
        behind = {
            one: _behind(here.get(one), ends[one], committed.get(one), commits=True)
            for one in there
        }
        lines = [f"{one} ends at {ends[one]}, {at}" for one, at in behind.items() if at is not None]
        if lines:
            found.lines += [
                f"delayed retries of channel {channel.name!r}: {line}" for line in lines
            ]
            found.cause = found.cause or self._causes.of_channel(channel.name)
            found.later_s += _longest(retries)


def _behind(
    known: PartitionFacts | None, end: int, committed: int | None, *, commits: bool
) -> str | None:
    """Where a partition stands that is not settled up to its end, or not committed; None: it is, or
    its ranges are.
    """
    if known is not None and known.done:
        return None
    if known is not None and (known.in_flight or known.queued or known.position < end):
        return f"read up to {known.position}, {known.in_flight} in flight, {known.queued} queued"
    return f"committed is {committed}" if commits and (committed or 0) < end else None


def _longest(retries: DelayedRetrySettings) -> float:
    """How long a record may wait in retry topics, all of its retries together."""
    last = len(retries.topics) - 1
    delays = [
        delay_of(retries.topics[min(number, last)]) or 0 for number in range(retries.max_retries)
    ]
    return min(sum(delays) / 1000, retries.timeout_s)


def _has_store(settings: IncomingSettings) -> bool:
    return settings.commit_strategy == "checkpoint"


async def _until(look: Callable[[], Awaitable[Missing]], timeout_s: float, every_s: float) -> None:
    """Look again and again until nothing is missing; NotSettledError: something still is after that
    time.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    while (missing := await look()).lines:
        waited_s = loop.time() - began
        if waited_s >= timeout_s + missing.later_s:
            waited = f"after {timeout_s + missing.later_s:g} s: "
            raise NotSettledError(waited + "; ".join(missing.lines)) from missing.cause
        # Less often for what takes long: a minute of virtual time would be ten thousand looks.
        await asyncio.sleep(max(every_s, min(waited_s / 10, _SELDOM_S)))
