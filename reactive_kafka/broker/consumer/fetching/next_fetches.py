"""Makes the next fetch of each node: the last one again, if nothing has changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from reactive_kafka.broker.consumer.fetching.fetch_session import PartitionFetch
from reactive_kafka.broker.consumer.fetching.fetch_settings import ISOLATION_LEVELS, FetchSettings
from reactive_kafka.broker.consumer.fetching.node_fetch import AskedPartition, NodeFetch
from reactive_kafka.broker.consumer.fetching.prefetch import most_wait_ms
from reactive_kafka.broker.consumer.fetching.read_partition import ReadPartition
from reactive_kafka.broker.consumer.fetching.request_encoding import FetchLimits
from reactive_kafka.records import TopicPartition


class NextFetches:
    """The fetches of one consumer, node by node.

    Args:
        settings: Of the consumer.
    """

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._isolation_level = ISOLATION_LEVELS[settings.isolation_level]
        # Node -> its last fetch.
        self._last: dict[int, NodeFetch] = {}
        # How often partitions had started again when the fetches of ``_last`` were made.
        self._restarts = 0
        self._turn = 0

    def fetch(
        self,
        node: int,
        states: Sequence[ReadPartition],
        most_bytes: int,
        *,
        newest_held_at: float | None,
        is_hurried: bool,
        restarts: int,
        now: float,
    ) -> NodeFetch:
        """Return the next fetch of a node.

        Args:
            node: Is asked.
            states: For these partitions.
            most_bytes: Of each partition.
            newest_held_at: When the newest records came that the node has sent and that are not
                taken.
            is_hurried: It does not wait for records.
            restarts: How often partitions have begun anew. What a session leaves out of its answers
                is not known of them, so the answer has to have all partitions.
            now: The time.
        """
        if restarts != self._restarts:
            self._restarts = restarts
            self._last.clear()
        limits = self._limits(newest_held_at, now, is_hurried=is_hurried)
        # Another partition comes first each time: without a session, brokers fill their answers in
        # the order of the request.
        self._turn += 1
        first = self._turn % len(states)
        asked: dict[TopicPartition, AskedPartition] = {}
        rows: list[PartitionFetch] = []
        for state in chain(states[first:], states[:first]):
            position = state.position
            if position is not None:
                asked[state.partition] = AskedPartition(state, position)
                rows.append((*state.partition, position, most_bytes))
        last = self._last.get(node)
        is_shortened = limits.max_wait_ms < self._settings.fetch_max_wait_ms
        if (
            last is not None
            and not is_shortened
            and last.limits == limits
            and last.asks == frozenset(rows)
        ):
            last.is_full = False
            return last
        fetch = NodeFetch(node, asked, rows, limits)
        fetch.is_full = last is None
        self._last[node] = fetch
        return fetch

    def is_last(self, fetch: NodeFetch, restarts: int) -> bool:
        """True if a fetch is the last one of its node, and no partition has started again since."""
        return restarts == self._restarts and self._last.get(fetch.node) is fetch

    def _limits(self, newest_held_at: float | None, now: float, *, is_hurried: bool) -> FetchLimits:
        settings = self._settings
        wait_ms = settings.fetch_max_wait_ms
        min_bytes = settings.fetch_min_bytes
        if newest_held_at is not None:
            wait_ms = min(wait_ms, int(most_wait_ms(newest_held_at, now)))
        if is_hurried:
            wait_ms = 0
            min_bytes = 0
        return FetchLimits(
            wait_ms,
            min_bytes,
            settings.fetch_max_bytes,
            self._isolation_level,
            settings.client_rack,
        )
