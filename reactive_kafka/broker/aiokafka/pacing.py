"""Growing waits in loops of aiokafka's own that try again every 0.1 s, for as long as a broker
answers with an error.

A broker answers so for as long as it loads a group, say, or has no coordinator for it. Each client
of each process would ask it ten times a second all the while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from reactive_kafka.backoff import Backoff, Waits

BACKOFF = Backoff(0.1, 2.0)
QUIET_S = 5.0
"""After so long without a question for the coordinator the next one waits for nothing."""


class Lookups:
    """Puts waits between the questions of a client who the coordinator is.

    An answer is no progress: the node that it names may answer that it is not the coordinator.
    """

    def __init__(self, client: Any) -> None:
        self._look_up = client.coordinator_lookup
        self._waits = Waits(BACKOFF)
        self._next_at = 0.0
        client.coordinator_lookup = self._looked_up

    async def _looked_up(self, kind: Any, key: str) -> Any:
        now = time.monotonic()
        if now >= self._next_at + QUIET_S:
            self._waits.progressed()
        wait_s = max(0.0, self._next_at - now)
        self._next_at = now + wait_s + self._waits.next_s()
        if wait_s:
            await asyncio.sleep(wait_s)
        return await self._look_up(kind, key)


def pace_joins(coordinator: Any) -> None:
    """Have a group's member wait longer after each attempt to join that fails."""
    coordinator._do_rejoin_group = _paced(coordinator._do_rejoin_group)


def pace_producer_ids(sender: Any) -> None:
    """Have a producer wait longer after each time that it got no producer id."""
    sender._do_init_pid = _paced(sender._do_init_pid)


def _paced(attempt: Callable[[Any], Awaitable[bool]]) -> Callable[[Any], Awaitable[bool]]:
    """The attempt, which says whether it has succeeded, and behind one that has not a wait."""
    waits = Waits(BACKOFF)

    async def paced(what: Any) -> bool:
        has_succeeded = await attempt(what)
        if has_succeeded:
            waits.progressed()
        else:
            await asyncio.sleep(waits.next_s())
        return has_succeeded

    return paced
