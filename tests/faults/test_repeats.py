"""How much one fault has repeated: counted for the process that had it before."""

from __future__ import annotations

from tests.faults.checker import Disruption
from tests.faults.history import Event
from tests.faults.repeats import oldest, repeats, too_many_repeated
from tests.faults.test_checker import TP, begin, end

BEFORE: list[Event] = [begin(1.0, 0), end(1.1, 0), begin(1.2, 1), end(1.3, 1), begin(1.4, 2)]
KILLED = Disruption("a.1", 1.5, 1.5)
AGAIN: list[Event] = [
    begin(2.0, 0, "b.1"),
    begin(2.1, 1, "b.1"),
    end(2.2, 1, "b.1"),
    begin(2.3, 2, "b.1"),
]


def test_what_another_process_begins_again_counts_for_the_one_that_had_it_before() -> None:
    assert [(one.place, one.process, one.by) for one in repeats(BEFORE + AGAIN)] == [
        ((TP, offset), "a.1", "b.1") for offset in (0, 1, 2)
    ]
    assert repeats(BEFORE) == []


def test_a_retry_in_place_is_no_repeat() -> None:
    retry = Event(t=1.05, process="a.1", kind="begin", tp=TP, offset=0, id="id-0-0", attempt=2)
    assert repeats([*BEFORE, retry]) == []


def test_more_repeated_records_than_a_kill_may_cost_are_found() -> None:
    assert list(too_many_repeated(BEFORE + AGAIN, [KILLED], 3)) == []
    for disruptions in ([KILLED], []):
        (found,) = too_many_repeated(BEFORE + AGAIN, disruptions, 2)
        assert str(found) == "I7: a.1: one fault had 3 of its records repeated, and 2 may be"


def test_the_bound_is_for_each_process() -> None:
    third = [begin(3.0, 0, "c.1"), begin(3.1, 1, "c.1"), begin(3.2, 2, "c.1")]
    assert list(too_many_repeated(BEFORE + AGAIN + third, [KILLED], 3)) == []


def test_the_bound_is_for_each_fault_that_hits_a_process() -> None:
    later = [begin(5.0, 3), begin(5.1, 4), begin(7.0, 3, "b.1"), begin(7.1, 4, "b.1")]
    frozen = [Disruption("a.1", 1.5, 1.9), Disruption("a.1", 6.0, 6.5), Disruption("b.1", 6.9, 6.9)]
    assert list(too_many_repeated(BEFORE + AGAIN + later, frozen, 3)) == []
    assert len(list(too_many_repeated(BEFORE + AGAIN + later, frozen, 2))) == 1
    assert len(list(too_many_repeated(BEFORE + AGAIN + later, frozen, 1))) == 2
    assert len(list(too_many_repeated(BEFORE + AGAIN + later, frozen[:1], 3))) == 1


def test_the_oldest_repeated_record_is_told_by_its_end_before_the_kill() -> None:
    assert round(oldest(BEFORE + AGAIN, [KILLED]), 6) == 0.4
    assert oldest(BEFORE, [KILLED]) == 0.0


def test_the_oldest_repeated_record_is_told_for_the_fault_before_its_repetition() -> None:
    later = Disruption("a.1", 9.0, 9.0)
    assert round(oldest(BEFORE + AGAIN, [KILLED, later]), 6) == 0.4
    assert oldest(BEFORE + AGAIN, [later]) == 0.0
