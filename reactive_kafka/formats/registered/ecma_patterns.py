r"""Translates the patterns of JSON Schema (ECMA-262, with code points) for Python's ``re``. Pure.

Python accepts most of them unchanged, but some have another meaning: ``\d`` would match digits of
every script, and ``$`` would match before a last line feed. Others are errors, such as ``\p{L}``.
Syntax that ECMA does not have (``(?i)``, ``\A``, ``\Z``, ``(?P<x>)``) means what it means in
Python, because schemas in use have it.

A translation has no numbered groups. So translations can be joined by ``|``, as jsonschema joins
those of ``patternProperties``.

Source: ECMA-262, section 22.2 with annex B; the names of \p are those of Unicode's property
General_Category.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from zlib import crc32

Ranges = tuple[tuple[int, int], ...]
"""Code points, as ranges that include both ends, in order."""

NEVER = "(?!)"
ALWAYS = "(?:)"

_DIGITS: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACES: Ranges = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACES}
_CONTROLS = {"f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})[?+]?")
_NAME = re.compile(r"<([^<>=!][^<>]*)>")
_FLAGS = re.compile(r"\(\?(i)([:)])")
_PROPERTY = re.compile(r"\{(?:(?:gc|General_Category)=)?([A-Za-z_&]+)\}")
_BRACES = re.compile(r"\{[^{}]*\}")
_HEX_FORMS = {
    "x": re.compile(r"([0-9A-Fa-f]{2})"),
    "u": re.compile(r"([0-9A-Fa-f]{4})|\{([0-9A-Fa-f]+)\}"),
}
_CATEGORY_NAMES = {
    "Letter": "L",
    "Cased_Letter": "LC",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Surrogate": "Cs",
    "Private_Use": "Co",
    "Unassigned": "Cn",
}
_OWN_SETS: dict[str, Ranges] = {
    "Any": ((0, sys.maxunicode),),
    "ASCII": ((0, 0x7F),),
    "White_Space": (*_SPACES[:1], (0x20, 0x20), (0x85, 0x85), *_SPACES[2:-1]),
}


class PatternError(ValueError):
    """Python's ``re`` cannot express a pattern, or it is not valid. The text says why."""


def translated(pattern: str) -> str:
    """Return the pattern for ``re.search`` without flags.

    Raises:
        PatternError: ``re`` cannot express it, or it is not valid.
    """
    text = _Translation(pattern).text()
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(str(error)) from None
    return text


class _Translation:
    """One pattern, read from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        # The names of the groups in the translation. Group 1 comes first. With this prefix they
        # differ from those of other patterns, which may be joined to this one.
        self._prefix = f"g{crc32(pattern.encode('utf-8', 'surrogatepass')):x}"
        self._groups: list[str] = []
        # Name of a group in the pattern -> its number.
        self._numbers: dict[str, int] = {}
        # The number of the group of each open parenthesis; 0: it captures nothing.
        self._open: list[int] = []
        self._closed: set[int] = set()

    def text(self) -> str:
        flags = _FLAGS.match(self._pattern)
        if flags is None or flags[2] == ":":
            return "".join(self._parts())
        # Flags at the start are for the whole pattern. Python accepts them only at the start of all
        # joined patterns, so they become those of a group.
        self._at = flags.end()
        return f"(?{flags[1]}:{''.join(self._parts())})"

    def _parts(self) -> Iterator[str]:
        while self._at < len(self._pattern):
            yield self._part()

    def _part(self) -> str:
        pattern = self._pattern
        at = self._at
        quantifier = _QUANTIFIER.match(pattern, at)
        if quantifier is not None:
            self._at = quantifier.end()
            return quantifier[0]
        self._at += 1
        match pattern[at]:
            case "\\":
                return self._escape()
            case "[":
                return self._class()
            case "(":
                return self._group()
            case ")":
                if self._open:
                    self._closed.add(self._open.pop())
                return ")"
            case "$":
                return r"\Z"
            case ".":
                return _set(_complement(_LINE_ENDS))
            case "^" | "|":
                return pattern[at]
            case literal:
                return re.escape(literal)

    def _group(self) -> str:
        """Translate what an opening parenthesis begins."""
        pattern = self._pattern
        at = self._at
        flags = _FLAGS.match(pattern, at - 1)
        if flags is not None and flags[2] == ":":
            return self._opened(flags[0], flags.end())
        for sign in ("?:", "?=", "?!", "?<=", "?<!", "?>"):
            if pattern.startswith(sign, at):
                return self._opened(f"({sign}", at + len(sign))
        name = None
        if pattern.startswith("?", at):
            start = at + 2 if pattern.startswith("?P<", at) else at + 1
            found = _NAME.match(pattern, start)
            if found is None:
                raise PatternError(f"a group that is not known begins at {at - 1}")
            name = found[1]
            self._at = found.end()
        own_name = f"{self._prefix}_{len(self._groups)}"
        self._groups.append(own_name)
        if name is not None:
            self._numbers[name] = len(self._groups)
        self._open.append(len(self._groups))
        return f"(?P<{own_name}>"

    def _opened(self, text: str, end: int) -> str:
        self._open.append(0)
        self._at = end
        return text

    def _escape(self) -> str:
        """Translate what a backslash outside of a class begins."""
        sign = self._next("a backslash ends it")
        if sign in "bB":
            # Python's own \B is false in an empty text.
            return r"(?a:\b)" if sign == "b" else r"(?!(?a:\b))"
        if sign in "AZz":
            return r"\A" if sign == "A" else r"\Z"
        if sign == "k":
            named = _NAME.match(self._pattern, self._at)
            if named is None or named[1] not in self._numbers:
                raise PatternError(f"\\k names no group before it, at {self._at - 2}")
            self._at = named.end()
            return self._repeated(self._numbers[named[1]])
        if sign in "123456789":
            digits = sign
            while self._pattern[self._at : self._at + 1].isdecimal():
                digits += self._next("")
            return self._repeated(int(digits))
        return _expression(self._set_or_character(sign))

    def _repeated(self, number: int) -> str:
        """Translate a reference back to a group.

        In ECMA it matches nothing as long as the group has not matched.
        """
        if number > self._pattern.count("("):
            raise PatternError(f"it refers to group {number}, and has no such group")
        if number not in self._closed:
            return ALWAYS
        name = self._groups[number - 1]
        return f"(?({name})(?P={name}))"

    def _class(self) -> str:
        """Translate what a bracket begins."""
        is_negated = self._pattern.startswith("^", self._at)
        if is_negated:
            self._at += 1
        members: list[tuple[int, int]] = []
        while True:
            sign = self._next("a class has no end")
            if sign == "]":
                break
            first = self._member(sign)
            # A hyphen before the closing bracket is a character.
            is_range = self._pattern.startswith("-", self._at) and not self._pattern.startswith(
                "-]", self._at
            )
            if not isinstance(first, int):
                members += first
            elif not is_range:
                members.append((first, first))
            else:
                self._at += 1
                last = self._member(self._next("a class has no end"))
                if not isinstance(last, int):
                    # No range: a set cannot be the end of one, so the hyphen is a character.
                    members += [(first, first), (0x2D, 0x2D), *last]
                elif last < first:
                    raise PatternError("a range in a class ends before it begins")
                else:
                    members.append((first, last))
        ranges = _united(members)
        return _set(_complement(ranges) if is_negated else ranges)

    def _member(self, sign: str) -> int | Ranges:
        if sign != "\\":
            return ord(sign)
        escaped = self._next("a backslash ends it")
        if escaped == "b":
            return 0x08
        if escaped in "123456789":
            raise PatternError(f"\\{escaped} in a class is no character")
        return self._set_or_character(escaped)

    def _set_or_character(self, sign: str) -> int | Ranges:
        """Return what an escape means, in and outside of classes: characters, or one character."""
        if sign in "dwsDWS":
            characters = _CLASSES[sign.lower()]
            return characters if sign.islower() else _complement(characters)
        if sign in "pP":
            characters = self._property(sign)
            return characters if sign == "p" else _complement(characters)
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign == "0":
            if self._pattern[self._at : self._at + 1].isdecimal():
                raise PatternError("it has an octal escape")
            return 0
        if sign == "c":
            letter = self._next("\\c ends it")
            if not (letter.isascii() and letter.isalpha()):
                raise PatternError(f"\\c{letter} is no control character")
            return ord(letter) % 32
        if sign in _HEX_FORMS:
            return self._code_point(sign)
        if sign.isascii() and sign.isalnum():
            raise PatternError(f"\\{sign} is not known")
        return ord(sign)

    def _property(self, sign: str) -> Ranges:
        r"""Return the characters of the property after ``\p`` or ``\P``."""
        named = _PROPERTY.match(self._pattern, self._at)
        if named is not None:
            self._at = named.end()
            return _with_property(named[1])
        letter = self._pattern[self._at : self._at + 1]
        if letter and letter in "CLMNPSZ":
            # One letter without braces, as in Java.
            self._at += 1
            return _with_property(letter)
        braces = _BRACES.match(self._pattern, self._at)
        raise PatternError(f"\\{sign}{braces[0] if braces else ''} is no general category")

    def _code_point(self, sign: str) -> int:
        """Return the character of an escape by number, which may be a pair of surrogates."""
        point = self._hex(sign)
        if 0xD800 <= point < 0xDC00 and self._pattern.startswith("\\u", self._at):
            before = self._at
            self._at += 2
            low = self._hex("u")
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + (point - 0xD800) * 0x400 + (low - 0xDC00)
            self._at = before
        return point

    def _hex(self, sign: str) -> int:
        form = _HEX_FORMS[sign].match(self._pattern, self._at)
        if form is None:
            raise PatternError(f"\\{sign} needs hexadecimal digits, at {self._at - 2}")
        self._at = form.end()
        point = int(form[form.lastindex or 1], 16)
        if point > sys.maxunicode:
            raise PatternError(f"\\{sign} names no code point, at {self._at}")
        return point

    def _next(self, if_ended: str) -> str:
        """Return the next character, or raise PatternError with the text *if_ended*."""
        if self._at >= len(self._pattern):
            raise PatternError(if_ended)
        self._at += 1
        return self._pattern[self._at - 1]


@lru_cache
def _with_property(name: str) -> Ranges:
    """Return the characters of a general category, by its short or long name, or of another set."""
    if name in _OWN_SETS:
        return _OWN_SETS[name]
    category = _CATEGORY_NAMES.get(name, name)
    known = _categories()
    if category == "Assigned":
        return _complement(_united(known["Cn"]))
    if category in ("LC", "L&"):
        category_names = ["Lu", "Ll", "Lt"]
    else:
        # A single letter is all categories that begin with it.
        category_names = [
            known_name for known_name in known if category in (known_name, known_name[:1])
        ]
    if not category_names:
        raise PatternError(f"\\p{{{name}}} is no general category")
    return _united(span for category_name in category_names for span in known[category_name])


@lru_cache(maxsize=1)
def _categories() -> dict[str, list[tuple[int, int]]]:
    """Return general category -> its ranges.

    The first call takes a tenth of a second. It is made only if a pattern names a category.
    """
    ranges_by_category: dict[str, list[tuple[int, int]]] = {}
    start = 0
    for category, run in groupby(map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))):
        end = start + len(list(run))
        ranges_by_category.setdefault(category, []).append((start, end - 1))
        start = end
    return ranges_by_category


def _united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges in order, joined where they touch."""
    united: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if united and first <= united[-1][1] + 1:
            united[-1] = (united[-1][0], max(last, united[-1][1]))
        else:
            united.append((first, last))
    return tuple(united)


def _complement(ranges: Ranges) -> Ranges:
    """Return the ranges of all other characters."""
    others: list[tuple[int, int]] = []
    start = 0
    for first, last in ranges:
        if start < first:
            others.append((start, first - 1))
        start = last + 1
    if start <= sys.maxunicode:
        others.append((start, sys.maxunicode))
    return tuple(others)


def _expression(meaning: int | Ranges) -> str:
    return re.escape(chr(meaning)) if isinstance(meaning, int) else _set(meaning)


def _set(ranges: Ranges) -> str:
    """Return a class of exactly these characters."""
    if not ranges:
        return NEVER
    return "[" + "".join(_in_class(first, last) for first, last in ranges) + "]"


def _in_class(first: int, last: int) -> str:
    if first == last:
        return _escaped(first)
    return f"{_escaped(first)}-{_escaped(last)}"


def _escaped(point: int) -> str:
    """Return a character of a class: letters and digits unchanged, all others by number."""
    character = chr(point)
    if character.isascii() and character.isalnum():
        return character
    if point < 0x100:
        return f"\\x{point:02x}"
    if point < 0x10000:
        return f"\\u{point:04x}"
    return f"\\U{point:08x}"
