"""Decides whether a fetch that was answered with nothing is sent again. Pure."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

LATE_S = 0.2
"""If an answer comes this much later than the node was allowed to wait, the fetch is not repeated.
The loop was blocked then, and a topic may have been recreated with a log of the same end.
"""


class ReadingVersion(NamedTuple):
    """What the next fetch of a node follows from, apart from answers."""

    partitions: int
    metadata: int


class IdleFetch:
    """A fetch that was answered with nothing, and until when it may be repeated.

    It names all partitions that can be read from its node.

    Args:
        named: How many partitions that is.
        most_wait_ms: ``fetch_max_wait_ms``.
        version: When it was planned.
        since: When it became idle.
        until: When its answer has to be looked at again.
    """

    def __init__(
        self, named: int, most_wait_ms: int, version: ReadingVersion, since: float, until: float
    ) -> None:
        self.since = since
        self._named = named
        self._most_wait_ms = most_wait_ms
        self._version = version
        self._until = until
        self._answer_due_by = inf

    def may_repeat(self, now: float, version: ReadingVersion) -> bool:
        """True if the node would be asked for the same once more."""
        return now < self._until and now <= self._answer_due_by and version == self._version

    def wait_ms(self, now: float) -> int:
        """Return how long the node may wait, so that its answer comes with those of other channels.

        Each answer that comes alone wakes the loop, which costs more than handling the answer.
        """
        most_ms = self._most_wait_ms
        wait_ms = max(most_ms // 8, most_ms - int(now * 1000) % max(1, most_ms))
        self._answer_due_by = now + wait_ms / 1000 + LATE_S
        return wait_ms

    def named(self, version: ReadingVersion) -> int:
        """Return how many partitions it names; 0 if others may have to be fetched by now."""
        return self._named if version == self._version else 0
