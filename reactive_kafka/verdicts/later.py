"""``Later``: a handler asks to be called again with the same record after a delay. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal, get_args

from reactive_kafka.config.kinds import show_duration
from reactive_kafka.failure.asked_delay import EXPECTED_DELAY, asked_delay_s

LaterScope = Literal["record", "partition", "channel"]

_SCOPES: tuple[LaterScope, ...] = get_args(LaterScope)
"""The narrowest first."""


class Later(Exception):
    """Raise it in a handler to be called again with the same record, or batch, after a delay.

    The record keeps its place: what its order puts behind it waits. This is no failure: no retry
    is used up, nothing is nacked, ``message.attempt`` stays the same, and the record does not age.
    A rebalance or a stop ends the wait: the next owner handles the record at once.

    Args:
        delay: How long to wait: seconds, a text such as ``"200s"``, or a timedelta. A text of
            digits is seconds, as in the header ``Retry-After``. Anything below 0.1 s counts as
            0.1 s, also a time that has passed already.
        scope: What waits. ``"record"``: this record. ``"partition"``: no other record of its
            partition starts until then, and no retry. ``"channel"``: none of the channel, in this
            process.

    Raises:
        ValueError: The delay or the scope is none. As any error of the handler it becomes a nack.
    """

    def __init__(self, delay: float | str | timedelta, scope: LaterScope = "record") -> None:
        super().__init__(delay, scope)
        delay_s = asked_delay_s(delay)
        if delay_s is None:
            raise ValueError(f"Later: delay = {delay!r}: {EXPECTED_DELAY}")
        # In seconds.
        self.delay_s = delay_s
        self.scope = scope
        if scope not in _SCOPES:
            raise ValueError(f"Later: scope = {scope!r}: expected one of {', '.join(_SCOPES)}")

    def __str__(self) -> str:
        if not _is_complete(self):
            return f"{type(self).__name__} has no delay: its __init__ has to call Later's"
        return f"again in {show_duration(self.delay_s)} ({self.scope})"


def later_of(error: BaseException) -> Later | None:
    """Return what a handler asks for; None: the error is a failure.

    A task group raises what its tasks raise as a group. If all of them ask for a delay, the longest
    delay and the widest scope count.
    """
    if isinstance(error, Later):
        return error if _is_complete(error) else None
    if not isinstance(error, BaseExceptionGroup):
        return None
    asked = []
    for part in _parts(error):
        if not isinstance(part, Later) or not _is_complete(part):
            return None
        asked.append(part)
    longest = max(asked, key=lambda later: later.delay_s)
    widest = max(asked, key=lambda later: _SCOPES.index(later.scope))
    return longest if longest.scope == widest.scope else Later(longest.delay_s, widest.scope)


def _is_complete(later: Later) -> bool:
    """Whether it says how long what waits. An __init__ of a subclass may have left that out."""
    return hasattr(later, "delay_s") and hasattr(later, "scope")


def _parts(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for part in group.exceptions:
        if isinstance(part, BaseExceptionGroup):
            yield from _parts(part)
        else:
            yield part


def failure_in(error: BaseException | None) -> BaseException | None:
    """Return *error*, or None if there is none or a handler asks for a delay by it."""
    return None if error is None or later_of(error) is not None else error
