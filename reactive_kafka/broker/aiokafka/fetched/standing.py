"""Whether a fetch that was answered with nothing is to be sent again as it was. No I/O, no clock."""

from __future__ import annotations

from math import inf
from typing import Any


class Standing:
    """Says of a fetch that was answered with nothing whether the fetcher would ask the node for the same once more.

    *asks* are its ``(topic, partition, offset, most bytes)``. Nobody tells of a change: each time it is looked whether
    there is one. A fetcher that looks for replicas in its rack is left alone.
    """

    def __init__(self, fetcher: Any, node_id: int, asks: frozenset[Any], until: float) -> None:
        self._until = until
        self._cluster = cluster = fetcher._client.cluster
        self._known_ms = cluster._last_successful_refresh_ms
        subscription = fetcher._subscriptions.subscription
        assignment: Any = None if subscription is None else subscription.assignment
        self._assignment = assignment
        offsets = {(topic, partition): offset for topic, partition, offset, _ in asks}
        self._asked: list[tuple[Any, int]] = []  # partitions that it asks for, and from where on
        self._paused: list[Any] = []  # those of the node that it does not ask for
        self._partitions = () if assignment is None else assignment.tps
        if assignment is None or fetcher._client_rack:
            self._until = -inf
        for partition in self._partitions:
            state, offset = assignment.state_value(partition), offsets.get(partition)
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
            and assignment.active
            and assignment.tps is self._partitions
            and self._cluster._last_successful_refresh_ms == self._known_ms
            and all(not state._paused and state._position == offset for state, offset in self._asked)
            # A paused one whose position is to be found anew has the fetcher look, whether it asks for it or not.
            and all(state._paused and state._position is not None for state in self._paused)
        )
