"""The syntax of ``.properties`` files: logical lines, separators, escapes. Pure.

Source: ``java.util.Properties.load(Reader)``; SmallRye Config reads the file as UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

BLANKS = " \t\f"
MOST_ENTRIES = 20_000
"""The most entries of a file. A hundred channels with all their attributes need half of them."""
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(....)|(.?))", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """A text that Java cannot read. ``line`` says where; the text shows nothing of the file."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True, slots=True)
class Entry:
    """One key and its value, without escapes. ``line`` is the first of its lines."""

    key: str
    value: str
    line: int


def entries(text: str) -> tuple[Entry, ...]:
    """Return all entries in their order. A key may be there more than once; Java takes the last.

    Raises:
        PropertiesError: An escape is cut off or is half of a character, or there are too many
            entries.
    """
    found: list[Entry] = []
    for logical, line in _logical_lines(text):
        if len(found) == MOST_ENTRIES:
            raise PropertiesError(f"more than {MOST_ENTRIES} entries", line)
        match = _KEY.match(logical)
        end = match.end() if match else 0
        start = _SEPARATOR.match(logical, end)
        value = logical[start.end() if start else end :]
        found.append(Entry(_unescaped(logical[:end], line), _unescaped(value, line), line))
    return tuple(found)


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each logical line with the number of its first line, without comments and blanks."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        part = natural.lstrip(BLANKS)
        if not parts:
            if not part or part[0] in "#!":
                continue
            first = number
        is_continued = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        if is_continued:
            part = part[:-1]
            # A line with nothing but a backslash does not begin a logical line.
            if part or parts:
                parts.append(part)
        else:
            yield "".join([*parts, part]), first
            parts = []
    if parts:
        yield "".join(parts), first


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def meant(found: re.Match[str]) -> str:
        if found[1] is not None and _HEX.fullmatch(found[1]):
            return chr(int(found[1], 16))
        if found[1] is not None or found[2] == "u":
            raise PropertiesError(r"four hexadecimal digits must follow \u", line)
        return _NAMED.get(found[2], found[2])

    # Java's characters are UTF-16, so two escapes may make one character of Python's.
    try:
        return _ESCAPE.sub(meant, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise PropertiesError(
            r"a \u escape is half of a character: its other half must follow", line
        ) from None
