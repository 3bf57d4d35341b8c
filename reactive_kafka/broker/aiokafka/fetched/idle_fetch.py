"""Decides whether a fetch that was answered with nothing is sent again. No I/O, no clock."""

from __future__ import annotations

from copy import copy
from math import inf
from typing import Any

LATE_S = 0.2
"""If an answer comes this much later than the node was allowed to wait, the fetch is not repeated.
The loop was blocked then, and a topic may have been recreated with a log of the same end.
"""


class IdleFetch:
    """A fetch that was answered with nothing, and what has to stay the same to repeat it.

    Nothing reports changes: each call compares the state of the fetcher with that of the first one.
    A fetcher that reads from replicas in its rack is never repeated.

    Args:
        fetcher: aiokafka's.
        node_id: The node that was asked.
        asks: The ``(topic, partition, offset, most bytes)`` of the fetch.
        since: When it became idle.
        until: When the fetcher has to see an answer again.
    """

    def __init__(
        self, fetcher: Any, node_id: int, asks: frozenset[Any], since: float, until: float
    ) -> None:
        self.since = since
        self._until = until
        self._answer_due_by = inf
        self._most_ms: int = fetcher._fetch_max_wait_ms
        self._cluster = cluster = fetcher._client.cluster
        self._known_ms = cluster._last_successful_refresh_ms
        subscription = fetcher._subscriptions.subscription
        assignment: Any = None if subscription is None else subscription.assignment
        self._assignment = assignment
        offsets = {(topic, partition): offset for topic, partition, offset, _ in asks}
        # The state and the offset of each partition in the fetch.
        self._named: list[tuple[Any, int]] = []
        # The states of the node's other partitions: they are not fetched while they are paused.
        self._paused: list[Any] = []
        self._partitions = () if assignment is None else assignment.tps
        if assignment is None or fetcher._client_rack:
            self._until = -inf
        for partition in self._partitions:
            state = assignment.state_value(partition)
            offset = offsets.get(partition)
            leader = cluster.leader_for_partition(partition)
            if leader in (None, -1) or (offset is not None and leader != node_id):
                self._until = -inf
            elif offset is not None:
                self._named.append((state, offset))
            elif leader == node_id:
                self._paused.append(state)

    def may_repeat(self, now: float) -> bool:
        """True if the fetcher would ask the node for the same once more."""
        assignment = self._assignment
        if now >= self._until or now > self._answer_due_by:
            return False
        if not assignment.active or assignment.tps is not self._partitions:
            return False
        if self._cluster._last_successful_refresh_ms != self._known_ms:
            return False
        if any(state._paused or state._position != offset for state, offset in self._named):
            return False
        # A paused partition without a position makes the fetcher look for one.
        return all(state._paused and state._position is not None for state in self._paused)

    def wait_ms(self, now: float) -> int:
        """Return how long the node may wait, so that its answer comes with those of other channels.

        Each answer that comes alone wakes the loop, which costs more than handling the answer.
        """
        wait_ms = max(self._most_ms // 8, self._most_ms - int(now * 1000) % max(1, self._most_ms))
        self._answer_due_by = now + wait_ms / 1000 + LATE_S
        return wait_ms

    def partitions_of(self, assignment: Any) -> int:
        """Return how many partitions of *assignment* it names; 0 if leaders may have changed."""
        is_same = assignment is self._assignment and assignment.tps is self._partitions
        if not is_same or self._cluster._last_successful_refresh_ms != self._known_ms:
            return 0
        return len(self._named)


def nothing_new(answer: Any) -> Any:
    """Return the answer without partitions that the fetcher gets next time for the same bytes.

    None if the answer says something each time: an error, records, or a follower to read from.
    """
    if getattr(answer, "error_code", 0):
        return None
    # The client uses a named follower for a while, and asks the leader again for another one.
    names_followers = answer.API_VERSION >= 11
    for _, partitions in answer.topics or ():
        for _, code, *rest in partitions:
            if code or rest[-1] or (names_followers and rest[-2] >= 0):
                return None
    simplified = copy(answer)
    simplified.topics = []
    return simplified
