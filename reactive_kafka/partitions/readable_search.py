"""A place of a log that cannot be read: when to retry, how to find its end. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from reactive_kafka.backoff import Backoff

UNREADY_S = 5.0
"""How long a place may be unreadable before the channel is not ready: the bytes may only have been
broken on the way."""

PAUSES = Backoff(0.5, 60.0, jitter=0.0)
"""How long a partition is left alone between two attempts."""


class ReadableSearch:
    """Finds where readable offsets begin again, by trying some.

    It is needed only if the bytes of a batch do not say where the batch ends, or the broker does
    not hand them out. It assumes that no offset below the place that it looks for can be read, and
    every offset from there on can. It tries offsets that are further and further away, then those
    between the last that failed and the first that did not. So it takes a few fetches, and passes
    over nothing that can be read.

    Args:
        bad: The offset that cannot be read.
        end: The end of the log, which counts as readable: nothing has to be passed over there.
    """

    def __init__(self, bad: int, end: int) -> None:
        self.first = bad
        # The highest offset known to be unreadable, and the lowest known to be readable.
        self._bad = bad
        self._good = max(end, bad + 1)
        self._step = 1
        # A readable offset was found: from here on the gap between the two is halved.
        self._has_found = False

    @property
    def until(self) -> int | None:
        """Where readable offsets begin, once that is known."""
        return self._good if self._good == self._bad + 1 else None

    @property
    def attempt(self) -> int:
        """The offset to try next."""
        if self._has_found:
            return (self._bad + self._good) // 2
        return min(self._bad + self._step, self._good - 1)

    def failed(self, until: int | None) -> None:
        """The attempt cannot be read either.

        Args:
            until: Where its batch ends; None if that is not known.
        """
        self._bad = max(self.attempt, min(until or 0, self._good) - 1)
        self._step *= 2

    def succeeded(self) -> None:
        """The attempt can be read."""
        self._good = self.attempt
        self._has_found = True


@dataclass(slots=True, eq=False)
class UnreadablePlace:
    """What of one partition cannot be read, and when to try again."""

    offset: int | None
    reason: str
    # Monotonic.
    since: float
    # The tracker of then: after a seek the place does not matter any more.
    tracker: object
    # Monotonic.
    again_at: float
    search: ReadableSearch | None = None
    attempts: int = 0

    def again(self, reason: str, now: float) -> None:
        """It could not be read this time."""
        self.reason = reason
        self.again_at = now + PAUSES.wait_s(self.attempts)
        self.attempts += 1
