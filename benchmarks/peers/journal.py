"""Records of the safety runs, and what a member writes of each: its partition and offset, one short
line. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Position = tuple[int, int]
"""A partition, and an offset in it."""

LINE_BYTES = 12
VALUE_BYTES = 100


def value(partition: int, offset: int) -> bytes:
    """The value of the record that will have this place: it begins with its line."""
    return (b"%d:%09d" % (partition, offset)).ljust(VALUE_BYTES, b".")


def lines(content: bytes) -> Iterator[Position]:
    """The records of a journal, in the order in which they were handled; half a line at its end is
    none.
    """
    for at in range(0, len(content) - LINE_BYTES + 1, LINE_BYTES):
        line = content[at : at + LINE_BYTES]
        if line[1:2] != b":" or line[-1:] != b"\n":
            raise ValueError(
                f"byte {at} of a journal: {line!r} is no line of it, such as b'0:000000017\\n'"
            )
        yield int(line[:1]), int(line[2:-1])


def counted(sizes: Iterable[int]) -> int:
    """How many records journals of these sizes hold."""
    return sum(size // LINE_BYTES for size in sizes)
