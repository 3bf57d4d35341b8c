"""Places for the transactions of one transactional id, one for each producer."""

from __future__ import annotations

import asyncio
from asyncio import Future
from enum import Enum


class ProducerPlace(Enum):
    """What a transaction is given."""

    ANY = "any"
    LAST = "last"


class ProducerPlaces:
    """Gives places to those who come first; the last one to a transaction that has partitions.

    A transaction that has a place may wait for a partition, which another transaction has. If that
    one had to wait for a place, too, both could wait for ever. It has the same places as all
    others, and the last one if these are taken.

    Args:
        most: How many places there are, 2 at least.
    """

    def __init__(self, most: int) -> None:
        self._free = {ProducerPlace.ANY: most - 1, ProducerPlace.LAST: 1}
        # In the order in which they came -> whether it has partitions.
        self._waiting: dict[Future[ProducerPlace], bool] = {}
        self._is_closed = False

    async def take(self, *, has_partitions: bool) -> ProducerPlace:
        """Take a place, which :meth:`give_back` returns; wait until there is one.

        Cancellation: safe.
        """
        free = self._free_for(has_partitions=has_partitions)
        if free is not None:
            self._free[free] -= 1
            return free
        waiter: Future[ProducerPlace] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = has_partitions
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # It was given a place at the same moment.
                self.give_back(waiter.result())
            raise
        finally:
            self._waiting.pop(waiter, None)

    def give_back(self, place: ProducerPlace) -> None:
        """Give a place back. It goes to the first who waits and may have it."""
        self._free[place] += 1
        self._serve()

    def close(self) -> None:
        """Let all have a place who wait, or come: there are no producers any more."""
        self._is_closed = True
        self._serve()

    def _serve(self) -> None:
        for waiter, has_partitions in list(self._waiting.items()):
            free = self._free_for(has_partitions=has_partitions)
            if free is not None and not waiter.done():
                del self._waiting[waiter]
                self._free[free] -= 1
                waiter.set_result(free)

    def _free_for(self, *, has_partitions: bool) -> ProducerPlace | None:
        if self._is_closed or self._free[ProducerPlace.ANY] > 0:
            return ProducerPlace.ANY
        if has_partitions and self._free[ProducerPlace.LAST] > 0:
            return ProducerPlace.LAST
        return None
