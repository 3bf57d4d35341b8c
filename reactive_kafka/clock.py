"""Time as an argument, so that tests can control it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Two clocks in seconds.

    Args:
        monotonic: Never jumps: ages, intervals and deadlines are measured with it. It must be the
            event loop's own time, because deadlines computed with it are slept on.
        wall: Seconds since the epoch, for what people read.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


SYSTEM_CLOCK = Clock()
