"""What is not known of the commits of one partition, because an answer is missing. No I/O."""

from __future__ import annotations

from typing import NamedTuple

REPEAT_AFTER_S = 1.0
"""How soon the first commit that succeeded behind one of unknown outcome is sent again. Each wait
is twice the one before."""

REPEAT_UNTIL_S = 60.0
"""How long it is sent again: until then a request that its connection has lost may still be on its
way."""


class _Repeats(NamedTuple):
    # When the first commit behind the one of unknown outcome succeeded.
    since: float
    # When to send it again.
    next_at: float


class UnknownCommits:
    """Remembers that the outcome of a commit is unknown; true as long as it is.

    Such a commit may land late, over a newer one, and move the position back. So the first commit
    that succeeds after it is sent again, at growing intervals, for as long as the other may be on
    its way.

    Args:
        is_fenced: The broker refuses what comes late from an assignment that is over. It does so
            for members of a group, not for a client whose partitions the settings name.
    """

    __slots__ = ("_is_fenced", "_is_unknown", "_lowest", "_must_repeat", "_repeats")

    def __init__(self, *, is_fenced: bool = True) -> None:
        self._is_fenced = is_fenced
        self._is_unknown = False
        # Of the commit that succeeded behind it; None: none has.
        self._repeats: _Repeats | None = None
        # Send it again though nothing is new.
        self._must_repeat = False
        # The lowest position of unknown outcome.
        self._lowest: int | None = None

    def __bool__(self) -> bool:
        return self._is_unknown

    def end(self) -> None:
        """The partition was given up since: the broker refuses what comes late from before."""
        self._is_unknown = False
        self._must_repeat = False
        self._repeats = None

    def forget(self) -> None:
        """Another member may store the partition's position from here on."""
        self._lowest = None

    def lowest(self, position: int) -> int:
        """The lowest position that may be stored, or the one given if that is lower."""
        return position if self._lowest is None else min(position, self._lowest)

    def starts_elsewhere(self) -> None:
        """The partition is read from another place: only a commit from there ends the doubt."""
        self._lowest = None
        self._repeats = None
        self._must_repeat = False

    def continues(self) -> None:
        """Another client reads on from the position that the group has.

        A commit of the client before it may still land, and nothing may be new here for long. So
        that position is sent once more, and then at the growing intervals.
        """
        self.starts_elsewhere()
        self._must_repeat = self._is_unknown

    def add(self, position: int, *, is_repeated: bool) -> None:
        """It is not known whether a position was stored.

        Args:
            is_repeated: It had been stored before, so no newer position may be sent over it.
        """
        if is_repeated and self._repeats is not None:
            self._must_repeat = True
        self._is_unknown = True
        self._repeats = None
        self._lowest = self.lowest(position)

    def stored(self, now: float, *, was_repeated: bool, is_last: bool) -> None:
        """A commit behind one of unknown outcome has succeeded.

        It is to be repeated, or has been repeated for long enough.
        """
        repeats = self._repeats
        if not self._is_unknown:
            return
        if repeats is None:
            self._must_repeat = False
            self._repeats = _Repeats(now, now + REPEAT_AFTER_S)
            return
        if not was_repeated:
            return
        end = repeats.since + REPEAT_UNTIL_S
        if now >= end or (is_last and self._is_fenced):
            self.end()
            return
        # Each wait is as long as what has passed since the first success. So this minute costs a
        # partition at rest seven commits and not sixty.
        next_at = now + max(REPEAT_AFTER_S, now - repeats.since)
        self._repeats = repeats._replace(next_at=min(next_at, end))

    def is_due(self, now: float, *, is_last: bool) -> bool:
        """Whether the stored position has to be sent once more now."""
        if self._repeats is None:
            return self._must_repeat
        return is_last or now >= self._repeats.next_at

    @property
    def next_at(self) -> float | None:
        """When a position has to be sent once more, by the monotonic clock; None: never."""
        if self._repeats is not None:
            return self._repeats.next_at
        return 0.0 if self._must_repeat else None
