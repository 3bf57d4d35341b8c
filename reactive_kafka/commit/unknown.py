"""Commits whose outcome is unknown, and when to send again so that a late one cannot move the position back.

Such a commit may land late, over a newer one. So the first commit that succeeds after it is sent again, at growing
intervals, for as long as the other may be on its way. No I/O, no clock.
"""

from __future__ import annotations

from typing import NamedTuple

REPEAT_AFTER_S, REPEAT_UNTIL_S = 1.0, 60.0
"""When the first commit that succeeded behind one of unknown outcome is sent again, each wait twice the one before;
and how long after it: a request that its connection has lost may still be on its way, and then it may not."""


class _Repeats(NamedTuple):
    since: float  # when the first commit behind the one of unknown outcome succeeded
    next_at: float  # when to send it again


class UnknownCommits:
    """What is not known of the commits of one partition; True while the outcome of one of them is unknown."""

    __slots__ = ("_is_unknown", "_lowest", "_must_repeat", "_repeats")

    def __init__(self) -> None:
        self._is_unknown = False
        self._repeats: _Repeats | None = None  # of the commit that succeeded behind it; None: none has
        self._must_repeat = False  # it has to be sent again though nothing is new
        self._lowest: int | None = None  # the lowest position of unknown outcome

    def __bool__(self) -> bool:
        return self._is_unknown

    def end(self) -> None:
        """The generation is over: the broker refuses what comes late from it."""
        self._is_unknown = self._must_repeat = False
        self._repeats = None

    def forget(self) -> None:
        """What may be stored for the partition is another member's."""
        self._lowest = None

    def lowest(self, position: int) -> int:
        """The lowest position that may be stored, or the one given if that is lower."""
        return position if self._lowest is None else min(position, self._lowest)

    def starts_elsewhere(self) -> None:
        """The partition is read from another place: only a commit from there ends what is unknown."""
        self._lowest = self._repeats = None
        self._must_repeat = False

    def add(self, position: int, *, is_repeated: bool) -> None:
        """It is not known whether a position was stored; *is_repeated*: it had been, and nothing new may go over it."""
        self._must_repeat = self._must_repeat or (is_repeated and self._repeats is not None)
        self._is_unknown, self._repeats = True, None
        self._lowest = self.lowest(position)

    def stored(self, now: float, *, was_repeated: bool, is_last: bool) -> None:
        """A commit behind one of unknown outcome has succeeded: it is to be repeated, or was for long enough."""
        repeats = self._repeats
        if not self._is_unknown:
            return
        if repeats is None:
            self._must_repeat = False
            self._repeats = _Repeats(now, now + REPEAT_AFTER_S)
        elif was_repeated and (is_last or now >= repeats.since + REPEAT_UNTIL_S):
            self.end()
        elif was_repeated:
            # Each wait is as long as what has passed since the first success, so that minute costs a partition at rest
            # seven commits and not sixty.
            next_at = now + max(REPEAT_AFTER_S, now - repeats.since)
            self._repeats = repeats._replace(next_at=min(next_at, repeats.since + REPEAT_UNTIL_S))

    def is_due(self, now: float, *, is_last: bool) -> bool:
        """Whether what is stored has to be sent once more now."""
        return self._must_repeat if self._repeats is None else is_last or now >= self._repeats.next_at

    @property
    def next_at(self) -> float | None:
        """When something has to be sent once more, by the monotonic clock; None: nothing has."""
        if self._repeats is not None:
            return self._repeats.next_at
        return 0.0 if self._must_repeat else None
