"""``python -m benchmarks.plots.work JSON``: one run in a process of its own; the last line is what
it measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from benchmarks.contenders.meter import Job, Meter
from benchmarks.contenders.ours import make_app
from benchmarks.contenders.raw import getmany
from benchmarks.gauges import job as gauges
from benchmarks.gauges.pacer import age_ms
from benchmarks.gauges.parties import read_raw, sender
from benchmarks.plots.stacks import Sampler, folded
from reactive_kafka import App, Batch, Message

Payload = Literal["raw", "Message", "bytes", "Batch"]
WARM_S = 2.0
MEASURED_S = 6.0
QUANTILES = (*(number / 100 for number in range(100)), 0.995, 0.999, 0.9995, 0.9999, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to run.

    Args:
        who: What the handler takes; ``raw`` is the plain client with ``getmany(500)``.
        channel: Keys of the channel that are not at their defaults.
        wait_s: How long the handler sleeps.
        rate: Records a second that are sent meanwhile, whose ages are measured; 0: the topic is
            full of records.
        loop: Whose event loop it is.
        sampled: Stacks are taken.
    """

    who: Payload
    bootstrap: str
    topic: str
    group: str
    records: int = 0
    channel: dict[str, Any] = field(default_factory=dict)
    wait_s: float = 0.0
    rate: int = 0
    loop: Literal["asyncio", "uvloop"] = "asyncio"
    sampled: bool = False

    @property
    def job(self) -> Job:
        """The same for contenders."""
        return Job(
            bootstrap=self.bootstrap,
            topic=self.topic,
            group=self.group,
            records=self.records,
            wait_s=self.wait_s,
        )

    @property
    def gauge(self) -> gauges.Job:
        """The same for gauges."""
        return gauges.Job(
            bootstrap=self.bootstrap,
            group=self.group,
            topics=[self.topic],
            given=self.rate,
            filled=0,
            began=0,
        )

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


class SampledMeter(Meter):
    """Takes stacks between the first and the last record."""

    def __init__(self, records: int) -> None:
        super().__init__(records)
        self.sampler = Sampler()

    def begin(self) -> None:
        super().begin()
        self.sampler.start()

    def end(self) -> None:
        self.sampler.stop()
        super().end()


def add_noop(app: App, meter: Meter, who: Payload) -> None:
    """A handler that does nothing but count."""
    seen = 0
    mark = 1

    if who == "Batch":

        @app.incoming("bench")
        async def take(batch: Batch[bytes]) -> None:
            nonlocal seen, mark
            for _ in batch.payloads:
                seen += 1
                if seen == mark:
                    mark = meter.reached(seen)

        return

    async def handle(given: Any) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    handle.__annotations__["given"] = Message[bytes] if who == "Message" else bytes
    app.incoming("bench")(handle)


def add_waiting(app: App, meter: Meter, wait_s: float) -> None:
    """A handler that sleeps."""
    started = seen = 0

    @app.incoming("bench")
    async def handle(payload: bytes) -> None:
        nonlocal started, seen
        if not started:
            started = 1
            meter.begin()
        await asyncio.sleep(wait_s)
        seen += 1
        if seen == meter.records:
            meter.end()


async def throughput(task: Task) -> dict[str, Any]:
    """Records a second, and CPU a record."""
    if task.who == "raw":
        result = await getmany(task.job)
        stacks = None
    else:
        meter = SampledMeter(task.records) if task.sampled else Meter(task.records)
        app = make_app(task.job, **task.channel)
        if task.wait_s:
            add_waiting(app, meter, task.wait_s)
        else:
            add_noop(app, meter, task.who)
        async with app:
            await meter.wait()
        result = meter.result()
        stacks = meter.sampler.stacks if isinstance(meter, SampledMeter) else None
    measured = {
        "rate": result.records / result.wall_s,
        "cpu_us": result.cpu_s / result.records * 1e6,
    }
    return measured if stacks is None else {**measured, "stacks": folded(stacks)}


class Ages:
    """The age of each record between two moments after the first one, and the CPU of the process
    meanwhile.
    """

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self._ages: array[float] = array("d")
        self._from = self._until = self._cpu = 0.0

    def take(self, payload: bytes) -> None:
        """A record has come."""
        now = time.monotonic()
        if not self._from:
            self._from = now + WARM_S
            self._until = now + WARM_S + MEASURED_S
        if now >= self._until:
            if not self.done.is_set():
                self._cpu = time.process_time() - self._cpu
                self.done.set()
        elif now >= self._from:
            if not self._ages:
                self._cpu = time.process_time()
            self._ages.append(age_ms(payload))

    def measured(self) -> dict[str, Any]:
        """Their distribution: which age so large a share did not exceed."""
        ages = sorted(self._ages)
        last = len(ages) - 1
        return {
            "quantiles": [[share, round(ages[round(share * last)], 4)] for share in QUANTILES],
            "cpu_us": self._cpu / len(ages) * 1e6,
        }


async def latency(task: Task) -> dict[str, Any]:
    """The ages of records when their handlers are called, at a pace."""
    ages = Ages()
    take = ages.take
    if task.who == "raw":
        async with sender(task.gauge, task.rate):
            await read_raw(task.gauge, take, ages.done, reset="latest")
        return ages.measured()
    app = make_app(task.job, **{"auto_offset_reset": "latest", **task.channel})

    if task.who == "Message":

        @app.incoming("bench")
        async def handle_message(message: Message[bytes]) -> None:
            take(message.payload)
    else:

        @app.incoming("bench")
        async def handle(payload: bytes) -> None:
            take(payload)

    async with app, sender(task.gauge, task.rate):
        await ages.done.wait()
    return ages.measured()


def run(work: Coroutine[Any, Any, dict[str, Any]], loop: str) -> dict[str, Any]:
    """On the event loop of this name."""
    if loop == "asyncio":
        return asyncio.run(work)
    import uvloop

    measured: dict[str, Any] = uvloop.run(work)
    return measured


def main() -> None:
    """Do what the command line says, and print it."""
    task = Task(**json.loads(sys.argv[1]))
    print(
        json.dumps(run(partial(latency if task.rate else throughput, task)(), task.loop)),
        flush=True,
    )


if __name__ == "__main__":
    main()
