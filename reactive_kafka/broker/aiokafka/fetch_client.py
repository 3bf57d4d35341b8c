"""What aiokafka's fetcher uses as its client: repeats idle fetches, and paces metadata requests.

A fetch is *idle* if it was answered with nothing and would be sent again unchanged.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections.abc import Callable, Collection
from copy import copy
from math import inf
from typing import Any

from aiokafka.protocol.fetch import FetchRequest

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.aiokafka.fetched import prefetch
from reactive_kafka.broker.aiokafka.fetched.idle_fetch import IdleFetch, nothing_new
from reactive_kafka.broker.aiokafka.fetched.repeated_request import RepeatedRequest
from reactive_kafka.broker.client_metrics import Latencies

PAUSES = Backoff(0.1, 1.0)
"""Between the fetcher's requests for metadata."""
ANSWERED_S = 0.5
"""A node that has answered a fetch is taken to be there for so long, plus the wait of a fetch."""
METADATA_S = 15.0
"""How old the metadata may become while answers to fetches show that brokers are there."""


class FetchClient:
    """A wrapper of aiokafka's client that only its fetcher uses. It passes everything on, except:

    - Requests for metadata are paced. The fetcher itself asks as fast as the broker answers (H15):
      for a partition without a leader (its topic was deleted, or the node with its only replica is
      away) it asks, looks and asks again, thousands of times a second, while it is assigned.
    - *note* is called with each fetch and its answer, before the fetcher sees the answer.
    - If an answer says nothing new, the fetcher sees an answer without partitions. It spends more
      time on each of them than we spend on the whole answer.
    - Most of these answers it does not see at all: while *fetcher* would send the same fetch, the
      connection repeats it (:class:`IdleFetch`), for at most *idle_s*.
    - *latencies* gets how long each fetch took, also each repeated one.
    """

    def __init__(
        self,
        client: Any,
        note: Callable[[Any, Any], None],
        wait_s: float,
        fetcher: Any = None,
        idle_s: float = 0.0,
        latencies: Latencies | None = None,
    ) -> None:
        self._client = client
        self._note = note
        self._recent_s = wait_s + ANSWERED_S
        # None: aiokafka's internals are not as expected, so no fetch is repeated.
        self._fetcher = fetcher
        self._idle_s = idle_s
        # An attribute, because the fetcher reads it for each partition whenever it looks for work.
        self.cluster = client.cluster
        self._pauses = Waits(PAUSES)
        self._next_at = 0.0
        self._later: Future[bool] | None = None
        # Node -> when it answered a fetch last, by the loop's time.
        self._answered: dict[int, float] = {}
        # Node -> the partitions and offsets of the last fetch, and that fetch once it was sent
        # twice.
        self._last: dict[int, tuple[frozenset[Any], RepeatedRequest | None]] = {}
        # Node -> the idle fetch that is on its way.
        self._idle: dict[int, IdleFetch] = {}
        self._latencies = Latencies() if latencies is None else latencies
        # Node -> when its last fetch was sent, by the loop's time.
        self._sent_at: dict[int, float] = {}
        # The next fetch from these nodes does not wait for records.
        self.hurried: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: Any, **given: Any) -> Any:
        """Send a request and return its answer."""
        if not isinstance(request, FetchRequest):
            return await self._client.send(node_id, request, **given)
        asks = frozenset(
            (topic, *partition) for topic, partitions in request.topics for partition in partitions
        )
        last, repeated = self._last.get(node_id, (None, None))
        request.asks = asks
        request.full = last is None
        is_hurried = node_id in self.hurried
        is_shortened = self._shorten_wait(node_id, request, is_hurried=is_hurried)
        if last != asks or is_shortened:
            # A shortened fetch must not be repeated. And if records arrive, each fetch is sent only
            # once. A RepeatedRequest would be in vain, and it and its request refer to each other:
            # at 10,000 records/s such cycles made the garbage collector stop the loop for 30 ms
            # each second.
            self._last[node_id] = (asks, None)
        else:
            if repeated is None:
                repeated = RepeatedRequest(
                    request, nothing_new, lambda: self._repeat_wait_ms(node_id, last)
                )
                self._last[node_id] = (last, repeated)
            request = repeated.request
        asked_of = self._assigned()
        loop = asyncio.get_running_loop()
        self._sent_at[node_id] = loop.time()
        try:
            answer = await self._client.send(node_id, request, **given)
        finally:
            self._idle.pop(node_id, None)
            if is_hurried:
                prefetch.wait_for_held_again(self._fetcher)
        if self._assigned() is not asked_of:
            answer = self._without_released(answer)
        now = loop.time()
        self._answered[node_id] = now
        self._latencies.note(now - self._sent_at[node_id])
        self._note(request, answer)
        return answer

    def _assigned(self) -> Collection[Any]:
        """Return the assigned partitions: the same object as long as they are the same."""
        subscription = None if self._fetcher is None else self._fetcher._subscriptions.subscription
        assignment = None if subscription is None else subscription.assignment
        return () if assignment is None else assignment.tps

    def _without_released(self, answer: Any) -> Any:
        """Return an answer without partitions that were given up while it was on its way.

        The fetcher has no state of them, and would end with an error.
        """
        assigned = {(partition.topic, partition.partition) for partition in self._assigned()}
        shorter = copy(answer)
        shorter.topics = [
            (topic, [row for row in rows if (topic, row[0]) in assigned])
            for topic, rows in answer.topics or ()
        ]
        return shorter

    def _shorten_wait(self, node_id: int, request: FetchRequest, *, is_hurried: bool) -> bool:
        """Lower the wait of a fetch if records of its node are held. True if it was lowered."""
        most_ms = inf
        if self._fetcher is not None:
            most_ms = prefetch.most_wait_ms(self._fetcher, node_id, time.monotonic())
        if is_hurried:
            self.hurried.discard(node_id)
            most_ms = 0
            request._min_bytes = 0
        if most_ms > request._max_wait_ms:
            return False
        request._max_wait_ms = int(most_ms)
        return True

    def _repeat_wait_ms(self, node_id: int, asks: frozenset[Any]) -> int | None:
        """Return how long the node may wait if its fetch is repeated now; None: do not repeat it.

        Called when a fetch was answered with nothing.
        """
        now = asyncio.get_running_loop().time()
        self._answered[node_id] = now
        if self._fetcher is None or self._last.get(node_id, (None,))[0] is not asks:
            return None
        idle = self._idle.get(node_id)
        if idle is None:
            idle = IdleFetch(self._fetcher, node_id, asks, now, now + self._idle_s)
            self._idle[node_id] = idle
        if not idle.may_repeat(now):
            return None
        self._latencies.note(now - self._sent_at[node_id])
        self._sent_at[node_id] = now
        return idle.wait_ms(now)

    def all_idle_since(self) -> float:
        """Return since when idle fetches have named all assigned partitions, by the loop's time.

        Infinite if they do not.
        """
        subscription = None if self._fetcher is None else self._fetcher._subscriptions.subscription
        assignment = None if subscription is None else subscription.assignment
        if assignment is None or not all(map(self.was_answered, self._idle)):
            return inf
        named = sum(idle.partitions_of(assignment) for idle in self._idle.values())
        if not named or named < len(assignment.tps):
            return inf
        return max(idle.since for idle in self._idle.values())

    def forget(self) -> None:
        """Let the fetcher see the next answers whole, because the state of partitions changed."""
        self._last.clear()

    def was_answered(self, node_id: int) -> bool:
        """True if the node has answered a fetch recently."""
        age_s = asyncio.get_running_loop().time() - self._answered.get(node_id, -inf)
        return age_s <= self._recent_s

    def keeps_known(self, topics: Collection[str]) -> bool:
        """True if a broker has answered recently, and *topics* are known from recent metadata.

        While all fetches are idle the metadata may be older: a change would end them.
        """
        is_old = time.time() - self.cluster._last_successful_refresh_ms / 1000 > METADATA_S
        return (
            (not is_old or self.all_idle_since() < inf)
            and any(map(self.was_answered, self._answered))
            and all(map(self.cluster.partitions_for_topic, topics))
        )

    def force_metadata_update(self) -> Future[bool]:
        """Request metadata now, or return a future that ends when the pause is over.

        If the fetcher still needs metadata then, it calls this again.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._next_at:
            if now >= self._next_at + PAUSES.last_s:
                self._pauses.progressed()
            self._next_at = now + self._pauses.next_s()
            return self._client.force_metadata_update()  # type: ignore[no-any-return]
        if self._later is None or self._later.done():
            self._later = loop.create_future()
            loop.call_at(self._next_at, _complete, self._later)
        return self._later


def _complete(later: Future[bool]) -> None:
    if not later.done():
        later.set_result(False)
