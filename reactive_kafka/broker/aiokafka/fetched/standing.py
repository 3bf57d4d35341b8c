"""Whether a fetch that was answered with nothing is to be sent again as it was. No I/O, no
clock.
"""

from __future__ import annotations

from copy import copy
from math import inf
from typing import Any

LATE_S = 0.2
"""An answer that comes so much later than the node has let it wait ends a fetch that stands. Where
the loop was blocked a topic may have been made anew meanwhile, and its log have the same end."""


class Standing:
    """Says of a fetch that was answered with nothing whether the fetcher would ask the node for the
    same once more.

    *asks* are its ``(topic, partition, offset, most bytes)``. Nobody tells of a change: each time
    it is looked whether there is one. A fetcher that looks for replicas in its rack is left alone.
    It stands *since* a time.
    """

    def __init__(
        self, fetcher: Any, node_id: int, asks: frozenset[Any], since: float, until: float
    ) -> None:
        self.since = since
        self._until = until
        self._due_by = inf
        self._most_ms: int = fetcher._fetch_max_wait_ms
        self._cluster = cluster = fetcher._client.cluster
        self._known_ms = cluster._last_successful_refresh_ms
        subscription = fetcher._subscriptions.subscription
        assignment: Any = None if subscription is None else subscription.assignment
        self._assignment = assignment
        offsets = {(topic, partition): offset for topic, partition, offset, _ in asks}
        # Partitions that it asks for, and from where on.
        self._asked: list[tuple[Any, int]] = []
        # Those of the node that it does not ask for.
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
                self._asked.append((state, offset))
            elif leader == node_id:
                self._paused.append(state)

    def holds(self, now: float) -> bool:
        """Whether it would."""
        assignment = self._assignment
        return (
            now < self._until
            and now <= self._due_by
            and assignment.active
            and assignment.tps is self._partitions
            and self._cluster._last_successful_refresh_ms == self._known_ms
            and all(
                not state._paused and state._position == offset for state, offset in self._asked
            )
            # A paused one whose position is to be found anew has the fetcher look, whether it asks
            # for it or not.
            and all(state._paused and state._position is not None for state in self._paused)
        )

    def wait_ms(self, now: float) -> int:
        """How long the node may wait for more: so that its answer comes together with those of
        other channels.

        Each answer that comes alone wakes the loop, which costs more than all that is done with it.
        """
        wait_ms = max(self._most_ms // 8, self._most_ms - int(now * 1000) % max(1, self._most_ms))
        self._due_by = now + wait_ms / 1000 + LATE_S
        return wait_ms

    def asks_of(self, assignment: Any) -> int:
        """For how many partitions of this assignment it asks, led by those who led them when it
        began to stand.
        """
        is_same = assignment is self._assignment and assignment.tps is self._partitions
        return (
            len(self._asked)
            if is_same and self._cluster._last_successful_refresh_ms == self._known_ms
            else 0
        )


def nothing_new(answer: Any) -> Any:
    """What a fetch is taken to be answered with when the same bytes come again; None: they say
    something each time.
    """
    if getattr(answer, "error_code", 0):
        return None
    # A follower that is named is kept for a while, and named anew at once when the leader is asked
    # again.
    names_followers = answer.API_VERSION >= 11
    for _, partitions in answer.topics or ():
        if any(
            code or rest[-1] or (names_followers and rest[-2] >= 0) for _, code, *rest in partitions
        ):
            return None
    again = copy(answer)
    again.topics = []
    return again
