"""How long the calls of one worker have waited for us. No I/O, no clock.

A wait for room in a channel, for a write, a store or a registry is no work of the handler, so its
time is no part of the call's duration.
"""

from __future__ import annotations


class CallWaits:
    """The waits of one worker's calls, made one after the other.

    Several tasks of a call may wait at once: the time in which at least one of them waits counts
    once. A wait that outlasts its call counts until the call ends, and never in a later call.
    """

    __slots__ = ("_call", "_earlier_s", "_number", "_since", "_waited_s", "_waiting", "total_s")

    def __init__(self) -> None:
        # The record of the call that has waited last. None: of a batch.
        self._call: object = None
        # Counts the calls that have waited.
        self._number = 0
        # How many tasks of that call wait now, and since when at least one of them does.
        self._waiting = 0
        self._since = 0.0
        # How long that call has waited, and how long earlier calls have, since they were taken.
        self._waited_s = 0.0
        self._earlier_s = 0.0
        # How long all calls have waited so far.
        self.total_s = 0.0

    def begins(self, call: object, now: float) -> int:
        """Note that a task of *call* waits from now on.

        Args:
            call: Its record. None: it has a batch.

        Returns:
            What :meth:`ends` takes.
        """
        if call is not self._call:
            self.next_call()
            self._call = call
        if not self._waiting:
            self._since = now
        self._waiting += 1
        return self._number

    def ends(self, number: int, now: float) -> None:
        """Note the end of a wait. It counts nothing if its call was over before."""
        if number != self._number:
            return
        self._waiting -= 1
        if not self._waiting:
            self._count(now)

    def next_call(self) -> None:
        """Begin another call, which may be for the same record."""
        self._number += 1
        self._waiting = 0
        self._earlier_s += self._waited_s
        self._waited_s = 0.0

    def take_call(self, call: object, now: float) -> float:
        """Return how long a call has waited that ends now. Its waits count no more."""
        if call is not self._call:
            return 0.0
        if self._waiting:
            self._count(now)
        waited_s = self._waited_s
        self._waited_s = 0.0
        self.next_call()
        return waited_s

    def take(self) -> float:
        """Return how long the calls have waited that were not taken, and forget that."""
        waited_s = self._earlier_s + self._waited_s
        self._earlier_s = 0.0
        self._waited_s = 0.0
        return waited_s

    def _count(self, now: float) -> None:
        waited_s = max(0.0, now - self._since)
        self._waited_s += waited_s
        self.total_s += waited_s
