"""The Kafka clients of one session of a channel, asked and told together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from reactive_kafka.channel.consumer import ChannelConsumer
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.tasks import each


class ChannelClients(list[ChannelConsumer]):
    """The consumers of a session, and the client of delayed retries if there is one, which is the last.

    It is made before them: what they need, and needs them, gets this.
    """

    @property
    def consumers(self) -> list[ChannelConsumer]:
        """The clients without that of delayed retries."""
        return [client for client in self if not client.is_for_retries]

    @property
    def are_joined(self) -> bool:
        """Whether each consumer has an assignment now."""
        return all(client.signals.is_joined for client in self.consumers)

    @property
    def have_joined(self) -> bool:
        """Whether each consumer has had an assignment; an empty one counts."""
        return all(client.assignment.has_joined for client in self.consumers)

    @property
    def is_positioned(self) -> bool:
        """Whether every client has its assignment, and reading has begun in all of it."""
        return all(client.signals.is_joined and client.starts.are_done for client in self)

    @property
    def idle_consumers(self) -> int | None:
        """How many consumers have no partition while others have; None: not known before all are of one generation."""
        having = [bool(client.table.ours) for client in self.consumers]
        if not self.are_joined or len({client.table.generation for client in self.consumers}) != 1:
            return None
        return having.count(False) if any(having) else 0

    def trackers(self) -> list[OffsetTracker]:
        """The trackers of the partitions that are ours."""
        return [tracker for client in self for tracker in client.table.trackers.values()]

    def all_trackers(self) -> list[OffsetTracker]:
        """Also the trackers of partitions that are suspended."""
        return [tracker for client in self for tracker in client.table.all_trackers()]

    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return sum(client.owned.in_flight() for client in self)

    def made_progress(self) -> None:
        """There may be room for new records, or a drain may be over."""
        for client in self:
            client.progress()

    def take_nothing_new(self) -> None:
        """Let no handler be called from here on."""
        for client in self:
            client.assignment.take_nothing_new(for_good=True)

    async def drain(self, deadline: float, *, to_the_end: bool = False) -> None:
        """Take nothing new, and wait for the handlers that run, until *deadline* (monotonic)."""
        await each(*(client.assignment.drain(deadline, to_the_end=to_the_end) for client in self))

    async def release(self, deadline: float) -> None:
        """Run the hooks, wait for what is still unsettled until *deadline*, and commit."""
        await each(*(client.assignment.release(deadline, during="stop") for client in self))

    async def close(self) -> None:
        """Leave the groups, and refuse every verdict that comes later."""
        await each(*(client.close() for client in self))

    def request_commit(self, tracker: OffsetTracker) -> int:
        """Have the client that reads with a tracker commit; the position that it would commit."""
        for client in self:
            if client.table.has(tracker):
                client.committer.request()
            elif client.table.of(tracker) is None:
                continue
            return client.engine.reached(tracker)
        return tracker.committable

    async def store_plans(self, trackers: Iterable[OffsetTracker]) -> bool:
        """Commit until the groups have the plans of these trackers; False as soon as one of them is not ours."""
        every = tuple(trackers)
        shares = [(one, [tracker for tracker in every if one.table.has(tracker)]) for one in self]
        if sum(len(share) for _, share in shares) < len(every):
            return False
        are_stored, tasks = True, list[asyncio.Task[None]]()
        try:
            async with asyncio.TaskGroup() as group:
                tasks += [group.create_task(_stored(client, share)) for client, share in shares if share]
        except* _NotOursError:
            are_stored = False
        for task in tasks if are_stored else ():
            task.result()  # raises where one was cancelled: for a group that is no failure, and nothing was stored
        return are_stored


class _NotOursError(Exception):
    """Plans cannot be stored any more."""


async def _stored(client: ChannelConsumer, trackers: Collection[OffsetTracker]) -> None:
    if not await client.committer.store_plans(trackers):
        raise _NotOursError
