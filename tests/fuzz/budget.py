"""One input of a target, under a budget of time and memory."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType

LONGEST_S = 5.0
"""Of processor time for one input; most take a thousandth of that."""
HANGS_S = 30.0
MOST_KIB = 256 * 1024
"""By which one input may raise the most memory that the process has ever had."""

Target = Callable[[Random], None]


class OverBudget(Exception):
    """One input took too much time or memory."""


def play(name: str, target: Target, seed: int) -> None:
    """Feed *target* with the input of a seed; raises what comes of it, or OverBudget."""
    draw = Random(f"{name} {seed}")
    began, had = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with _alarm():
        target(draw)
    took_s, has = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if took_s > LONGEST_S:
        raise OverBudget(f"{took_s:.1f} s of processor time")
    if has - had > MOST_KIB:
        raise OverBudget(f"{(has - had) // 1024} MiB of memory")


@contextmanager
def _alarm() -> Iterator[None]:
    """End with OverBudget what does not end by itself; in the main thread only, for signals arrive
    there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, frame: FrameType | None) -> None:
        at = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "nowhere"
        raise OverBudget(f"no end within {HANGS_S:g} s, at {at}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
