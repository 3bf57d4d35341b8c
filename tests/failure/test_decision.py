"""What a failure becomes."""

from __future__ import annotations

from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.failure.decision import after_attempt


def test_a_handler_is_called_once_where_nothing_is_said() -> None:
    assert after_attempt(1, RetrySettings()) is None


def test_the_number_of_attempts_counts_all_calls() -> None:
    settings = RetrySettings(max_attempts=3, backoff_s=0.0)
    assert [after_attempt(attempt, settings) for attempt in (1, 2, 3, 4)] == [0.0, 0.0, None, None]


def test_the_wait_doubles_up_to_its_limit() -> None:
    settings = RetrySettings(max_attempts=100, backoff_s=0.2, max_backoff_s=1.5)
    waits = [after_attempt(attempt, settings) for attempt in (1, 2, 3, 4, 5, 99)]
    assert waits == [0.2, 0.4, 0.8, 1.5, 1.5, 1.5]


def test_the_first_wait_is_within_the_limit_too() -> None:
    assert after_attempt(1, RetrySettings(max_attempts=2, backoff_s=5.0, max_backoff_s=1.0)) == 1.0


def test_very_many_attempts_do_not_overflow() -> None:
    settings = RetrySettings(max_attempts=10**9, backoff_s=0.2, max_backoff_s=10.0)
    assert after_attempt(10**6, settings) == 10.0
