"""Limits the number of connections, and chooses the one to close for a newer one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """A connection that has a place."""

    @property
    def is_idle(self) -> bool:
        """True if no complete request has arrived, so that nothing is lost if it is closed."""

    def dismiss(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=Placed)


class Places(Generic[C]):
    """Places for all connections, and a few more for probes when those are taken.

    A new connection does not say whether it is a probe until it sends a request. A client that
    keeps the last places idle would keep out every probe. So the oldest idle connection in these
    places is closed for a new one. A real probe sends its request as soon as it is connected.
    """

    def __init__(self, anyone: int, probes: int) -> None:
        # The keys say whether the places are for probes only.
        self._capacity = {False: anyone, True: probes}
        # Both are ordered, the oldest first.
        self._taken: dict[bool, dict[C, None]] = {False: {}, True: {}}

    def free(self) -> bool | None:
        """Find a free place, and close an idle connection for it if necessary.

        Returns:
            False for a place that is for everyone, True for one for probes. None if none is free.
        """
        if len(self._taken[False]) < self._capacity[False]:
            return False
        probes = self._taken[True]
        if len(probes) < self._capacity[True] or self._dismiss_oldest(probes):
            return True
        return None

    def take(self, client: C, for_probes: bool) -> None:
        """Give a free place to a connection."""
        self._taken[for_probes][client] = None

    def leave(self, client: C) -> None:
        """Free the place of a connection, if it has one."""
        for taken in self._taken.values():
            taken.pop(client, None)

    def dismiss_oldest(self) -> bool:
        """Close the oldest idle connection, and return whether there was one."""
        return self._dismiss_oldest((*self._taken[False], *self._taken[True]))

    def _dismiss_oldest(self, clients: Iterable[C]) -> bool:
        oldest = next((client for client in clients if client.is_idle), None)
        if oldest is None:
            return False
        # Free its place now. If that waited for the end of the connection, the next call would
        # choose the same one, and two new connections would count on one place.
        self.leave(oldest)
        oldest.dismiss()
        return True
