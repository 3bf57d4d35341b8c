"""The syntax of properties files, as ``java.util.Properties`` has it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.microprofile.properties_syntax import (
    MOST_ENTRIES,
    PropertiesError,
    entries,
)
from tests.spark.javas import java_program

SIGNS = st.text(alphabet="ab=: \t\f\\#!\n\r$u0041étn", max_size=40)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(one.key, one.value) for one in entries(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("a b", [("a", "b")]),
        ("a", [("a", "")]),
        ("  a \t = \f b  ", [("a", "b  ")]),
        ("a==b", [("a", "=b")]),
        ("a = : b", [("a", ": b")]),
        ("=b", [("", "b")]),
        ("# a=b\n ! c=d\n\n\t\n", []),
        ("a=b # no comment", [("a", "b # no comment")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        (r"a\=b\:c\ d = e\=f", [("a=b:c d", "e=f")]),
        ("a=b\\\n   c", [("a", "bc")]),
        ("a=b\\\r\n\tc\rd=e", [("a", "bc"), ("d", "e")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\\n# c", [("a", "b# c")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("\\\n# comment\na=b", [("a", "b")]),
        ("a=b\\", [("a", "b")]),
        (r"a=\t\n\r\f\x\"", [("a", '\t\n\r\fx"')]),
        (r"a=\u00e9\u0041", [("a", "éA")]),
        (r"a=\uD83D\uDE00", [("a", "😀")]),
        ("a=é😀", [("a", "é😀")]),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, found: list[tuple[str, str]]) -> None:
    assert pairs(text) == found


def test_an_entry_has_the_line_that_it_begins_on() -> None:
    assert [one.line for one in entries("# c\n\na=b\\\n  c\\\n\nd=e\r\nf\rg")] == [3, 6, 7, 8]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\na=\\u12", "four hexadecimal digits"),
        ("\na=\\uZZZZ", "four hexadecimal digits"),
        ("\na=\\u", "four hexadecimal digits"),
        ("\na\\u=b", "four hexadecimal digits"),
        ("\na=\\uD83D", "half of a character"),
    ],
)
def test_what_no_java_reads_says_where(text: str, said: str) -> None:
    with pytest.raises(PropertiesError, match=said) as caught:
        entries(text)
    assert caught.value.line == 2


def test_too_many_entries_are_refused() -> None:
    with pytest.raises(PropertiesError, match="more than 20000 entries"):
        entries("a=b\n" * (MOST_ENTRIES + 1))


def stored(key: str, value: str) -> str:
    """A line as ``Properties.store`` writes it."""

    def escaped(text: str, blanks: bool) -> str:
        written = ""
        for sign in text.encode("utf-16-le").decode("utf-16-le"):
            if sign in "=:#!\\" or (sign == " " and (blanks or not written)):
                written += "\\" + sign
            elif sign in "\t\n\r\f":
                written += {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}[sign]
            elif not " " <= sign <= "~":
                units = sign.encode("utf-16-be")
                written += "".join(
                    f"\\u{units[at : at + 2].hex().upper()}" for at in range(0, len(units), 2)
                )
            else:
                written += sign
        return written

    return f"{escaped(key, True)}={escaped(value, False)}\n"


@given(st.lists(st.tuples(st.text(), st.text())))
def test_what_java_stores_is_read_again(written: list[tuple[str, str]]) -> None:
    assert pairs("".join(stored(key, value) for key, value in written)) == written


def read_sign_by_sign(text: str) -> list[tuple[str, str]]:
    """Another way to read it: ``LineReader`` and ``load0`` of ``java.util.Properties``, a character
    at a time.
    """
    lines, line, blank, appended, slash, comment = [], "", True, False, False, False
    at = 0
    while at < len(text):
        sign = text[at]
        at += 1
        if comment:
            comment = sign not in "\r\n"
            continue
        if blank:
            if sign in " \t\f" or (not appended and sign in "\r\n"):
                continue
            blank = appended = False
        if not line and sign in "#!":
            comment = blank = True
            continue
        if sign not in "\r\n":
            line += sign
            slash = sign == "\\" and not slash
        elif not line:
            blank = True
        elif slash:
            line, blank, appended, slash = line[:-1], True, True, False
            if sign == "\r" and text[at : at + 1] == "\n":
                at += 1
        else:
            lines.append(line)
            line, blank = "", True
    lines += [line[:-1] if slash else line] if line else []
    found = []
    for one in lines:
        end, slash = 0, False
        while end < len(one) and (slash or one[end] not in "=: \t\f"):
            slash = one[end] == "\\" and not slash
            end += 1
        start, has_sign = end, False
        while start < len(one) and (one[start] in " \t\f" or (one[start] in "=:" and not has_sign)):
            has_sign = has_sign or one[start] in "=:"
            start += 1
        found.append((unescaped(one[:end]), unescaped(one[start:])))
    return found


def unescaped(text: str) -> str:
    done, at = "", 0
    while at < len(text):
        sign, at = text[at], at + 1
        if sign == "\\" and at < len(text):
            sign, at = text[at], at + 1
            if sign == "u":
                if len(text) < at + 4 or not all(
                    one in "0123456789abcdefABCDEF" for one in text[at : at + 4]
                ):
                    raise ValueError
                sign, at = chr(int(text[at : at + 4], 16)), at + 4
            else:
                sign = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(sign, sign)
        elif sign == "\\":
            continue
        done += sign
    return done


def read_or_none(text: str) -> dict[str, str] | None:
    """As Java keeps it, without the empty key: to Java a backslash alone at the end is one."""
    try:
        return {key: value for key, value in pairs(text) if key}
    except PropertiesError:
        return None


@given(SIGNS)
def test_any_text_is_read_as_it_is_sign_by_sign(text: str) -> None:
    try:
        expected: dict[str, str] | None = {
            key: value for key, value in read_sign_by_sign(text) if key
        }
    except ValueError:
        expected = None
    assert read_or_none(text) == expected


@pytest.mark.spark
def test_any_text_is_read_as_java_itself_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 texts, full of the signs that mean something."""
    from py4j import java_gateway, protocol
    from py4j.java_gateway import JavaGateway
    from py4j.protocol import Py4JJavaError

    # Where a test before has used Spark, PySpark takes errors of any Java process for Spark's.
    monkeypatch.setattr(java_gateway, "get_return_value", protocol.get_return_value)

    (jar,) = (Path(pyspark_folder()) / "jars").glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(jar), java_path=str(java_program()), die_on_exit=True
    )
    draw = Random(16)
    try:
        for _ in range(2000):
            text = "".join(draw.choices("ab=: \t\f\\#!\n\r$u0041étn", k=draw.randrange(30)))
            properties = gateway.jvm.java.util.Properties()
            try:
                properties.load(gateway.jvm.java.io.StringReader(text))
                expected: dict[str, str] | None = {
                    key: value for key, value in dict(properties).items() if key
                }
            except Py4JJavaError as error:
                assert "Malformed" in str(error)
                expected = None
            assert read_or_none(text) == expected, json.dumps(text)
    finally:
        gateway.shutdown()


def pyspark_folder() -> str:
    import pyspark

    return pyspark.__path__[0]
