"""The client of a producer, which is made once for all who ask."""

from __future__ import annotations

import asyncio
from typing import Any

from reactive_kafka.broker.aiokafka.producer_client import ReplaceableClient


class Counted(ReplaceableClient):
    """Counts the clients that it makes; a moment passes for each."""

    made = 0

    async def _make(self) -> Any:
        await asyncio.sleep(0)
        self.made += 1
        return object()


async def test_whenever_it_is_asked_for_one_client_is_made() -> None:
    client, asking = Counted("orders", {}), []
    for _ in range(10):
        asking.append(asyncio.create_task(client.start()))
        await asyncio.sleep(0)
    await asyncio.gather(*asking)
    assert client.made == 1
