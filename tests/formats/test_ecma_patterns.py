"""Patterns of ECMA-262 match the same texts after they are translated for Python."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.formats.registered.ecma_patterns import PatternError, translated


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        (r"^\p{L}+$", ["Äß", "x", "字"], ["1", "a1", "a\n"]),
        (r"^\p{Lu}\p{Lowercase_Letter}$", ["Äb"], ["äb", "AB"]),
        (r"^\p{gc=Nd}+$", ["12", "٣"], ["x"]),
        (r"^\p{digit}+$", ["42", "৪২"], ["x"]),
        (r"^\p{General_Category=Letter}$", ["é"], ["1"]),
        (r"^[\p{Lu}\d_]+$", ["Ä1_"], ["ä", "٣"]),
        (r"^\P{L}$", ["1", " "], ["a", "é"]),
        (r"^[^\P{L}]$", ["é"], ["1"]),
        (r"^\p{ASCII}$", ["a"], ["é"]),
        (r"^\p{Assigned}$", ["a"], ["\u0378"]),
        (r"^\pL$", ["é"], ["1"]),
        (r"^\d+$", ["12"], ["٣", "12\n"]),
        (r"^\D$", ["٣", "a"], ["1"]),
        (r"^\w+$", ["aZ_9"], ["é"]),
        (r"^\W$", ["é", "-"], ["a"]),
        (r"^[\w.-]+$", ["a-b.c"], ["é"]),
        (r"^[\d-x]+$", ["1-x"], ["2y"]),
        (r"^[a-\d]+$", ["a-1"], ["b"]),
        (r"^[^\W\d]$", ["a", "_"], ["1", "-", "é"]),
        (r"^[\D]$", ["a", "٣"], ["1"]),
        (r"^\s$", [" ", "\t", "\u00a0", "\ufeff", "\u2028"], ["\x1c", "\x85", "a"]),
        (r"^\S$", ["\x1c", "a"], ["\ufeff", " "]),
        # Of a text without characters Python's \B says the opposite.
        (r"^\B", ["", "-a"], ["a"]),
        (r"a\B.", ["ab", "aba"], ["", "a b"]),
        (r"^abc$", ["abc"], ["abc\n", "xabc"]),
        (r"^.$", ["a", "\U0001f600", "\x85"], ["\n", "\r", "\u2028", ""]),
        (r"a\/b", ["a/b"], ["ab"]),
        (r"^\-\@\_\%$", ["-@_%"], ["x"]),
        (r"^\cJ\cj$", ["\n\n"], ["JJ"]),
        (r"^\t\n\v\f\r\0$", ["\t\n\v\f\r\0"], [""]),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"^\x41\u0042\u{43}$", ["ABC"], ["abc"]),
        (r"^\u{1F600}$", ["\U0001f600"], ["a"]),
        (r"^\uD83D\uDE00$", ["\U0001f600"], ["a"]),
        (r"^[\u{1F600}-\u{1F610}]$", ["\U0001f605"], ["\U0001f700"]),
        ("^\U0001f432*$", ["\U0001f432\U0001f432", ""], ["\U0001f432x"]),
        (r"^(?<x>a|b)\k<x>$", ["aa", "bb"], ["ab"]),
        (r"^(a)(b)\2\1$", ["abba"], ["abab"]),
        (r"^(?:(a)|b)\1$", ["aa", "b"], ["ba", "a"]),
        (r"^\1(a)$", ["a"], ["aa"]),
        (r"^(?P<x>a)$", ["a"], ["b"]),
        (r"(?<=a)b", ["ab"], ["cb"]),
        (r"(?<!a)b", ["cb", "b"], ["ab"]),
        (r"^(?=a)a(?!c)", ["ab"], ["ac"]),
        (r"\bfoo\b", ["foo", "éfoo"], ["xfoo"]),
        (r"x\By", ["xy"], ["x y"]),
        (r"[]", [], ["", "a"]),
        (r"^[^]$", ["\n", "a"], [""]),
        (r"^a{2}$", ["aa"], ["a", "a{2}"]),
        (r"^a{,2}$", ["a{,2}"], ["a", "aa"]),
        (r"^{a}]$", ["{a}]"], ["a"]),
        (r"^[[&&~~||-]+$", ["[", "&", "~", "|", "-"], ["a"]),
        (r"(?i)^abc$", ["ABC", "abc"], ["abd"]),
        (r"^(?i:a)b$", ["Ab"], ["AB"]),
        (r"\A[0-9]+\z", ["1"], ["1\n"]),
        (r"^x|y$", ["xa", "by"], ["ax"]),
        (r"^#a b$", ["#a b"], ["ab"]),
        (r"^(?:a|)*?b+?$", ["ab", "b"], ["a"]),
        ("", ["", "a"], []),
    ],
)
def test_a_pattern_matches_what_it_matches_in_ecma(
    pattern: str, matches: list[str], others: list[str]
) -> None:
    found = re.compile(translated(pattern))
    assert [text for text in matches if not found.search(text)] == []
    assert [text for text in others if found.search(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{Script=Greek}",
        r"\p{Emoji}",
        r"\p{",
        r"\p",
        r"[\p{sc=Latin}]",
        r"(?<=a+)b",
        "[",
        "[a",
        "[z-a]",
        "(",
        "a)",
        "*a",
        "\\",
        "[\\",
        r"\q",
        r"\8",
        r"\k<x>",
        r"\c1",
        r"\xZ",
        r"\u{110000}",
        r"\u12",
        "(?<a",
        "(?m)a",
        "(?#x)",
        r"[\1]",
        r"\01",
        "(" * 2_000,
    ],
)
def test_a_pattern_that_python_cannot_express_is_an_error_that_says_why(pattern: str) -> None:
    with pytest.raises(PatternError) as raised:
        translated(pattern)
    assert str(raised.value)


@given(st.text(alphabet=r"ab\()[]{}^$.|?*+-,dDwWsSpPuxkc<>:=!&~L10é", max_size=12))
def test_every_text_is_a_pattern_that_compiles_or_an_error(text: str) -> None:
    try:
        found = translated(text)
    except PatternError:
        return
    re.compile(found)


@given(st.characters())
def test_a_character_in_a_class_is_itself(character: str) -> None:
    escaped = f"\\{character}" if character in "\\]^-" else character
    found = re.compile(translated(f"^[{escaped}]$"))
    assert found.search(character) is not None
    assert found.search(character + "x") is None


def test_translations_can_be_joined() -> None:
    joined = re.compile(
        "|".join(map(translated, (r"^(?<x>a)\k<x>$", r"^(?<x>b)(c)\2$", r"(?i)^d$")))
    )
    assert [text for text in ("aa", "bcc", "D", "d") if not joined.search(text)] == []
    assert [text for text in ("ab", "bc", "B", "A") if joined.search(text)] == []
