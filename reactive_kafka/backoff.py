"""How long to wait between attempts."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from one attempt to the next, up to a longest one."""

    # The wait after the first attempt.
    first_s: float
    # No wait is longer.
    last_s: float
    factor: float = 2.0
    # The largest share of a wait that chance takes off. Clients that lost a broker at the same
    # moment would all come back to it at the same moment too, after each wait.
    jitter: float = 0.2

    def wait_s(self, attempt: int, chance: float = 0.0) -> float:
        """The wait after an attempt (0, 1, ...), for a *chance* between 0, the longest wait, and
        1.
        """
        return min(self.first_s * self.factor ** min(attempt, 60), self.last_s) * (
            1 - self.jitter * chance
        )

    def draw_s(self, attempt: int) -> float:
        """The wait after an attempt (0, 1, ...), by chance."""
        return self.wait_s(attempt, drawn_chance())


class Waits:
    """The waits of one row of attempts, which grow until the attempts make progress.

    Every loop that tries again has one. Progress is what the loop is for: a record that was
    written, an answer that was asked for, a client that has worked for a while. A first step that
    worked is none. A loop that connects, and fails at what comes after that, would otherwise
    connect without end and never wait longer.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._attempt = 0

    def next_s(self) -> float:
        """The wait after the attempt that has just failed."""
        wait_s = self._backoff.draw_s(self._attempt)
        self._attempt += 1
        return wait_s

    def progressed(self) -> None:
        """There was progress: the next wait is a first one."""
        self._attempt = 0


def drawn_chance() -> float:
    """A number from 0 to 1, by chance."""
    # A loop in virtual time has chance of its own: none, so that tests can name moments, or that of
    # a seed, so that the same seed is the same run. It is asked here, because those who wait know
    # nothing of tests.
    own = getattr(asyncio.get_running_loop(), "chance", None)
    return random.random() if own is None else own()
