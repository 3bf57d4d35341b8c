"""The time of one attempt of a handler: what counts, and what its end cancels."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka.verdicts.attempt_time import not_counted, within

pytestmark = pytest.mark.virtual_time

LIMIT_S = 1.0


class TookTooLongError(Exception):
    """What a call that takes too long raises here."""


async def test_a_wait_for_a_broker_moves_the_end_of_the_attempt_by_its_length() -> None:
    async def handle(_: Any) -> str:
        await asyncio.sleep(0.5)
        with not_counted():
            await asyncio.sleep(10.0)
        await asyncio.sleep(0.4)
        return "handled"

    assert await within(handle, LIMIT_S, TookTooLongError)(None) == "handled"


async def test_what_follows_a_wait_for_a_broker_counts() -> None:
    async def handle(_: Any) -> None:
        with not_counted():
            await asyncio.sleep(10.0)
        await asyncio.sleep(1.1)

    with pytest.raises(TookTooLongError):
        await within(handle, LIMIT_S, TookTooLongError)(None)


async def test_a_task_that_outlives_its_attempt_cancels_nothing_when_its_wait_ends() -> None:
    children: list[asyncio.Task[None]] = []

    async def wait_for_broker() -> None:
        with not_counted():
            await asyncio.sleep(5.0)

    async def handle(_: Any) -> None:
        children.append(asyncio.create_task(wait_for_broker()))
        await asyncio.sleep(0.1)

    await within(handle, LIMIT_S, TookTooLongError)(None)
    await asyncio.sleep(20.0)
    assert all(child.done() for child in children)


async def test_a_cancellation_at_the_moment_of_the_timeout_is_not_taken_for_it() -> None:
    async def handle(_: Any) -> None:
        await asyncio.sleep(60.0)

    loop = asyncio.get_running_loop()
    calling = asyncio.ensure_future(within(handle, LIMIT_S, TookTooLongError)(None))
    loop.call_later(LIMIT_S, calling.cancel)
    with pytest.raises(asyncio.CancelledError):
        await calling
