"""Which failures are tried again in place, and when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.errors import DecodeError, OffloadError
from reactive_kafka.failure.routes import after_attempt, is_retried
from tests.config.values import retry_settings

ERROR = ValueError()


def waits(retry: Any, *attempts: int, chance: float = 0.5) -> list[float | None]:
    return [after_attempt(attempt, ERROR, retry, {}, chance) for attempt in attempts]


def test_a_handler_is_called_once_where_nothing_is_said() -> None:
    assert waits(retry_settings(), 1) == [None]


def test_the_number_of_attempts_counts_all_calls() -> None:
    assert waits(retry_settings(max_attempts=3, backoff_s=0.0), 1, 2, 3, 4) == [
        0.0,
        0.0,
        None,
        None,
    ]


def test_the_wait_doubles_up_to_its_limit() -> None:
    settings = retry_settings(max_attempts=100, backoff_s=0.2, max_backoff_s=1.5)
    assert waits(settings, 1, 2, 3, 4, 5, 99) == [0.2, 0.4, 0.8, 1.5, 1.5, 1.5]


def test_the_first_wait_is_within_the_limit_too() -> None:
    assert waits(retry_settings(max_attempts=2, backoff_s=5.0, max_backoff_s=1.0), 1) == [1.0]


def test_very_many_attempts_do_not_overflow() -> None:
    assert waits(retry_settings(max_attempts=10**9, backoff_s=0.2, max_backoff_s=10.0), 10**6) == [
        10.0
    ]


@given(st.floats(0, 1), st.floats(0, 1))
def test_chance_makes_a_wait_shorter_or_longer_by_no_more_than_its_share(
    jitter: float, chance: float
) -> None:
    retry = retry_settings(max_attempts=9, backoff_s=1.0, jitter=jitter)
    (wait,) = waits(retry, 1, chance=chance)
    assert wait is not None
    assert 1 - jitter <= wait <= 1 + jitter
    assert waits(retry, 1, chance=0.0) == [1 - jitter]
    assert waits(retry, 1, chance=1.0) == [1 + jitter]


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("reason", "retry", "routes", "answer"),
    [
        (KeyError(), {}, {}, True),
        (KeyError(), {"never": ("KeyError",)}, {}, False),
        (KeyError(), {"never": ("LookupError",)}, {}, False),
        (KeyError(), {"never": ("ValueError",)}, {}, True),
        (KeyError(), {"only": ("LookupError",)}, {}, True),
        (KeyError(), {"only": ("builtins.KeyError",)}, {}, True),
        (KeyError(), {"only": ("ValueError",)}, {}, False),
        (ConnectionResetError(), {"only": ("ConnectionError",), "never": ("OSError",)}, {}, True),
        (PermissionError(), {"only": ("OSError",), "never": ("PermissionError",)}, {}, False),
        (KeyError(), {}, {"KeyError": False}, False),
        (KeyError(), {}, {"LookupError": False}, False),
        (KeyError(), {}, {"KeyError": True}, True),
        (KeyError(), {}, {"KeyError": True, "LookupError": False}, True),
        (KeyError(), {}, {"ValueError": False}, True),
        (KeyError(), {"never": ("KeyError",)}, {"KeyError": True}, False),
        (caused(DecodeError("no"), KeyError()), {}, {"KeyError": False}, False),
        (caused(OffloadError("no"), KeyError()), {"never": ("KeyError",)}, {}, False),
    ],
)
def test_the_nearest_class_says_whether_there_is_another_call(
    reason: Exception, retry: dict[str, Any], routes: dict[str, bool], answer: bool
) -> None:
    assert is_retried(reason, retry_settings(**retry), routes) is answer
    more = after_attempt(1, reason, retry_settings(max_attempts=2, **retry), routes)
    assert (more is not None) is answer
