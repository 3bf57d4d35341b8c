"""What a service's probes and metrics say, looked at again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx

from tests.faults.driver import Life

EVERY_S = 0.1


class Look(NamedTuple):
    """What probes and metrics said at one time."""

    t: float
    live: int
    ready: int
    lag_s: float


@dataclass
class Probes:
    """Asks a service how it is, again and again."""

    life: Life
    looks: list[Look] = field(default_factory=list)

    def first(self, status: int, after: float | None) -> float | None:
        """When readiness first answered with *status*, of the looks after a time; None: not yet."""
        if after is None:
            return None
        return next(
            (look.t for look in self.looks if look.t > after and look.ready == status), None
        )

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Probes]:
        """Look while the block runs; raises what kept it from looking."""
        task = asyncio.create_task(self._look(), name="probes")
        try:
            yield self
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _look(self) -> None:
        async with httpx.AsyncClient(
            base_url=f"http://{self.life.address}", trust_env=False, timeout=20
        ) as client:
            while True:
                t = time.time()
                live = (await client.get("/health/live")).status_code
                ready = (await client.get("/health/ready")).status_code
                lag_s = _gauge(
                    (await client.get("/metrics")).text, "reactive_kafka_loop_lag_seconds"
                )
                self.looks.append(Look(t, live, ready, lag_s))
                await asyncio.sleep(EVERY_S)


def _gauge(text: str, name: str) -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])
