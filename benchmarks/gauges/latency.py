"""From a record's send to the call of its handler, at a pace that leaves the machine idle most of
the time.
"""

from __future__ import annotations

import asyncio
import time
from array import array

from benchmarks.figures import Figures, percentile
from benchmarks.gauges.job import Job
from benchmarks.gauges.pacer import age_ms
from benchmarks.gauges.parties import make_app, read_raw, sender
from benchmarks.gauges.plan import P50, P99

WARM_S = 3.0
MEASURED_S = 10.0


class Ages:
    """Takes down the age of each record, from some seconds after the first one on, until it is
    *done*.
    """

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self._ages: array[float] = array("d")
        self._from = self._until = 0.0

    def take(self, payload: bytes, now: float) -> None:
        """A record has come, at a moment of the monotonic clock."""
        if not self._from:
            self._from = now + WARM_S
            self._until = now + WARM_S + MEASURED_S
        if now >= self._until:
            self.done.set()
        elif now >= self._from:
            self._ages.append(age_ms(payload))

    def figures(self) -> Figures:
        """How old they were."""
        return {P50: percentile(self._ages, 0.5), P99: percentile(self._ages, 0.99)}


async def ours(job: Job) -> Figures:
    """A handler of bytes."""
    ages = Ages()
    app = make_app(job, auto_offset_reset="latest")
    take = ages.take
    monotonic = time.monotonic

    @app.incoming("bench-0")
    async def handle(payload: bytes) -> None:
        take(payload, monotonic())

    async with app, sender(job, job.given):
        await ages.done.wait()
    return ages.figures()


async def raw(job: Job) -> Figures:
    """``getmany(500)``, the handler called for each record."""
    ages = Ages()
    async with sender(job, job.given):
        await read_raw(
            job, lambda value: ages.take(value, time.monotonic()), ages.done, reset="latest"
        )
    return ages.figures()
