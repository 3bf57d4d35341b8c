"""Lookups of a coordinator wait longer after each other, and whoever gives up waiting delays nobody."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from reactive_kafka.broker.aiokafka.pacing import BACKOFF, LookupPauses


class Lookups:
    """Notes when a coordinator might be looked up."""

    def __init__(self) -> None:
        self.made_at: list[float] = []
        self._pauses = LookupPauses()

    async def ask(self) -> None:
        await self._pauses.wait()
        self.made_at.append(asyncio.get_running_loop().time())


async def test_a_lookup_that_was_given_up_does_not_delay_the_next_one() -> None:
    lookups = Lookups()
    # The first goes out at once. The next ones are given up while they wait.
    await lookups.ask()
    for _ in range(100):
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await lookups.ask()
    assert len(lookups.made_at) == 1
    async with asyncio.timeout(2 * BACKOFF.first_s + 1.0):
        await lookups.ask()
    assert len(lookups.made_at) == 2


async def test_lookups_of_several_callers_take_turns() -> None:
    lookups = Lookups()
    await asyncio.gather(*(lookups.ask() for _ in range(3)))
    first, second, third = lookups.made_at
    assert second > first
    assert third > second
