"""Where readable offsets begin again is found with few attempts, and nothing that can be read is
passed over.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from reactive_kafka.partitions.readable_search import PAUSES, ReadableSearch, UnreadablePlace


@given(st.integers(0, 2**40), st.integers(1, 5_000), st.integers(0, 5_000), st.booleans())
@example(0, 1, 0, False)
@example(7, 5_000, 0, False)
@example(7, 1, 5_000, True)
def test_it_ends_at_the_first_offset_that_can_be_read(
    first: int, bad: int, behind: int, is_told: bool
) -> None:
    good = first + bad
    search, attempts = ReadableSearch(first, good + behind), 0
    while search.until is None:
        attempts += 1
        assert first < search.attempt < good + behind
        if search.attempt < good:
            search.failed(good if is_told and attempts > 2 else None)
        else:
            search.succeeded()
    assert search.until == good
    assert attempts <= 2 * (bad + behind).bit_length() + 1


def test_at_the_end_of_the_log_nothing_is_tried() -> None:
    assert ReadableSearch(5, 6).until == 6
    # One offset at least: that one cannot be read.
    assert ReadableSearch(5, 5).until == 6


def test_the_waits_between_attempts_grow_up_to_a_minute() -> None:
    what, now, waits = UnreadablePlace(5, "", 0.0, None, 0.0), 0.0, []
    for _ in range(9):
        what.again("broken", now)
        waits.append(what.again_at - now)
        now = what.again_at
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert PAUSES.jitter == 0
