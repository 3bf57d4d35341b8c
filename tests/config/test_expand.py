from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.layers import expand

ENVIRON = {"HOST": "kafka", "PORT": "9092", "EMPTY": "", "REFERENCE": "${HOST}"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${HOST}:${PORT}", "kafka:9092"),
        ("${NOT_SET:-localhost}:1", "localhost:1"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${NOT_SET:-}", ""),
        ("${NOT_SET:-${HOST}}!", "kafka!"),
        ("${NOT_SET:-${ALSO_NOT:-a}b}c", "abc"),
        ("${REFERENCE}", "${HOST}"),
        ("$${HOST}", "${HOST}"),
        ("$HOST $ }{", "$HOST $ }{"),
        ("${NOT_SET:-a:-b}", "a:-b"),
    ],
)
def test_references_are_replaced(text: str, result: str) -> None:
    assert expand(text, ENVIRON) == result


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"^\$\{NOT_SET\} is not set and has no default; set NOT_SET or write"
    ):
        expand("a ${NOT_SET} b", ENVIRON)


@pytest.mark.parametrize("text", ["${HOST", "${}", "${HOST:default}", "${A B}", "${NOT:-${HOST}"])
def test_a_reference_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"write \$\$\{ for a plain"):
        expand(text, ENVIRON)


@given(st.text())
def test_what_a_variable_holds_is_taken_as_it_is(value: str) -> None:
    assert expand("<${V}>", {"V": value}) == f"<{value}>"


@given(st.text())
def test_a_text_without_references_stays_the_same(text: str) -> None:
    plain = text.replace("${", "")
    assert expand(plain, {}) == plain
