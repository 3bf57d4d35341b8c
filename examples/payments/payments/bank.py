"""The bank: what the handlers depend on, and what a test puts in its place."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Protocol

import httpx


class Declined(Exception):
    """The bank says no, and will say so again."""


class BankAway(Exception):
    """The bank did not answer; it may in a moment."""


class Bank(Protocol):
    """Moves money."""

    async def charge(self, account: str, cents: int, *, once: str) -> str:
        """Take money from an account, once for each value of *once*; the number of the transfer.

        Raises:
            Declined: Not from this account.
            BankAway: No answer: it may have happened, so ask again with the same *once*.
        """


class HttpBank:
    """A bank that speaks HTTP."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def charge(self, account: str, cents: int, *, once: str) -> str:
        try:
            answer = await self._client.post(
                f"/accounts/{account}/charges", json={"cents": cents, "once": once}
            )
        except httpx.TransportError as error:
            raise BankAway(str(error) or type(error).__name__) from error
        if answer.status_code == httpx.codes.PAYMENT_REQUIRED:
            raise Declined(answer.text)
        if answer.is_server_error:
            raise BankAway(f"status {answer.status_code}")
        return str(answer.raise_for_status().json()["transfer"])


class PretendBank:
    """A bank to try the service with: ``BANK=pretend`` takes it.

    It declines the account ``broke``. The account ``flaky`` gets an answer at every second call.
    """

    def __init__(self) -> None:
        self._calls = 0

    async def charge(self, account: str, cents: int, *, once: str) -> str:
        if account == "broke":
            raise Declined(f"{account} has no {cents} cents")
        if account == "flaky":
            self._calls += 1
            if self._calls % 2:
                raise BankAway("no answer")
        return f"transfer of {once}"


async def bank() -> AsyncIterator[Bank]:
    """One connection pool for the whole application."""
    if os.environ.get("BANK") == "pretend":
        yield PretendBank()
        return
    async with httpx.AsyncClient(base_url="http://bank.internal", timeout=5.0) as client:
        yield HttpBank(client)
