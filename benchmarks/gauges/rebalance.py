"""A member with many partitions while another one joins its group, and when that one has left.

Both are of the classic protocol and eager: everything is revoked, as with the raw client.
"""

from __future__ import annotations

import asyncio
import signal
import time
from array import array
from collections.abc import Collection

from aiokafka import ConsumerRebalanceListener

from benchmarks.figures import Figures, percentile
from benchmarks.gauges.job import Job
from benchmarks.gauges.parties import make_app, process, read_raw, sender
from benchmarks.gauges.plan import FIRST_S, LAG_MAX, LAG_P99

TICK_S = 0.002
WARM_S = 3.0
TIMEOUT_S = 60.0


class Watch:
    """Measures rebalances from the call that revokes to the first record after the next
    assignment.
    """

    def __init__(self) -> None:
        # A first record has come after an assignment.
        self.ends = asyncio.Event()
        self._took_s: list[float] = []
        self._lags_ms: array[float] = array("d")
        # None: no rebalance goes on.
        self._revoked_at: float | None = None
        self._is_assigned = False

    def revoked(self, now: float) -> None:
        """All partitions were taken."""
        self._revoked_at = now
        self._is_assigned = False

    def assigned(self) -> None:
        """Partitions were given."""
        self._is_assigned = True

    def record(self, now: float) -> None:
        """A record has come."""
        if not self._is_assigned:
            return
        if self._revoked_at is not None:
            self._took_s.append(now - self._revoked_at)
        self._revoked_at = None
        self._is_assigned = False
        self.ends.set()

    def turned(self, late_ms: float, now: float) -> None:
        """The loop has turned, so late."""
        if self._revoked_at is not None and now >= self._revoked_at:
            self._lags_ms.append(late_ms)

    async def ended(self) -> None:
        """Return when records come again."""
        async with asyncio.timeout(TIMEOUT_S):
            await self.ends.wait()
        self.ends.clear()

    def figures(self) -> Figures:
        """The longest way to a first record, and the loop's lags meanwhile."""
        return {
            FIRST_S: max(self._took_s),
            LAG_P99: percentile(self._lags_ms, 0.99),
            LAG_MAX: max(self._lags_ms),
        }


async def _watch_the_loop(watch: Watch) -> None:
    while True:
        due = time.perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        now = time.perf_counter()
        watch.turned((now - due) * 1e3, now)


async def _play(job: Job, watch: Watch, kind: str) -> None:
    """Another member joins, and leaves."""
    watching = asyncio.create_task(_watch_the_loop(watch))
    words = ["--bootstrap", job.bootstrap, "--group", job.group, "--topic", job.topics[0]]
    try:
        async with sender(job, job.given):
            # The first assignment is no rebalance.
            await watch.ended()
            await asyncio.sleep(WARM_S)
            async with process("benchmarks.gauges", f"rebalance:{kind}", *words):
                await watch.ended()
                await asyncio.sleep(WARM_S)
            await watch.ended()
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def ours(job: Job) -> Figures:
    """An application with one channel."""
    watch = Watch()
    app = make_app(job, auto_offset_reset="latest", group_protocol="classic")

    @app.incoming("bench-0")
    async def handle(payload: bytes) -> None:
        watch.record(time.perf_counter())

    @app.on_revoked("bench-0")
    def on_revoked(partitions: Collection[object]) -> None:
        watch.revoked(time.perf_counter())

    @app.on_assigned("bench-0")
    def on_assigned(partitions: Collection[object]) -> None:
        watch.assigned()

    async with app:
        await _play(job, watch, "our_member")
    return watch.figures()


async def our_member(job: Job) -> Figures:
    """The other member, until the process is ended."""
    app = make_app(job, auto_offset_reset="latest", group_protocol="classic")

    @app.incoming("bench-0")
    async def handle(payload: bytes) -> None:
        pass

    async with app:
        await _told_to_end().wait()
    return {}


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def on_partitions_revoked(self, revoked: object) -> None:
        self._watch.revoked(time.perf_counter())

    def on_partitions_assigned(self, assigned: object) -> None:
        self._watch.assigned()


async def raw(job: Job) -> Figures:
    """The raw client."""
    watch = Watch()
    until = asyncio.Event()

    def handle(value: bytes) -> None:
        watch.record(time.perf_counter())

    reading = asyncio.create_task(
        read_raw(job, handle, until, reset="latest", listener=_Listener(watch))
    )
    try:
        await _play(job, watch, "raw_member")
    finally:
        until.set()
        await reading
    return watch.figures()


async def raw_member(job: Job) -> Figures:
    """The other member, until the process is ended."""
    await read_raw(job, lambda value: None, _told_to_end(), reset="latest")
    return {}


def _told_to_end() -> asyncio.Event:
    """Set by SIGTERM."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    return told
