"""What settings say about an exception: its failure strategy, and whether the call is repeated.

``failure_routes``, ``retry.only`` and ``retry.never`` name classes. Pure.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TypeVar

from reactive_kafka.backoff import Backoff
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import DecodeError, OffloadError
from reactive_kafka.failure.headers import original_error, qualified_name

T = TypeVar("T")


def setting_for(reason: BaseException, by_class: Mapping[str, T], default: T) -> T:
    """Return the setting of the class that is nearest to the exception's own, or *default*.

    The nearest class is the first one along the bases. ``ValueError`` as a name is any class of
    that name; ``package.ValueError`` is the class that is defined there, or can be imported from
    there.

    A ``DecodeError`` and an ``OffloadError`` have a cause that users name in their routes, such as
    pydantic's ``ValidationError``. The classes of the cause are looked at, too, and win if both are
    equally near.
    """
    if not by_class:
        return default
    reason = original_error(reason)
    candidates = [reason]
    if isinstance(reason, DecodeError | OffloadError) and reason.__cause__ is not None:
        candidates.insert(0, reason.__cause__)
    nearest_distance: int | None = None
    setting = default
    for candidate in candidates:
        found = _nearest(type(candidate), by_class)
        if found is not None and (nearest_distance is None or found[0] < nearest_distance):
            nearest_distance, setting = found
    return setting


def is_retried(reason: BaseException, retry: RetrySettings, routes: Mapping[str, bool]) -> bool:
    """Return whether another call in place may follow a failure.

    A route decides at the first failure, unless it lets the retries go first. After that the
    nearest class that ``only`` or ``never`` names decides. Without one the call is repeated unless
    there is an ``only``.

    Args:
        routes: Name of an exception class -> whether its route lets the retries go first.
    """
    if not setting_for(reason, routes, True):
        return False
    named = dict.fromkeys(retry.only or (), True) | dict.fromkeys(retry.never or (), False)
    return setting_for(reason, named, retry.only is None)


def after_attempt(
    attempt: int,
    reason: BaseException,
    retry: RetrySettings,
    routes: Mapping[str, bool],
    chance: float = 0.5,
) -> float | None:
    """Return after how many seconds the call is repeated; None if the record is nacked.

    The wait doubles from ``backoff`` up to ``max_backoff``.

    Args:
        attempt: The number of the call that failed: 1, 2, ...
        routes: As of :func:`is_retried`.
        chance: From 0 to 1: makes the wait shorter or longer, by up to the share ``jitter`` of it.
    """
    if attempt >= retry.max_attempts or not is_retried(reason, retry, routes):
        return None
    wait_s = Backoff(retry.backoff_s, retry.max_backoff_s).wait_s(attempt - 1)
    return wait_s * (1 + retry.jitter * (2 * chance - 1))


def _nearest(kind: type[BaseException], by_class: Mapping[str, T]) -> tuple[int, T] | None:
    """Return how many bases away the nearest named class is, and its setting."""
    # Dotted names come first: of two names for the same class they say more.
    names = sorted(by_class, key=lambda name: "." not in name)
    for distance, base in enumerate(kind.__mro__):
        for name in names:
            if _is_named(base, name):
                return distance, by_class[name]
    return None


def _is_named(kind: type, name: str) -> bool:
    if name in (kind.__name__, qualified_name(kind)):
        return True
    return "." in name and _is_exported(name, kind)


def _is_exported(name: str, kind: type) -> bool:
    """Whether the class can be imported by *name*, though it is defined in another module.

    ``pydantic.ValidationError`` is one: it is defined in pydantic_core.
    """
    module, _, attribute = name.rpartition(".")
    # The module's __dict__ is read directly: getattr would call a module's own __getattr__.
    return getattr(sys.modules.get(module), "__dict__", {}).get(attribute) is kind
