"""What a member writes down: each record that it has handled, and each change of its partitions.

A line of a journal is ``handled TIME PARTITION OFFSET``, or ``assigned``, ``revoked`` or ``lost``
with the time and the numbers of the partitions. Times are nanoseconds since the epoch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

VALUE_BYTES = 100
_PLACE = slice(20, 33)
"""Where a value names its partition and its offset, after the time."""

ChangeKind = Literal["assigned", "revoked", "lost"]


@dataclass(frozen=True, slots=True)
class Handled:
    """A record whose handler has ended at this time."""

    at_ns: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Change:
    """Partitions that a member was given, or that were taken from it, at this time."""

    at_ns: int
    kind: ChangeKind
    partitions: frozenset[int]


Entry = Handled | Change


def value(at_ns: int, partition: int, offset: int) -> bytes:
    """Return the value of a record that is sent at this time and will have this place."""
    return (b"%019d %03d %09d" % (at_ns, partition, offset)).ljust(VALUE_BYTES, b".")


class Diary:
    """Writes the journal of one member, from any thread.

    Args:
        path: The file, which is made if needed.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def handled(self, value: bytes) -> None:
        """Note that the handler of the record with this value has ended."""
        self._write(b"handled %019d %b\n" % (time.time_ns(), value[_PLACE]))

    def changed(self, kind: ChangeKind, partitions: Iterable[int]) -> None:
        """Note a change; nothing if it is about no partition."""
        numbers = ",".join(str(number) for number in sorted(partitions))
        if numbers:
            self._write(f"{kind} {time.time_ns():019d} {numbers}\n".encode())

    def _write(self, line: bytes) -> None:
        # One call for each line: lines of several threads do not mix.
        os.write(self._file, line)


def entries(content: bytes) -> list[Entry]:
    """Return the entries of a journal in its order, without half a line at its end.

    Raises:
        ValueError: A line is none of a journal.
    """
    return [
        _entry(number, line.split())
        for number, line in enumerate(content.split(b"\n")[:-1], start=1)
    ]


def _entry(number: int, words: list[bytes]) -> Entry:
    try:
        match words:
            case [b"handled", at, partition, offset]:
                return Handled(int(at), int(partition), int(offset))
            case [kind, at, partitions]:
                return Change(int(at), _kind(kind.decode()), _numbers(partitions))
    except ValueError:
        pass
    raise ValueError(f"line {number} of a journal: {b' '.join(words)!r} is no line of it")


def _kind(word: str) -> ChangeKind:
    for kind in get_args(ChangeKind):
        if kind == word:
            return kind  # type: ignore[no-any-return]
    raise ValueError(word)


def _numbers(text: bytes) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(b","))


def has_handled(content: bytes) -> bool:
    """Return True if this part of a journal, which begins with a whole line, names a record."""
    return content.startswith(b"handled ") or b"\nhandled " in content
