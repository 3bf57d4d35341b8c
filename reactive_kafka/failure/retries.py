"""Which failures are followed by another call in place, and when. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping

from reactive_kafka.backoff import Backoff
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.failure.matching import nearest


def is_retried(reason: BaseException, retry: RetrySettings, routes: Mapping[str, bool]) -> bool:
    """Whether a failure may be followed by another call in place.

    A route decides at the first failure, unless *routes* says that it lets the retries go first. Of
    what ``never`` and ``only`` name the nearest class counts, as of routes; without one, whether
    ``only`` names none.
    """
    if not nearest(reason, routes, True):
        return False
    named = dict.fromkeys(retry.only or (), True) | dict.fromkeys(retry.never or (), False)
    return nearest(reason, named, retry.only is None)


def after_attempt(
    attempt: int,
    reason: BaseException,
    retry: RetrySettings,
    routes: Mapping[str, bool],
    chance: float = 0.5,
) -> float | None:
    """After how many seconds another attempt follows number *attempt* (1, 2, ...), which failed;
    None: it is nacked.

    The wait doubles from ``backoff`` up to ``max_backoff``; *chance*, from 0 to 1, makes it shorter
    or longer by up to the share ``jitter`` of it. *routes* is the name of an exception -> whether
    its route lets retries go first.
    """
    if attempt >= retry.max_attempts or not is_retried(reason, retry, routes):
        return None
    wait_s = Backoff(retry.backoff_s, retry.max_backoff_s).wait_s(attempt - 1)
    return wait_s * (1 + retry.jitter * (2 * chance - 1))
