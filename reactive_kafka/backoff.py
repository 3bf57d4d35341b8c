"""How long to wait between attempts."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from one attempt to the next, up to a longest one."""

    # The wait after the first failed attempt.
    first_s: float
    # The longest wait.
    last_s: float
    factor: float = 2.0
    # The largest share of a wait that is subtracted at random. Without it, clients that lost a
    # broker at the same moment would all come back to it at the same moment, after each wait.
    jitter: float = 0.2

    def wait_s(self, attempt: int, chance: float = 0.0) -> float:
        """Return the wait after an attempt (0, 1, ...). *chance*: from 0 (longest wait) to 1."""
        full_s = min(self.first_s * self.factor ** min(attempt, 60), self.last_s)
        return full_s * (1 - self.jitter * chance)

    def draw_s(self, attempt: int) -> float:
        """Return a random wait after an attempt (0, 1, ...)."""
        return self.wait_s(attempt, drawn_chance())


class Waits:
    """The waits of a loop of attempts. They grow until the attempts make progress.

    Every loop that tries again has one. Progress is what the loop is for: a written record, an
    answer, a client that has worked for a while. A first step that worked is not progress: a loop
    that connects, and fails after that, would connect for ever without waiting longer.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._attempt = 0

    def next_s(self) -> float:
        """Return the wait after the attempt that has just failed."""
        wait_s = self._backoff.draw_s(self._attempt)
        self._attempt += 1
        return wait_s

    def progressed(self) -> None:
        """Start again with a short wait, because there was progress."""
        self._attempt = 0


def drawn_chance() -> float:
    """Return a random number from 0 to 1."""
    # A loop in virtual time has its own source: always 0, so that tests can name moments, or a
    # seeded one, so that the same seed is the same run. The loop is asked here, because the callers
    # know nothing of tests.
    loop_chance = getattr(asyncio.get_running_loop(), "chance", None)
    return random.random() if loop_chance is None else loop_chance()
