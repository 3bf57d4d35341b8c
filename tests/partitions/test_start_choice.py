"""Places where a user lets reading begin: offsets, ends, times, so many records from a position."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.partitions.start_choice import (
    Where,
    by,
    check_where,
    chosen_position,
    timestamp_ms,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("where", "at_time", "position"),
    [
        (7, None, 7),
        (99, None, 99),
        # The log's beginning, wherever it is by now.
        (0, None, 5),
        # Not in the log any more: the policy decides.
        (1, None, 1),
        ("beginning", None, 5),
        ("end", None, 9),
        (NOON, 6, 6),
        (NOON, None, 9),
    ],
)
def test_a_start_that_somebody_chose(where: Where, at_time: int | None, position: int) -> None:
    assert chosen_position(where, 5, 9, at_time, lambda: 0) == position


@given(st.integers(0, 50), st.integers(0, 50), st.integers(-10, 110), st.integers(-200, 200))
def test_so_many_records_from_the_position_lie_in_the_log(
    start: int, length: int, position: int, records: int
) -> None:
    found = chosen_position(by(records), start, start + length, None, lambda: position)
    assert start <= found <= start + length
    assert found == position + records or found in (start, start + length)
    assert chosen_position(by(0), start, start + length, None, lambda: start) == start


@pytest.mark.parametrize("where", [0, 12, "beginning", "end", NOON, by(-3)])
def test_offsets_ends_and_aware_times_are_places(where: Where) -> None:
    check_where(where)


@pytest.mark.parametrize(
    ("where", "error", "said"),
    [
        (-1, ValueError, "no offset -1"),
        ("start", ValueError, "'beginning', 'end'"),
        (NOON.replace(tzinfo=None), ValueError, "no time zone"),
        (True, TypeError, "not True"),
        (2.0, TypeError, "not 2.0"),
    ],
)
def test_what_is_no_place_is_refused(where: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        check_where(where)


@pytest.mark.parametrize("records", [True, 1.0, "3", None])
def test_a_number_of_records_is_whole(records: Any) -> None:
    with pytest.raises(TypeError, match="a number of records"):
        by(records)


@given(st.integers(-6 * 10**13, 2 * 10**14))
def test_milliseconds_are_exact_before_and_after_the_epoch(ms: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert timestamp_ms(moment) == ms


def test_a_time_between_two_milliseconds_is_the_later_one_s_so_that_no_earlier_record_comes() -> (
    None
):
    assert timestamp_ms(NOON + timedelta(microseconds=1)) == timestamp_ms(NOON) + 1
