"""The waits of a worker's calls: which time of a call is not its handler's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.verdicts.call_waits import CallWaits

A = object()
B = object()


def test_waits_of_several_tasks_count_once_where_they_overlap() -> None:
    waits = CallWaits()
    first = waits.begins(A, 1.0)
    second = waits.begins(A, 2.0)
    waits.ends(first, 3.0)
    waits.ends(second, 4.0)
    assert waits.take_call(A, 10.0) == 3.0


def test_a_wait_that_outlasts_its_call_counts_until_its_end_and_never_in_a_later_call() -> None:
    waits = CallWaits()
    late = waits.begins(A, 1.0)
    assert waits.take_call(A, 5.0) == 4.0
    waits.begins(B, 6.0)
    waits.ends(late, 8.0)
    assert waits.take_call(B, 9.0) == 3.0


def test_another_call_for_the_same_record_has_waits_of_its_own() -> None:
    waits = CallWaits()
    late = waits.begins(A, 1.0)
    waits.next_call()
    waits.ends(late, 5.0)
    assert waits.take_call(A, 6.0) == 0.0


def test_waits_of_earlier_calls_are_none_of_this_call_and_are_taken_together() -> None:
    waits = CallWaits()
    for began in (1.0, 3.0):
        waits.ends(waits.begins(object(), began), began + 0.5)
    waits.ends(waits.begins(B, 5.0), 7.0)
    assert waits.take_call(B, 8.0) == 2.0
    assert waits.take() == 1.0
    assert waits.take() == 0.0


# Ticks at which tasks of one call begin and end to wait; some end after the call.
TASKS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30)), max_size=6)


@given(calls=st.lists(TASKS, min_size=1, max_size=5))
def test_each_call_has_waited_as_many_ticks_as_at_least_one_of_its_tasks(
    calls: list[list[tuple[int, int]]],
) -> None:
    waits = CallWaits()
    events: list[tuple[int, int, str, int, int]] = []
    length = 20
    expected = []
    for number, tasks in enumerate(calls):
        start = number * length
        waited: set[int] = set()
        for task, (begins, lasts) in enumerate(tasks):
            ends = begins + lasts
            waited |= set(range(begins, min(ends, length)))
            if begins < length:
                events.append((start + begins, 1, "begins", number, task))
                events.append((start + ends, 2, "ends", number, task))
        expected.append(len(waited))
        # A call takes its waits before the next one begins at the same tick.
        events.append((start + length, 0, "over", number, 0))
    records = [object() for _ in calls]
    running: dict[tuple[int, int], int] = {}
    found = []
    for tick, _, what, number, task in sorted(events):
        if what == "begins":
            running[number, task] = waits.begins(records[number], float(tick))
        elif what == "ends":
            waits.ends(running.pop((number, task)), float(tick))
        else:
            found.append(waits.take_call(records[number], float(tick)))
    assert found == [pytest.approx(ticks) for ticks in expected]
    assert waits.take() == 0.0
    assert waits.total_s == sum(expected)
