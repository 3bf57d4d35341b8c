"""A place of a log that cannot be read: when to try it again, and how to find where it ends. No
I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from reactive_kafka.backoff import Backoff

UNREADY_S = 5.0
"""How long a partition may be unreadable before the channel is not ready: bytes may be broken on
the way only.
"""

PAUSES = Backoff(0.5, 60.0, jitter=0.0)
"""How long a partition is left alone between two attempts."""


class ReadableSearch:
    """Finds where readable offsets begin again, by trying some: all below cannot be read, all from
    there on can.

    It is needed only where the bytes of a batch do not say where it ends, or the broker does not
    hand them out. It tries offsets that are further and further away, then those between the last
    that failed and the first that did not, so it takes a few fetches, and passes over nothing that
    can be read.

    Args:
        bad: The offset that cannot be read.
        end: The end of the log, which counts as readable: nothing has to be passed over there.
    """

    def __init__(self, bad: int, end: int) -> None:
        self.first = bad
        self._bad = bad
        self._good = max(end, bad + 1)
        self._step = 1
        # A readable offset was found: it is searched for below that.
        self._is_close = False

    @property
    def until(self) -> int | None:
        """Where readable offsets begin, once that is known."""
        return self._good if self._good == self._bad + 1 else None

    @property
    def attempt(self) -> int:
        """The offset to try next."""
        if self._is_close:
            return (self._bad + self._good) // 2
        return min(self._bad + self._step, self._good - 1)

    def failed(self, until: int | None) -> None:
        """The attempt cannot be read, either; it is known where its batch ends, or None."""
        self._bad = max(self.attempt, min(until or 0, self._good) - 1)
        self._step *= 2

    def succeeded(self) -> None:
        """The attempt can be read."""
        self._good = self.attempt
        self._is_close = True


@dataclass(slots=True, eq=False)
class UnreadablePlace:
    """What of one partition cannot be read, since when (monotonic), and when that is tried
    again.
    """

    offset: int | None
    reason: str
    since: float
    # Of the place where it was read.
    tracker: object
    again_at: float
    search: ReadableSearch | None = None
    attempts: int = 0

    def again(self, reason: str, now: float) -> None:
        """It could not be read this time."""
        self.reason = reason
        self.again_at = now + PAUSES.wait_s(self.attempts)
        self.attempts += 1
