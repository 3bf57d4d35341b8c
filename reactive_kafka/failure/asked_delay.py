"""The delay that a handler asks for, with ``Later`` or ``retry_later``. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeGuard

from reactive_kafka.config.kinds import parse_duration

SHORTEST_S = 0.1
"""The shortest delay.

Handlers compute delays: services answer with ``Retry-After: 0``, and the time that they name may
have passed. Without a wait they would be asked again without end.
"""

EXPECTED_DELAY = 'expected seconds, a timedelta, or a text such as "500ms", "5s", "2m", "1h"'


def asked_delay_s(delay: float | str | timedelta) -> float | None:
    """Return the seconds of a delay, ``SHORTEST_S`` at least; None: it is no delay.

    A text of digits is seconds, as in the header ``Retry-After``.
    """
    given = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(given, str) and given.isascii() and given.strip().isdigit():
        given = float(given)
    seconds = parse_duration(max(given, 0) if _is_number(given) else given)
    return None if seconds is None else max(seconds, SHORTEST_S)


def _is_number(given: object) -> TypeGuard[float]:
    return isinstance(given, int | float) and not isinstance(given, bool)
