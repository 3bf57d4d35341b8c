"""Which records above a position are done, as a text that stands beside it. No I/O, no clock.

Told are the offsets that are *open*, and where what is known ends; every other offset up to there
is done, gaps of the log among them. A text is ASCII without blanks, and begins so that a person can read it::

    r6:994/100000:Hi9F...
    |  |   |      |
    |  |   |      the bits, in base64 without padding
    |  |   how many offsets it tells of, from the position on
    |  how many of them are open
    codec and k: Rice code with a parameter of 6

For each open offset the bits tell how many lie between it and the one before: the number divided by
2**k as so many ones and a zero, then the rest in k bits, the highest first. With k = 0 that is a
bitmap: one bit an offset. Whatever is left of the last byte is zero. A prefix of what is known is
always true, so a text that is too long is cut: what is done beyond its end is merely handled again.
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
    """Every offset from ``base`` up to ``until`` (exclusive) is done, but those in ``open``
    (ascending).
    """

    base: int
    until: int
    open: array[int]

    def is_done(self, offset: int) -> bool:
        """Whether the record needs not be handled again."""
        if not self.base <= offset < self.until:
            return False
        at = bisect_left(self.open, offset)
        return at == len(self.open) or self.open[at] != offset

    def open_between(self, start: int, stop: int) -> array[int]:
        """The open offsets from *start* up to *stop* (exclusive)."""
        return self.open[bisect_left(self.open, start) : bisect_left(self.open, stop)]


def encode(open_offsets: Sequence[int], base: int, until: int, budget: int) -> tuple[str, int]:
    """Tell what is done from *base* up to *until* with *budget* characters; *open_offsets* ascend
    in that range.

    The text, and up to where (exclusive) it tells; ``("", base)`` where it would tell of nothing
    that is done.
    """
    if len(open_offsets) > MOST_OPEN:
        until = open_offsets[MOST_OPEN]
        open_offsets = open_offsets[:MOST_OPEN]
    window = until - base
    k = _parameter(len(open_offsets), window)
    # Bits that base64 has room for.
    room = (budget - _header_length(k, len(open_offsets), window)) * 3 // 4 * 8
    if room < 0:
        return "", base
    codes = _Codes(k)
    # Codes that there is room for: no more than one behind them is looked at.
    most = room // (k + 1)
    told = open_offsets[: most + 1]
    # All of it is done in C.
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
    """At most so many characters has the text of *count* open offsets among *window*, without
    making it.
    """
    k = _parameter(count, window)
    bits = ((window - count) >> k) + count * (k + 1)
    return _header_length(k, count, window) + -(-((bits + 7) // 8 * 4) // 3)


def decode(text: str, base: int) -> AckMap | None:
    """What a text tells of the offsets from *base* on; None: it is none of ours. Takes memory as
    the text does.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    k = int(found[1])
    count = int(found[2])
    window = int(found[3])
    bits = _bits(found[4]) if 0 <= base <= base + window <= _HIGHEST else None
    read = None if bits is None else _bitmap(bits, count) if k == 0 else _gaps(bits, count, k)
    if bits is None or read is None:
        return None
    relative, end = read
    is_whole = len(bits) - end < 8 and "1" not in bits[end:]
    if not is_whole or (relative and relative[-1] >= window):
        return None
    return AckMap(base, base + window, array("q", [base + one for one in relative]))


class _Codes(dict[int, str]):
    """How far an open offset is from the one before -> the code of what lies between, each made
    once.
    """

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
    """The k of which :func:`bound` is lowest."""
    done = window - count
    k = 0
    while count and done >> (k + 1) > count:
        k += 1
    return k


def _bitmap(bits: str, count: int) -> tuple[list[int], int] | None:
    """Which of the bits are zero, the first *count* of them, and where the bits go on; None: there
    are not so many.
    """
    places = list(compress(range(len(bits)), map(("0").__eq__, bits)))
    if len(places) < count:
        return None
    del places[count:]
    return places, places[-1] + 1 if places else 0


def _gaps(bits: str, count: int, k: int) -> tuple[list[int], int] | None:
    """The numbers that *count* codes tell, added up, and where the bits go on; None: there are not
    so many.
    """
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
    """The bits; None: so many characters make no bytes."""
    if len(characters) % 4 == 1:
        return None
    raw = b64decode(characters + "=" * (-len(characters) % 4))
    return f"{int.from_bytes(raw, 'big'):0{8 * len(raw)}b}" if raw else ""
