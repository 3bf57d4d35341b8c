"""The user's strings that go with positions: which one is due, and when it is used up. No I/O, no
clock.

Kafka keeps one string a partition, beside the position. A new position takes the string that is due
along, or empties it. A string is used up once the broker has stored a new position with it, or with
one that was supplied later.
"""

from __future__ import annotations

from typing import NamedTuple

from reactive_kafka.tracking.metadata.codec import LIMIT, longest_user_text, units

_PRUNE_FROM = 64


class Supplied(NamedTuple):
    """A string that the application has given; they are numbered from 1, in the order in which they
    came.
    """

    number: int
    text: str


def check_metadata(text: str) -> None:
    """ValueError where a string cannot be stored beside a position: no string, NUL, half a
    surrogate pair, too long.
    """
    if not isinstance(text, str):
        raise ValueError(f"offset metadata must be a string, not {type(text).__name__}")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("offset metadata with a lone surrogate in it cannot be written as UTF-8")
    if "\0" in text:
        raise ValueError(
            "offset metadata with a NUL in it cannot be kept by every checkpoint store"
        )
    length = units(text)
    most = longest_user_text(text)
    if length > most:
        looks = "" if most == LIMIT else " for one that begins as our own do ('rk' and a digit)"
        raise ValueError(
            f"offset metadata of {length} UTF-16 units is too long: at most {most:,} are allowed{looks}"
        )


class UserMetadata:
    """The strings that wait, for one partition during one assignment."""

    __slots__ = (
        "_acked",
        "_by_offset",
        "_count",
        "_is_exact",
        "_later",
        "_passed",
        "_prune_at",
        "_used",
    )

    def __init__(self, *, is_exact: bool = False, later: str | None = None) -> None:
        # As in MetadataPolicy.
        self._is_exact = is_exact
        self._count = 0
        # This one, and all before it.
        self._used = 0
        # The newest of an ack.
        self._acked: Supplied | None = None
        # Waits for the next new position.
        self._later: Supplied | None = None
        # exact: of each ack, in the order in which they came.
        self._by_offset: dict[int, Supplied] = {}
        # exact: the last record before the position that was stored last.
        self._passed = -1
        self._prune_at = _PRUNE_FROM
        if later is not None:
            self.store(later)

    def supply(self, offset: int, text: str) -> None:
        """A record was acked with a string."""
        self._acked = self._next(text)
        if self._is_exact:
            self._by_offset[offset] = self._acked

    def store(self, text: str) -> None:
        """A string is to go with the next new position, and with none before it."""
        self._later = self._next(text)

    def _next(self, text: str) -> Supplied:
        self._count += 1
        return Supplied(self._count, text)

    @property
    def later(self) -> str | None:
        """The one that waits for the next new position; None: none does."""
        return None if self._later is None or self._later.number <= self._used else self._later.text

    @property
    def has_acked(self) -> bool:
        """Whether an ack has brought one that may not have been stored."""
        return self._acked is not None and (self._is_exact or self._acked.number > self._used)

    def for_new(self, last: int) -> Supplied | None:
        """What goes with a new position, with *last* the offset of the last record before it; None:
        nothing does.
        """
        own = self._by_offset.get(last)
        acked = self._newest_acked()
        later = self._later
        if own is not None or later is None or later.number <= self._used:
            return own or acked
        return later if acked is None or acked.number < later.number else acked

    def for_same(self, last: int) -> Supplied | None:
        """What goes with a position that the group has already; None: what stands there stays."""
        return self._by_offset.get(last) or self._newest_acked()

    def stored(self, number: int, last: int) -> None:
        """The broker has stored a new position, with the string of this number (0: none), behind
        the record *last*.
        """
        self._used = max(self._used, number)
        self._passed = max(self._passed, last)

    def _newest_acked(self) -> Supplied | None:
        if not self._is_exact:
            return (
                self._acked if self._acked is not None and self._acked.number > self._used else None
            )
        while self._by_offset:
            offset = next(reversed(self._by_offset))
            found = self._by_offset[offset]
            if offset >= self._passed:
                return found if found.number > self._used else None
            del self._by_offset[offset]
        return None

    def forget_before(self, last: int) -> None:
        """No position before the one behind the record *last* will be committed any more; now and
        then that counts.
        """
        if len(self._by_offset) < self._prune_at:
            return
        self._by_offset = {
            offset: found for offset, found in self._by_offset.items() if offset >= last
        }
        self._prune_at = max(_PRUNE_FROM, 2 * len(self._by_offset))


class MetadataLimit:
    """How much a cluster takes beside a position, as far as is known, and what was left out for
    it.
    """

    __slots__ = ("dropped", "least_refused")

    def __init__(self) -> None:
        self.least_refused = LIMIT + 1
        # Positions that were stored without the user's string that was due.
        self.dropped = 0

    @property
    def for_user(self) -> int:
        """The most UTF-16 units of a text with the user's string: what was never refused is
        tried.
        """
        return self.least_refused - 1

    @property
    def for_acks(self) -> int:
        """The most UTF-16 units of a text with kept acks: half of what was refused, until that is
        refused too.
        """
        return LIMIT if self.least_refused > LIMIT else self.least_refused // 2

    def refused(self, length: int) -> None:
        """The broker has not taken a text of so many units."""
        self.least_refused = min(self.least_refused, length)

    @property
    def warning(self) -> str | None:
        """What people should know; None: nothing was left out."""
        less = f"the broker takes less than {self.least_refused:,} units of offset metadata"
        without = f"{self.dropped:,} positions were committed without theirs (see offset.metadata.max.bytes)"
        return f"{less}: {without}" if self.dropped else None
