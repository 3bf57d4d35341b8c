"""Growing pauses for clients that try again while a broker refuses.

A broker answers with an error for as long as it loads a group, or has no coordinator for it.
Without the pauses each client of each process would ask it ten times a second all the while:
aiokafka's producer tries again every 0.1 s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from reactive_kafka.backoff import Backoff, Waits

BACKOFF = Backoff(0.1, 2.0)
QUIET_S = 5.0
"""If the coordinator was not looked up for so long, the next lookup does not wait."""


class LookupPauses:
    """Growing pauses between a client's lookups of coordinators."""

    def __init__(self) -> None:
        self._waits = Waits(BACKOFF)
        self._next_at = 0.0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Wait until the next lookup may be sent.

        Cancellation: the next lookup is delayed only by one that is made, not by a caller that has
        given up.
        """
        if time.monotonic() >= self._next_at + QUIET_S:
            self._waits.progressed()
        async with self._turn:
            wait_s = self._next_at - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._next_at = time.monotonic() + self._waits.next_s()


def pace_producer_ids(sender: Any) -> None:
    """Make a producer wait longer after each failed request for a producer id."""
    sender._do_init_pid = _paced(sender._do_init_pid)


def _paced(attempt: Callable[[Any], Awaitable[bool]]) -> Callable[[Any], Awaitable[bool]]:
    """Return *attempt* with a pause after each failure. It returns whether it has succeeded."""
    waits = Waits(BACKOFF)

    async def paced(what: Any) -> bool:
        has_succeeded = await attempt(what)
        if has_succeeded:
            waits.progressed()
        else:
            await asyncio.sleep(waits.next_s())
        return has_succeeded

    return paced


class RefusedConnections:
    """Growing pauses for each address that has refused a connection.

    Args:
        longest_s: The longest pause.
    """

    def __init__(self, longest_s: float) -> None:
        self._backoff = Backoff(0.1, longest_s)
        self._refusing: dict[tuple[str, int], _RefusingAddress] = {}

    def has_to_wait(self, address: tuple[str, int], now: float) -> bool:
        """True if the address has refused a connection, and its pause is not over."""
        refusing = self._refusing.get(address)
        return refusing is not None and now < refusing.until

    def refused(self, address: tuple[str, int], now: float) -> None:
        """Start the next pause of an address, which is longer than the one before."""
        refusing = self._refusing.setdefault(address, _RefusingAddress(self._backoff))
        refusing.pause(now)

    def connected(self, address: tuple[str, int]) -> None:
        """Forget the refusals of an address."""
        self._refusing.pop(address, None)


class _RefusingAddress:
    """An address that has refused a connection, and until when it is not asked again."""

    def __init__(self, backoff: Backoff) -> None:
        self._waits = Waits(backoff)
        self.until = 0.0

    def pause(self, now: float) -> None:
        self.until = now + self._waits.next_s()
