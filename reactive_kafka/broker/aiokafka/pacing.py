"""Growing pauses for aiokafka's own loops, which try again every 0.1 s while a broker refuses.

A broker answers with an error for as long as it loads a group, or has no coordinator for it.
Without the pauses each client of each process would ask it ten times a second all the while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from aiokafka.client import ConnectionGroup

from reactive_kafka.backoff import Backoff, Waits

BACKOFF = Backoff(0.1, 2.0)
QUIET_S = 5.0
"""If the coordinator was not looked up for so long, the next lookup does not wait."""


class PacedCoordinatorLookups:
    """Puts pauses between a client's lookups of the coordinator.

    An answer is no progress: the node that it names may say that it is not the coordinator.
    """

    def __init__(self, client: Any) -> None:
        self._look_up = client.coordinator_lookup
        self._waits = Waits(BACKOFF)
        self._next_at = 0.0
        self._turn = asyncio.Lock()
        client.coordinator_lookup = self._looked_up

    async def _looked_up(self, kind: Any, key: str) -> Any:
        if time.monotonic() >= self._next_at + QUIET_S:
            self._waits.progressed()
        # The next lookup is delayed only by one that is made, not by a caller that has given up.
        async with self._turn:
            wait_s = self._next_at - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._next_at = time.monotonic() + self._waits.next_s()
        return await self._look_up(kind, key)


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


class PacedConnections:
    """Replaces aiokafka's way to connect: one lock per node, and growing pauses after a refusal.

    Args:
        client: An ``AIOKafkaClient``.
        longest_s: The longest pause.
        on_connected: Called with each new connection.
    """

    def __init__(
        self,
        client: Any,
        longest_s: float = 5.0,
        on_connected: Callable[[Any], None] = lambda connection: None,
    ) -> None:
        self._client = client
        self._backoff = Backoff(0.1, longest_s)
        self._on_connected = on_connected
        self._refusals: dict[tuple[str, int], _RefusingNode] = {}
        self._locks: dict[Any, asyncio.Lock] = {}
        self._connect = client._get_conn
        client._get_conn = self._connection
        PacedCoordinatorLookups(client)
        # The client has one lock for all nodes: connecting to a node that hangs held up all others.
        client._get_conn_lock_value = nullcontext()

    async def _connection(
        self,
        node_id: Any,
        *,
        group: ConnectionGroup = ConnectionGroup.DEFAULT,
        no_hint: bool = False,
    ) -> Any:
        """Return a connection to a node; None: it cannot be had, or not before a pause is over.

        It takes the place of the client's own method.
        """
        known = self._client._conns.get((node_id, group))
        if known is not None and known.connected():
            return known
        async with self._locks.setdefault((node_id, group), asyncio.Lock()):
            known = self._client._conns.get((node_id, group))
            if known is not None and known.connected():
                return known
            broker = self._client.cluster.broker_metadata(node_id)
            # The pause belongs to the address: a node that has moved may be reached at once.
            address = ("", 0) if broker is None else (broker.host, broker.port)
            refusing = self._refusals.get(address)
            if refusing is not None and time.monotonic() < refusing.until:
                return None
            connection = await self._connect(node_id, group=group, no_hint=no_hint)
            if connection is not None:
                self._refusals.pop(address, None)
                self._on_connected(connection)
            elif broker is not None:
                self._refusals.setdefault(address, _RefusingNode(self._backoff)).pause()
            return connection


class _RefusingNode:
    """A node that has refused a connection, and until when it is not asked again."""

    def __init__(self, backoff: Backoff) -> None:
        self._waits = Waits(backoff)
        self.until = 0.0

    def pause(self) -> None:
        self.until = time.monotonic() + self._waits.next_s()
