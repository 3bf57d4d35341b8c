"""What one session of a channel has of the ``limit`` that it shares with other channels."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import Protocol

from reactive_kafka.delivery.workers.shared_limit import SharedLimit


class SlotHolder(Protocol):
    """A worker, as far as slots are concerned."""

    # It has one of the slots.
    has_slot: bool


class ChannelSlots:
    """Takes slots for the workers of one session, and gives them back.

    A worker needs a slot to take records and call the handler. Without one it stays idle, and the
    records stay in their lanes: nothing of them has started, so they do not age, and a stop or a
    revocation finds them as it finds all records that wait. A worker that waits for its next
    attempt or for a nack has no slot meanwhile.
    """

    def __init__(self, limit: SharedLimit) -> None:
        self._limit = limit
        self._wake: Callable[[], bool] = _wakes_nothing
        # Slots that belong to this channel, for workers that were woken and have not come yet.
        self._offered = 0
        # Workers that wait for a slot before another attempt. Each is completed with its slot.
        self._returning: dict[SlotHolder, Future[bool]] = {}
        self._is_closed = False

    def serve(self, wake: Callable[[], bool]) -> None:
        """Serve a pool from now on.

        Args:
            wake: Has an idle worker look for work; returns False if there is no work for one.
        """
        self._wake = wake

    @property
    def waits(self) -> bool:
        """Whether the channel waits for a slot."""
        return self._limit.has_queued(self)

    def __str__(self) -> str:
        """Return the setting, and what it allows, for people."""
        return f"limit = {self._limit.name} ({self._limit.slots} handlers)"

    def take(self) -> bool:
        """Take a slot for an idle worker. If none is free, a worker is woken once there is one."""
        if self._offered:
            self._offered -= 1
            return True
        return not self._is_closed and self._limit.take(self)

    def give_back(self) -> None:
        """Give back a slot that no worker has."""
        self._limit.give_back()

    def leave(self, worker: SlotHolder) -> None:
        """Give back the slot of a worker, if it has one."""
        if worker.has_slot:
            worker.has_slot = False
            self._limit.give_back()

    def nothing_to_do(self) -> None:
        """Pass on the slots for woken workers: there is nothing that a worker could take."""
        while self._offered:
            self._offered -= 1
            self._limit.give_back()

    def take_again(self, worker: SlotHolder) -> Future[bool] | None:
        """Take a slot for a worker that goes on with its records.

        Returns:
            None: it has one. Otherwise what is completed when it has got one; if the worker no
            longer waits, :meth:`forget` has to be called.
        """
        if self.take():
            worker.has_slot = True
            return None
        waiter: Future[bool] = asyncio.get_running_loop().create_future()
        self._returning[worker] = waiter
        return waiter

    def forget(self, worker: SlotHolder) -> None:
        """Note that a worker does not wait for a slot any more."""
        self._returning.pop(worker, None)

    def offer(self) -> bool:
        """As :class:`LimitedChannel` says. Workers that continue come first: their records have
        waited longest.
        """
        if self._is_closed:
            return False
        for worker, waiter in list(self._returning.items()):
            del self._returning[worker]
            if not waiter.done():
                worker.has_slot = True
                waiter.set_result(True)
                # Others of this channel may wait, too. If not, the next offer is declined.
                self._limit.queue(self)
                return True
        if self._wake():
            self._offered += 1
            return True
        return False

    def close(self) -> None:
        """Take no slots any more. Running handlers keep theirs until they end."""
        self._is_closed = True
        self._limit.withdraw(self)
        self.nothing_to_do()


def _wakes_nothing() -> bool:
    """Stand in until there is a pool."""
    return False
