from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.observe.text import one_line


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
