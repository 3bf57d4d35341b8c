"""What targets are fed with: texts, numbers, trees and headers that hurt, and samples with bytes
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

LONGEST = 65_536
"""Bytes of one input: enough for what is square, too little for what is only slow."""

TEXTS = (
    "",
    " ",
    "a",
    "orders",
    "a.b",
    "a-b",
    "a_b",
    "true",
    "null",
    "~",
    "1e9999",
    "0x_",
    "2020-13-99",
    "99:59:43",
    "=",
    "<<",
    "a\nb",
    "a\r\nb",
    "a\0b",
    "\x1b[31m",
    "\u2028",
    "\u202e",
    "\ud800",
    "é" * 40,
    "\U0001f600",
    "..",
    "__x",
    "%s",
    "{}",
    "${A",
    "${A}",
    "${A:-b}",
    "$${",
    "${A:-${A:-${A:-}}}",
    "u:p@h:1",
    "http://u:p@h/?token=x",
    "-1",
    "9" * 30,
    "9" * 4400,
    "x" * 300,
    "a:b",
    "a.b:c.d",
    "500ms",
    "1e3s",
    "64KiB",
    "/",
    "../../x",
    "file:///",
    "C:\\x",
    "'",
    '"',
    "`",
    "--help",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    255,
    2**31 - 1,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    -0.0,
    1e308,
    5e-324,
)


def text(draw: Random) -> str:
    """One that hurts, or a few characters."""
    if draw.random() < 0.7:
        return draw.choice(TEXTS)
    codes = (
        draw.choice((draw.randrange(128), draw.randrange(0xD800), 0xDC80))
        for _ in range(draw.randrange(9))
    )
    return "".join(map(chr, codes))


def number(draw: Random) -> Any:
    """One at an edge, or any small one."""
    return draw.choice(NUMBERS) if draw.random() < 0.7 else draw.randrange(-1000, 100_000)


def value(draw: Random, names: Sequence[str] = (), depth: int = 0) -> Any:
    """Anything that JSON can say; tables have keys from *names* among others."""
    kind = draw.randrange(9 if depth < 4 else 6)
    if kind < 2:
        return text(draw)
    if kind == 2:
        return number(draw)
    if kind < 6:
        return draw.choice((None, True, False, draw.random(), "throttled", "5s", ["a", "b"]))
    if kind == 6:
        return [value(draw, names, depth + 1) for _ in range(draw.randrange(4))]
    return {name(draw, names): value(draw, names, depth + 1) for _ in range(draw.randrange(5))}


def name(draw: Random, names: Sequence[str]) -> str:
    """Most times one of *names*."""
    return draw.choice(names) if names and draw.random() < 0.8 else text(draw)


def binary(draw: Random, samples: Sequence[bytes] = ()) -> bytes:
    """Bytes of any kind, or a changed sample."""
    if samples and draw.random() < 0.8:
        return mutated(draw, draw.choice(samples))
    return draw.choice(
        (draw.randbytes(draw.randrange(40)), text(draw).encode("utf-8", "surrogatepass"))
    )


def headers(draw: Random, names: Sequence[str]) -> tuple[tuple[str, bytes | None], ...]:
    """Pairs as a record has them, some of one name several times."""
    values = (None, binary(draw), b"%d" % draw.getrandbits(70))
    return tuple((name(draw, names), draw.choice(values)) for _ in range(draw.randrange(8)))


def mutated(draw: Random, sample: bytes, tokens: Sequence[bytes] = ()) -> bytes:
    """The sample with one to eight changes: of a byte, of a piece, or a token put into it."""
    data = bytearray(sample)
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(data) + 1)
        until = min(len(data), at + draw.choice((1, 2, 8, 40)))
        change = draw.randrange(6)
        if change == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif change == 1:
            del data[at:until]
        elif change == 2:
            data[at:at] = data[at:until] * draw.choice((1, 2, 50, 3000))
        elif change == 3:
            data[at:at] = draw.randbytes(draw.randrange(1, 5))
        elif change == 4:
            data[at:until] = text(draw).encode("utf-8", "surrogatepass")
        else:
            data[at:at] = draw.choice(tokens) if tokens else b"\n"
        del data[LONGEST:]
    return bytes(data)
