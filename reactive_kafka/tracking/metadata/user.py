"""The user's strings that are stored with positions: which one is due, when it is used up. Pure.

Kafka keeps one string a partition, with its position. A new position takes the string that is due,
or empties it. A string is used up once the broker has stored a new position with it, or with one
that was supplied later.
"""

from __future__ import annotations

from typing import NamedTuple

from reactive_kafka.tracking.metadata.codec import LIMIT, longest_user_text, units

_PRUNE_FROM = 64


class Supplied(NamedTuple):
    """A string of the application's; they are numbered from 1, in the order they came in."""

    number: int
    text: str


def check_metadata(text: str) -> None:
    """Check that a string can be stored with a position.

    Raises:
        ValueError: It is no string or too long, or it has a NUL or half a surrogate pair in it.
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
            f"offset metadata of {length} UTF-16 units is too long: "
            f"at most {most:,} are allowed{looks}"
        )


class UserMetadata:
    """The strings that wait, for one partition during one assignment.

    Args:
        is_exact: As in :class:`~reactive_kafka.tracking.metadata.pending.MetadataPolicy`.
        later: A string that waits for the next new position already.
    """

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
        self._is_exact = is_exact
        # The number of the last string.
        self._count = 0
        # The strings up to this number are used up.
        self._used = 0
        # The newest string of an ack.
        self._acked: Supplied | None = None
        # The string that waits for the next new position.
        self._later: Supplied | None = None
        # If exact: record offset -> the string of its ack, in the order they came in.
        self._by_offset: dict[int, Supplied] = {}
        # If exact: the last record before the position that was stored last.
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
        """Store a string with the next new position, and with none before it."""
        self._later = self._next(text)

    def _next(self, text: str) -> Supplied:
        self._count += 1
        return Supplied(self._count, text)

    @property
    def later(self) -> str | None:
        """The string that waits for the next new position; None: none does."""
        if self._later is None or self._later.number <= self._used:
            return None
        return self._later.text

    @property
    def has_acked(self) -> bool:
        """Whether an ack has brought a string that may not have been stored."""
        return self._acked is not None and (self._is_exact or self._acked.number > self._used)

    def for_new(self, last: int) -> Supplied | None:
        """The string for a new position; None: there is none.

        Args:
            last: The offset of the last record before the position.
        """
        own = self._by_offset.get(last)
        acked = self._newest_acked()
        later = self._later
        if own is not None or later is None or later.number <= self._used:
            return own or acked
        return later if acked is None or acked.number < later.number else acked

    def for_same(self, last: int) -> Supplied | None:
        """The string for a position that the group has already; None: its string stays."""
        return self._by_offset.get(last) or self._newest_acked()

    def stored(self, number: int, last: int) -> None:
        """The broker has stored a new position, behind the record with offset *last*.

        Args:
            number: The number of the string that was stored with it; 0: none was.
        """
        self._used = max(self._used, number)
        self._passed = max(self._passed, last)

    def _newest_acked(self) -> Supplied | None:
        if not self._is_exact:
            if self._acked is None or self._acked.number <= self._used:
                return None
            return self._acked
        while self._by_offset:
            offset = next(reversed(self._by_offset))
            newest = self._by_offset[offset]
            if offset >= self._passed:
                return newest if newest.number > self._used else None
            del self._by_offset[offset]
        return None

    def forget_before(self, last: int) -> None:
        """Forget the strings of records before *last*: they are committed.

        To keep this cheap it does so only when the number of strings has doubled.
        """
        if len(self._by_offset) < self._prune_at:
            return
        self._by_offset = {
            offset: supplied for offset, supplied in self._by_offset.items() if offset >= last
        }
        self._prune_at = max(_PRUNE_FROM, 2 * len(self._by_offset))


class MetadataLimit:
    """How long a string the cluster stores with a position, as far as is known."""

    __slots__ = ("dropped", "least_refused")

    def __init__(self) -> None:
        self.least_refused = LIMIT + 1
        # Positions that were stored without the user's string that was due.
        self.dropped = 0

    @property
    def for_user(self) -> int:
        """The most UTF-16 units of a text with the user's string: one below what was refused."""
        return self.least_refused - 1

    @property
    def for_acks(self) -> int:
        """The most UTF-16 units of a text with kept acks: half of what was refused."""
        return LIMIT if self.least_refused > LIMIT else self.least_refused // 2

    def refused(self, length: int) -> None:
        """The broker has not stored a text of this number of units."""
        self.least_refused = min(self.least_refused, length)

    @property
    def warning(self) -> str | None:
        """A warning for people; None: nothing was left out."""
        if not self.dropped:
            return None
        return (
            f"the broker takes less than {self.least_refused:,} units of offset metadata: "
            f"{self.dropped:,} positions were committed without theirs "
            "(see offset.metadata.max.bytes)"
        )
