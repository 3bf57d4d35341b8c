from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.wording import first_of


@given(st.text(alphabet=st.characters()), st.integers(10, 50))
def test_any_text_is_one_printable_line_within_the_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert line.isprintable()
    assert len(line.splitlines()) <= 1
    assert len(line) <= limit


def test_line_breaks_colours_and_surrogates_are_written_as_escapes() -> None:
    assert one_line("a\r\nb\x1b[31m\u2028\udc80\u202e") == r"a\r\nb\x1b[31m\u2028\udc80\u202e"


def test_plain_text_stays_as_it_is() -> None:
    assert one_line("Zürich, 東京: 5 °C") == "Zürich, 東京: 5 °C"


def test_of_many_the_first_are_named_and_the_others_counted() -> None:
    assert [first_of("abcd"[:count], 2) for count in range(5)] == [
        "",
        "a",
        "a, b",
        "a, b and 1 more",
        "a, b and 2 more",
    ]
