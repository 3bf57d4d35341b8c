"""The bar of a partition."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.http.partition_marks import WIDTH, Mark, marks_of, marks_text


def partition(**changes: Any) -> dict[str, Any]:
    plain = {
        "topic": "orders",
        "partition": 0,
        "committed": 100,
        "position": 200,
        "log_end": 300,
        "settled_above": [[110, 120], [150, 151]],
    }
    return plain | changes


def test_the_parts_are_settled_open_and_unread() -> None:
    assert marks_of(partition()) == [
        Mark("open", 0.0, 150.0),
        Mark("settled", 15.0, 15.0),
        Mark("settled", 75.0, 1.5),
        Mark("unread", 150.0, 50.0),
    ]


def test_a_partition_that_is_read_to_its_end_has_no_unread_part() -> None:
    marks = marks_of(partition(log_end=200, settled_above=[]))
    assert marks == [Mark("open", 0.0, WIDTH)]
    assert marks_of(partition(committed=200, log_end=200, settled_above=[])) == []
    assert marks_of(partition(log_end=None, settled_above=[])) == [Mark("open", 0.0, WIDTH)]


def test_a_partition_of_which_nothing_is_read_is_unread() -> None:
    assert marks_of(partition(committed=None, settled_above=[])) == [Mark("unread", 0.0, WIDTH)]


def test_the_words_say_all_four_marks() -> None:
    assert marks_text(partition()) == (
        "orders-0: committed 100, settled above it 110 to 119, 150 to 150, read 200, end 300"
    )
    assert marks_text(partition(committed=None, settled_above=[], log_end=None)) == (
        "orders-0: committed nothing, settled above it nothing, read 200, end unknown"
    )


@given(
    st.none() | st.integers(0, 10**15),
    st.integers(0, 10**15),
    st.none() | st.integers(0, 10**15),
    st.lists(st.tuples(st.integers(0, 10**15), st.integers(1, 10**6)), max_size=5),
)
def test_no_mark_leaves_the_bar(
    committed: int | None, position: int, log_end: int | None, ranges: list[tuple[int, int]]
) -> None:
    settled = sorted([first, first + length] for first, length in ranges)
    marks = marks_of(
        partition(committed=committed, position=position, log_end=log_end, settled_above=settled)
    )
    for mark in marks:
        assert -0.01 <= mark.start <= WIDTH
        assert mark.width > 0
        assert mark.start + mark.width <= WIDTH + 1.01
