"""Which connections have a place, and which one goes for a newer one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """A connection that has a place."""

    @property
    # It has no request, or not all of its head: nothing is lost with it.
    def is_idle(self) -> bool: ...
    def dismiss(self) -> None: ...


C = TypeVar("C", bound=Placed)


class Places(Generic[C]):
    """Places for anybody, and a few for probes alone once those are taken.

    What a connection wants is not known before it says so. Whoever keeps the last places idle would
    keep out every probe; so the oldest idle connection among them goes for a new one. A probe asks
    as soon as it is connected.
    """

    def __init__(self, anybody: int, probes: int) -> None:
        self._most = {False: anybody, True: probes}
        # The oldest first.
        self._taken: dict[bool, dict[C, None]] = {False: {}, True: {}}

    def free(self) -> bool | None:
        """The next free place: False: for anybody, True: for a probe; None: there is none, also
        after a dismissal.
        """
        if len(self._taken[False]) < self._most[False]:
            return False
        probes = self._taken[True]
        return True if len(probes) < self._most[True] or self._dismiss_oldest(probes) else None

    def take(self, client: C, for_probes: bool) -> None:
        """Give it a place that was free."""
        self._taken[for_probes][client] = None

    def leave(self, client: C) -> None:
        """It is gone; also if it had no place any more."""
        for taken in self._taken.values():
            taken.pop(client, None)

    def dismiss_oldest(self) -> bool:
        """Let the oldest idle connection go; whether there was one."""
        return self._dismiss_oldest((*self._taken[False], *self._taken[True]))

    def _dismiss_oldest(self, clients: Iterable[C]) -> bool:
        oldest = next((client for client in clients if client.is_idle), None)
        if oldest is not None:
            # At once, or the next one would go for nothing.
            self.leave(oldest)
            oldest.dismiss()
        return oldest is not None
