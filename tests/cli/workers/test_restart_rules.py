"""When a worker that has ended is started again."""

from __future__ import annotations

import pytest

from reactive_kafka.cli.workers.restart_rules import (
    FAILING_RESTARTS,
    STABLE_S,
    TERMINATED,
    EndRules,
    RestartDelays,
    exit_code_of,
)

SERVICE = EndRules(exit_on_failure=False, until_end=False)


def test_the_first_restart_does_not_wait_and_later_ones_wait_longer_up_to_half_a_minute() -> None:
    delays = RestartDelays()
    waits = [delays.ended(started_at=now, now=now + 1.0) for now in range(8)]
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_worker_that_ran_for_a_while_is_started_again_at_once() -> None:
    delays = RestartDelays()
    for _ in range(FAILING_RESTARTS):
        delays.ended(started_at=0.0, now=1.0)
    assert delays.keeps_failing

    assert delays.ended(started_at=10.0, now=10.0 + STABLE_S) == 0.0
    assert not delays.keeps_failing


@pytest.mark.parametrize("code", [-9, -15, 0, 1, 2, 70])
def test_a_worker_that_ends_by_itself_is_started_again(code: int) -> None:
    assert SERVICE.after_end(code, is_stopping=False, has_loaded=True) == "restart"


@pytest.mark.parametrize("code", [-9, 0, 1])
def test_no_worker_is_started_again_after_the_stop(code: int) -> None:
    assert SERVICE.after_end(code, is_stopping=True, has_loaded=True) == "finished"


def test_an_application_that_cannot_be_loaded_ends_all() -> None:
    assert SERVICE.after_end(2, is_stopping=False, has_loaded=False) == "end all"
    # Somebody has killed it, which says nothing about the application.
    assert SERVICE.after_end(-9, is_stopping=False, has_loaded=False) == "restart"


@pytest.mark.parametrize("code", [-9, 0, 1])
def test_with_exit_on_failure_any_end_ends_all(code: int) -> None:
    rules = EndRules(exit_on_failure=True, until_end=False)
    assert rules.after_end(code, is_stopping=False, has_loaded=True) == "end all"


def test_with_until_end_a_worker_may_finish_but_one_that_was_killed_is_started_again() -> None:
    rules = EndRules(exit_on_failure=False, until_end=True)
    assert rules.after_end(0, is_stopping=False, has_loaded=True) == "finished"
    assert rules.after_end(1, is_stopping=False, has_loaded=True) == "finished"
    assert rules.after_end(-9, is_stopping=False, has_loaded=True) == "restart"


@pytest.mark.parametrize(
    ("codes", "until_end", "expected"),
    [
        ([0, 0], False, 0),
        ([0, TERMINATED], False, 0),
        ([0, TERMINATED], True, 1),
        ([0, 1], True, 1),
        ([0, 3, 1], False, 3),
        ([-9, 0], False, 1),
    ],
)
def test_the_exit_code_is_that_of_the_first_worker_that_failed(
    codes: list[int], until_end: bool, expected: int
) -> None:
    assert exit_code_of(codes, is_until_end=until_end) == expected
