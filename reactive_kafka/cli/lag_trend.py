"""How fast groups read and topics grow, and when a group will have caught up. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reactive_kafka.observe.wording import whole_seconds

WINDOW_S = 60.0
"""Rates are those of the last minute, because a group commits only now and then."""

PartitionKey = tuple[str, str, int]
"""Group, topic and partition."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where a group and a log are, in one partition."""

    committed: int
    log_end: int


@dataclass(frozen=True, slots=True)
class LagTrend:
    """What happens in a second.

    Attributes:
        handled: Records that the group commits.
        written: Records that are added to the logs.
        lag: Records behind, now.
    """

    handled: float
    written: float
    lag: int

    @property
    def caught_up_in_s(self) -> float | None:
        """When the lag will be gone at this rate, in seconds; None: it does not shrink."""
        if not self.lag:
            return 0.0
        gain = self.handled - self.written
        return self.lag / gain if gain > 0 else None

    def text(self) -> str:
        """Return the trend as a few words."""
        rates = f"{self.handled:.0f} handled and {self.written:.0f} written a second"
        left_s = self.caught_up_in_s
        if not self.lag:
            return f"{rates}, caught up"
        if left_s is None:
            return f"{rates}, not catching up"
        return f"{rates}, caught up in {whole_seconds(left_s)}"


class LagHistory:
    """The offsets of the last minute."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[PartitionKey, PartitionOffsets]]] = deque()

    def add(self, now: float, offsets: Mapping[PartitionKey, PartitionOffsets]) -> None:
        """Keep what was seen at *now*, in seconds."""
        self._looks.append((now, dict(offsets)))
        # The first look that is kept is at least as old as the window, if any look is.
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW_S:
            self._looks.popleft()

    def trend(self, keys: Iterable[PartitionKey]) -> LagTrend | None:
        """Return the trend of these partitions together.

        None: they were seen only once. A partition in which the group or the log has gone back,
        because of a reset or of a new topic, counts with its lag only.
        """
        if len(self._looks) < 2:
            return None
        first_at, first = self._looks[0]
        last_at, last = self._looks[-1]
        elapsed_s = last_at - first_at
        if elapsed_s <= 0:
            return None
        handled = written = lag = 0
        for key in keys:
            now = last.get(key)
            if now is None:
                continue
            lag += max(0, now.log_end - now.committed)
            before = first.get(key)
            if before is None:
                continue
            if now.committed >= before.committed and now.log_end >= before.log_end:
                handled += now.committed - before.committed
                written += now.log_end - before.log_end
        return LagTrend(handled / elapsed_s, written / elapsed_s, lag)
