"""Writes which records above a position are done as a text, and reads it. No I/O, no clock.

The text tells the offsets that are *open*, and where what is known ends. Every other offset up to
there is done; gaps of the log are, too. A text is ASCII without blanks, and its beginning can be
read by people::

    r6:994/100000:Hi9F...
    |  |   |      |
    |  |   |      the bits, in base64 without padding
    |  |   how many offsets it tells of, from the position on
    |  how many of them are open
    codec and k: Rice code with a parameter of 6

For each open offset the bits tell how many offsets lie between it and the one before: that number
divided by 2**k is written as ones and a final zero, then the remainder in k bits, the highest
first. With k = 0 that is a bitmap: one bit an offset. The rest of the last byte is zero. A prefix
of what is known is always true, so a text that is too long is cut: records that are done beyond its
end are merely handled again.
"""

from __future__ import annotations

import re
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, chain, compress
from operator import sub
from typing import NamedTuple

MOST_OPEN = 6 * 4096
"""No text of the 4,096 characters that brokers take has room for more open offsets."""

_HIGHEST = 2**63 - 1
_TEXT = re.compile(r"r([0-9]{1,2}):([0-9]{1,5})/([0-9]{1,19}):([A-Za-z0-9+/]*)", re.ASCII)


class AckMap(NamedTuple):
    """All offsets from ``base`` up to ``until`` (exclusive) are done, but those in ``open``."""

    base: int
    until: int
    # Ascending.
    open: array[int]

    def is_done(self, offset: int) -> bool:
        """Whether the record needs not be handled again."""
        if not self.base <= offset < self.until:
            return False
        number = bisect_left(self.open, offset)
        return number == len(self.open) or self.open[number] != offset

    def open_between(self, start: int, stop: int) -> array[int]:
        """The open offsets from *start* up to *stop* (exclusive)."""
        return self.open[bisect_left(self.open, start) : bisect_left(self.open, stop)]


def encode(open_offsets: Sequence[int], base: int, until: int, budget: int) -> tuple[str, int]:
    """Write what is done from *base* up to *until* (exclusive).

    Args:
        open_offsets: The offsets in that range that are not done, ascending.
        budget: The most characters of the text.

    Returns:
        The text, and the offset up to which (exclusive) it tells; ``("", base)`` if it would tell
        of nothing that is done.
    """
    if len(open_offsets) > MOST_OPEN:
        until = open_offsets[MOST_OPEN]
        open_offsets = open_offsets[:MOST_OPEN]
    window = until - base
    k = _parameter(len(open_offsets), window)
    # The bits that fit into the budget as base64.
    room = (budget - _header_length(k, len(open_offsets), window)) * 3 // 4 * 8
    if room < 0:
        return "", base
    codes = _Codes(k)
    # A code has k + 1 bits at least, so no more codes than this fit. One more is made, to see
    # whether the last one is cut off.
    most = room // (k + 1)
    told = open_offsets[: most + 1]
    # There can be many, so all of it is done in C.
    coded = list(map(codes.__getitem__, map(sub, told, chain((base - 1,), told))))
    bits = "".join(coded)
    if len(bits) > room:
        fitting = bisect_left(list(accumulate(map(len, coded))), room + 1)
        until = open_offsets[fitting]
        coded = coded[:fitting]
        bits = "".join(coded)
    if len(coded) >= until - base:
        return "", base
    return f"r{k}:{len(coded)}/{until - base}:{_base64(bits)}", until


def bound(count: int, window: int) -> int:
    """The most characters that the text of *count* open offsets among *window* can have."""
    k = _parameter(count, window)
    bits = ((window - count) >> k) + count * (k + 1)
    return _header_length(k, count, window) + -(-((bits + 7) // 8 * 4) // 3)


def decode(text: str, base: int) -> AckMap | None:
    """Read what a text tells of the offsets from *base* on; None: it is none of ours.

    The memory it takes grows with the text and not with the numbers in it: anybody may write one.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    k = int(found[1])
    count = int(found[2])
    window = int(found[3])
    if not 0 <= base <= base + window <= _HIGHEST:
        return None
    bits = _bits(found[4])
    if bits is None:
        return None
    read = _bitmap(bits, count) if k == 0 else _gaps(bits, count, k)
    if read is None:
        return None
    relative, end = read
    is_whole = len(bits) - end < 8 and "1" not in bits[end:]
    if not is_whole or (relative and relative[-1] >= window):
        return None
    return AckMap(base, base + window, array("q", [base + distance for distance in relative]))


class _Codes(dict[int, str]):
    """Distance of an open offset from the one before -> its code; each is made once."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self._k = k

    def __missing__(self, apart: int) -> str:
        k = self._k
        number = apart - 1
        rest = f"{number & ((1 << k) - 1):0{k}b}" if k else ""
        code = self[apart] = "1" * (number >> k) + "0" + rest
        return code


def _parameter(count: int, window: int) -> int:
    """The k that makes :func:`bound` lowest."""
    done = window - count
    k = 0
    while count and done >> (k + 1) > count:
        k += 1
    return k


def _bitmap(bits: str, count: int) -> tuple[list[int], int] | None:
    """The places of the first *count* zeros, and where the next bits are; None: there are fewer."""
    places = list(compress(range(len(bits)), map(("0").__eq__, bits)))
    if len(places) < count:
        return None
    del places[count:]
    return places, places[-1] + 1 if places else 0


def _gaps(bits: str, count: int, k: int) -> tuple[list[int], int] | None:
    """The places that *count* codes tell, and where the next bits are; None: there are fewer."""
    places = []
    at = 0
    place = -1
    for _ in range(count):
        zero = bits.find("0", at)
        rest = bits[zero + 1 : zero + 1 + k]
        if zero < 0 or len(rest) < k:
            return None
        place += (zero - at << k) + int(rest, 2) + 1
        places.append(place)
        at = zero + 1 + k
    return places, at


def _header_length(k: int, count: int, window: int) -> int:
    return len(f"r{k}:{count}/{window}:")


def _base64(bits: str) -> str:
    if not bits:
        return ""
    size = (len(bits) + 7) // 8
    number = int(bits, 2) << (8 * size - len(bits))
    return b64encode(number.to_bytes(size, "big")).decode("ascii").rstrip("=")


def _bits(characters: str) -> str | None:
    """The bits of a base64 text; None: no bytes have a text of this length."""
    if len(characters) % 4 == 1:
        return None
    raw = b64decode(characters + "=" * (-len(characters) % 4))
    return f"{int.from_bytes(raw, 'big'):0{8 * len(raw)}b}" if raw else ""
