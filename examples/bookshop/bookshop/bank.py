"""The bank that customers pay with. This one is invented: it fails as real ones do."""

from __future__ import annotations

import asyncio
import random


class BankAway(Exception):
    """The bank did not answer. The same call may succeed later."""


class Declined(Exception):
    """The bank said no. Asking again would not help."""


class Bank:
    """Charges each order once, however often it is asked: an order may come again after a crash."""

    def __init__(self) -> None:
        self._transfers: dict[str, str] = {}

    async def charge(self, order: str, customer: str, cents: int) -> str:
        """Take the money, and return the number of the transfer.

        Raises:
            BankAway: In one of 20 calls.
            Declined: For customers whose name begins with "broke".
        """
        await asyncio.sleep(random.uniform(0.005, 0.05))
        if random.random() < 0.05:
            raise BankAway("no answer")
        if customer.startswith("broke"):
            raise Declined(f"{customer} has no {cents} cents")
        return self._transfers.setdefault(order, f"T{len(self._transfers) + 1:06}")


_bank = Bank()


def bank() -> Bank:
    """The dependency of the handler. Tests replace it."""
    return _bank
