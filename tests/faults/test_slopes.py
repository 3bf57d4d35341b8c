"""What processes use: each rule fails on bad numbers made by hand, and holds on good ones."""

from __future__ import annotations

import pytest

from tests.faults.slopes import Away, Growth, Point, Sample, growing, loud, series, slope, too_big

GROWTHS = {
    name: Growth(2, 10) for name in ("memory_mb", "threads", "descriptors", "sockets", "tasks")
}


def samples(**by_hour: float) -> list[Sample]:
    """One a minute of an hour, of a process in which numbers grow by so much in it, with some
    noise.
    """
    quiet = Sample(0, "a.1", 60, 3, 20, 8, 0, 0)
    made = []
    for minute in range(61):
        grown = {
            name: getattr(quiet, name) + rate * minute / 60 + minute % 2 / 2
            for name, rate in by_hour.items()
        }
        made.append(quiet._replace(t=60.0 * minute, **grown))
    return made


def found(
    taken: list[Sample], tasks: float = 0.0, start: float = 0, end: float = 3600
) -> list[str]:
    counted = [(sample.process, sample.t, int(30 + tasks * sample.t / 3600)) for sample in taken]
    return [str(violation) for violation in growing(series(taken, counted), start, end, GROWTHS)]


def test_a_slope_is_that_of_least_squares() -> None:
    assert slope([Point(1, 3), Point(2, 5), Point(3, 7)]) == 2
    assert slope([Point(0, 0), Point(1, 1), Point(2, 0)]) == 0
    assert slope([Point(5, 9)]) == slope([]) == 0


@pytest.mark.parametrize("what", ["memory_mb", "threads", "descriptors", "sockets"])
def test_what_grows_by_more_than_it_may_is_found_and_what_grows_by_less_is_not(what: str) -> None:
    assert found(samples(**{what: 11})) == []
    (violation,) = found(samples(**{what: 14}))
    invariant = "I8" if what == "memory_mb" else "I9"
    assert violation.startswith(f"{invariant}: a.1: {what} grew by 14.")
    assert violation.endswith("in 3600 s, not 12.0")


def test_tasks_that_are_left_behind_are_found() -> None:
    assert found(samples(), tasks=11) == []
    assert len(found(samples(), tasks=14)) == 1


def test_a_process_that_starts_loads_its_modules_and_leaks_nothing() -> None:
    taken = [
        sample._replace(memory_mb=sample.t / 10) if sample.t < 600 else sample
        for sample in samples()
    ]
    counted = [(sample.process, sample.t, 30) for sample in taken if sample.t >= 600]
    assert list(growing(series(taken, counted), 0, 3600, GROWTHS)) == []
    always = [(sample.process, sample.t, 30) for sample in taken]
    assert len(list(growing(series(taken, always), 0, 3600, GROWTHS))) == 1


def test_what_had_grown_before_the_window_is_no_leak() -> None:
    jump = [sample._replace(memory_mb=90) if sample.t > 600 else sample for sample in samples()]
    assert found(jump, start=1800) == []
    assert len(found(jump)) == 1


def test_a_process_that_does_not_live_through_the_window_is_not_judged_and_somebody_must() -> None:
    short = [sample for sample in samples(memory_mb=500) if sample.t < 2000]
    assert sorted(found(short)) == [
        f"I9: no process shows its {what} from 0 to 3600" for what in sorted(GROWTHS)
    ]
    other = [sample._replace(process="b.1") for sample in samples()]
    assert found(short + other) == []


def test_a_process_that_was_too_big_once_is_found() -> None:
    assert list(too_big(samples(), 61)) == []
    (violation,) = too_big([*samples(), samples()[0]._replace(memory_mb=200)], 100)
    assert str(violation) == "I8: a.1: 200 MB, and 100 may be"


def away(*processes: str) -> list[Away]:
    return [Away(name="a cut", start=600, end=1200, processes=frozenset(processes))]


def test_a_process_that_spins_while_something_is_away_is_found() -> None:
    busy = samples(cpu_s=3600 * 0.5)
    assert list(loud(busy, away("a.1"), most_cpu=0.6, most_lines=1)) == []
    (violation,) = loud(busy, away("a.1"), most_cpu=0.4, most_lines=1)
    assert str(violation) == "I11: a.1: 300.0 s of a core in 600.0 s of a cut"


def test_a_process_that_floods_its_log_while_something_is_away_is_found() -> None:
    talks = samples(lines=3600 * 2)
    assert list(loud(talks, away("a.1"), most_cpu=0.4, most_lines=3)) == []
    (violation,) = loud(talks, away("a.1"), most_cpu=0.4, most_lines=1)
    assert str(violation) == "I11: a.1: 1200 lines in 600.0 s of a cut"
    before = [sample._replace(lines=0 if sample.t < 1300 else 9000) for sample in samples()]
    assert list(loud(before, away("a.1"), most_cpu=0.4, most_lines=1)) == []


def test_a_process_of_which_nothing_is_known_while_something_is_away_is_told() -> None:
    (violation,) = loud(samples(), away("a.1", "b.1"), most_cpu=1, most_lines=1)
    assert str(violation) == "I11: b.1: nothing is known of it during a cut"
