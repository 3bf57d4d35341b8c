"""Fetches from all nodes that have partitions of a consumer, each with one fetch at a time."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future, Task
from collections.abc import Callable
from functools import partial
from math import inf

from reactive_kafka.broker.client_metrics import Latencies
from reactive_kafka.broker.consumer.fetching.fetch_answers import RETRY_S, FetchAnswers
from reactive_kafka.broker.consumer.fetching.fetch_parts import NodeConnections, RecordFormat
from reactive_kafka.broker.consumer.fetching.fetch_plan import (
    FetchPlan,
    has_to_wait,
    plan_fetches,
)
from reactive_kafka.broker.consumer.fetching.fetch_session import SESSION_CODES
from reactive_kafka.broker.consumer.fetching.fetch_settings import FetchSettings
from reactive_kafka.broker.consumer.fetching.idle_fetch import IdleFetch, ReadingVersion
from reactive_kafka.broker.consumer.fetching.metadata_pace import MetadataPace
from reactive_kafka.broker.consumer.fetching.next_fetches import NextFetches
from reactive_kafka.broker.consumer.fetching.node_fetch import NodeFetch
from reactive_kafka.broker.consumer.fetching.prefetch import nodes_to_hurry
from reactive_kafka.broker.consumer.fetching.read_partitions import ReadPartitions
from reactive_kafka.errors import BrokerError, TransientBrokerError
from reactive_kafka.records import TopicPartition

ANSWERED_S = 0.5
"""A node that has answered a fetch is taken to be there for so long, plus the wait of a fetch."""
METADATA_S = 15.0
"""How old the metadata may become while answers to fetches show that brokers are there."""

logger = logging.getLogger("reactive_kafka.fetches")


class NodeFetcher:
    """Fetches what its partitions need next, until it is closed.

    Args:
        reads: The partitions.
        connections: To the nodes.
        record_format: Reads what comes.
        settings: Of the consumer.
        came: Called when there are records or errors for a poll.
        latencies: Gets how long each fetch took, also each repeated one.
    """

    def __init__(
        self,
        reads: ReadPartitions,
        connections: NodeConnections,
        record_format: RecordFormat,
        settings: FetchSettings,
        came: Callable[[], None],
        latencies: Latencies,
    ) -> None:
        self.answers = FetchAnswers(reads, settings, record_format, connections.has_node)
        self.settings = settings
        self._reads = reads
        self._connections = connections
        self._came = came
        self._latencies = latencies
        # Node -> when its last fetch was sent.
        self._sent_at: dict[int, float] = {}
        self._loop = asyncio.get_running_loop()
        self._metadata = MetadataPace(self._loop.time())
        self._next = NextFetches(settings)
        # Node -> the task of the fetch that is on its way.
        self._in_flight: dict[int, Task[None]] = {}
        # The next fetch of these nodes does not wait for records.
        self._hurried: set[int] = set()
        # Node -> when it answered a fetch last.
        self._answered: dict[int, float] = {}
        # Node -> the idle fetch that is on its way.
        self._idle: dict[int, IdleFetch] = {}
        # What a fetch has raised that it must not raise.
        self._broken: BaseException | None = None
        self._change: Future[None] = self._loop.create_future()
        self._task = asyncio.create_task(self._run(), name="fetch")
        self._task.add_done_callback(lambda task: came())

    def raise_errors(self) -> None:
        """Raise TransientBrokerError if the fetcher has stopped working."""
        if self._task.done():
            cause = None if self._task.cancelled() else self._task.exception()
            raise TransientBrokerError(f"the client has stopped working: {cause!r}") from cause

    def changed(self) -> None:
        """Look for something to fetch: a partition has changed."""
        if not self._change.done():
            self._change.set_result(None)

    def taken(self, partition: TopicPartition) -> None:
        """Note that all fetched records of a partition are taken, or dropped."""
        if not has_to_wait(self._reads, partition, self._in_flight, self._loop.time()):
            self.changed()

    def metadata_came(self) -> None:
        """Note that the metadata of the cluster is new."""
        self._metadata.came(self._loop.time())
        self._reads.find_leaders(self._connections.has_node)

    def hurry(self) -> None:
        """Fetch the partitions that have no records, without waiting for the held ones."""
        nodes = nodes_to_hurry(self._reads.held.values(), self._in_flight, self._loop.time())
        self._hurried |= nodes
        self.answers.has_more = not nodes
        if nodes:
            self.changed()

    def was_answered(self, node: int) -> bool:
        """True if the node has answered a fetch recently."""
        age_s = self._loop.time() - self._answered.get(node, -inf)
        return age_s <= self.settings.fetch_max_wait_ms / 1000 + ANSWERED_S

    def all_idle_since(self) -> float:
        """Return since when idle fetches have named all owned partitions, by the loop's time.

        Infinite if they do not. A broker answers a fetch with an error as soon as one of its
        topics is deleted.
        """
        if not all(map(self.was_answered, self._idle)):
            return inf
        version = self._version()
        named = sum(idle.named(version) for idle in self._idle.values())
        if not named or named < len(self._reads.states):
            return inf
        return max(idle.since for idle in self._idle.values())

    def has_fresh_metadata(self) -> bool:
        """True if a broker has answered recently, and the metadata is recent.

        While all fetches are idle the metadata may be older: a change would end them.
        """
        is_old = self._loop.time() - self._metadata.refreshed_at > METADATA_S
        return (not is_old or self.all_idle_since() < inf) and any(
            map(self.was_answered, self._answered)
        )

    async def close(self) -> None:
        """End all fetches."""
        self._task.cancel()
        await asyncio.wait([self._task, *self._in_flight.values()])

    def _version(self) -> ReadingVersion:
        return ReadingVersion(self._reads.version, self._metadata.version)

    async def _run(self) -> None:
        try:
            while self._broken is None:
                self._change = self._loop.create_future()
                await self._wait(self._start_fetches())
            raise self._broken
        finally:
            for task in self._in_flight.values():
                task.cancel()

    async def _wait(self, until: float) -> None:
        """Wait for a change, at most until a time."""
        if until == inf:
            await self._change
            return
        timer = self._loop.call_at(until, self.changed)
        try:
            await self._change
        finally:
            timer.cancel()

    def _start_fetches(self) -> float:
        """Start the fetches that are due. Returns when to look again without being told."""
        now = self._loop.time()
        plan = plan_fetches(self._reads, self._in_flight, self._hurried, now)
        most_bytes = self.answers.fetch_size.bytes_per_partition(self._reads.held.values())
        for node, states in plan.partitions.items():
            fetch = self._next.fetch(
                node,
                states,
                most_bytes,
                newest_held_at=plan.newest_held_at.get(node),
                is_hurried=node in self._hurried,
                restarts=self._reads.restarts,
                now=now,
            )
            if fetch.repeat_wait_ms is None and fetch.was_sent:
                fetch.repeat_wait_ms = partial(self._repeat_wait_ms, fetch)
            fetch.was_sent = True
            self._hurried.discard(node)
            self._start(fetch)
        return min(plan.look_at, self._ask_for_metadata(plan, now))

    def _ask_for_metadata(self, plan: FetchPlan, now: float) -> float:
        """Ask for metadata if it is needed and due. Returns when to ask again."""
        if not plan.lacks_leader and not self._metadata.are_needed:
            return inf
        if self._metadata.ask(now):
            self._metadata.are_needed = False
            self._connections.request_metadata()
        return self._metadata.next_at if plan.lacks_leader or self._metadata.are_needed else inf

    def _start(self, fetch: NodeFetch) -> None:
        task = asyncio.create_task(self._fetch(fetch), name="fetch from a node")
        self._in_flight[fetch.node] = task
        task.add_done_callback(partial(self._ended, fetch.node))

    def _ended(self, node: int, task: Task[None]) -> None:
        del self._in_flight[node]
        self._idle.pop(node, None)
        if not task.cancelled():
            self._broken = self._broken or task.exception()
        self.changed()

    async def _fetch(self, fetch: NodeFetch) -> None:
        """Send a fetch, and keep what its answer brings."""
        self._sent_at[fetch.node] = self._loop.time()
        try:
            answer = await self._connections.send(fetch)
        except BrokerError as error:
            logger.debug("fetching from node %s: %s", fetch.node, error)
            self.answers.fail(fetch)
            await asyncio.sleep(RETRY_S)
            return
        now = self._loop.time()
        self._answered[fetch.node] = now
        self._latencies.note(now - self._sent_at[fetch.node])
        news = self.answers.take(fetch, answer, now)
        self._metadata.are_needed |= news.needs_metadata
        if news.is_to_be_taken:
            self._came()
        if answer.error_code and answer.error_code not in SESSION_CODES:
            await asyncio.sleep(RETRY_S)

    def _repeat_wait_ms(self, fetch: NodeFetch) -> int | None:
        """Return how long the node may wait if its fetch is repeated now; None: do not repeat it.

        Called when a fetch was answered with nothing.
        """
        node = fetch.node
        now = self._loop.time()
        self._answered[node] = now
        if not self._next.is_last(fetch, self._reads.restarts) or self.settings.client_rack:
            return None
        idle = self._idle.get(node)
        if idle is None:
            if not self._names_all(fetch, now):
                return None
            most_wait_ms = self.settings.fetch_max_wait_ms
            until = now + self.settings.idle_s
            named = len(fetch.asked)
            idle = IdleFetch(named, most_wait_ms, self._version(), since=now, until=until)
            self._idle[node] = idle
        if not idle.may_repeat(now, self._version()):
            return None
        self._latencies.note(now - self._sent_at[node])
        self._sent_at[node] = now
        return idle.wait_ms(now)

    def _names_all(self, fetch: NodeFetch, now: float) -> bool:
        """True if the next fetch of the node would be the same: nothing has changed meanwhile."""
        to_read = 0
        for state in self._reads.states.values():
            if not state.is_flowing or state.node(now) != fetch.node:
                continue
            asked = fetch.asked.get(state.partition)
            if asked is None or asked.state is not state or asked.offset != state.position:
                return False
            to_read += 1
        return to_read == len(fetch.asked)
