"""What a gauge is asked to measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the command line says.

    Args:
        bootstrap: ``host:port`` of the broker.
        group: A consumer group that nobody used before.
        topics: One for each channel.
        given: A rate or a size, as the gauge has it.
        filled: How many records each topic holds.
        began: When the process was started, in nanoseconds of the monotonic clock.
    """

    bootstrap: str
    group: str
    topics: list[str]
    given: int
    filled: int
    began: int
