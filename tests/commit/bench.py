"""A committer at work on one partition, and a broker that answers it as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.clock import Clock
from reactive_kafka.commit.committer import Committer
from reactive_kafka.commit.outcomes import CommitOutcomes
from reactive_kafka.commit.strategy import CommitStrategy
from reactive_kafka.errors import BrokerError
from reactive_kafka.tracking.metadata.pending import MetadataPolicy
from tests.app.helpers import Recorder
from tests.commit.engines import CommitEngine
from tests.tracking.values import tracker_of

A = TopicPartition("orders", 0)
LATENCY_S = 0.05
# After this many seconds a commit is sent again whose outcome is unknown.
REPEAT_AFTER_S = 1.0


@dataclass
class Broker:
    """The only part of a consumer that is asked: answers each commit after a while, with the next
    error in line.
    """

    errors: list[BrokerError | None] = field(default_factory=list)
    latency_s: float = LATENCY_S
    # When, and the position of partition A.
    requests: list[tuple[float, int]] = field(default_factory=list)
    # What was asked for, with its metadata.
    sent: list[Committed] = field(default_factory=list)

    async def commit(self, offsets: Mapping[TopicPartition, Committed], generation: int) -> None:
        self.requests.append((asyncio.get_running_loop().time(), offsets[A].offset))
        self.sent.append(offsets[A])
        error = self.errors.pop(0) if self.errors else None
        await asyncio.sleep(self.latency_s)
        if error is not None:
            raise error

    @property
    def positions(self) -> list[int]:
        """What was asked for, in order."""
        return [position for _, position in self.requests]


class Bench:
    """A committer with one partition of a hundred records, on the running loop's time."""

    def __init__(
        self,
        strategy: CommitStrategy,
        *errors: BrokerError | None,
        facts: CommitOutcomes | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.engine = CommitEngine(
            strategy,
            metadata=MetadataPolicy() if facts is None else MetadataPolicy(room=facts.room),
        )
        self.engine.begin(1, [A])
        self.tracker = tracker_of(A)
        self.tracker.deliver(range(100), 100)
        self.engine.replace(self.tracker)
        self.broker = Broker(list(errors))
        self.recorder = Recorder()
        self.confirmed: list[int] = []
        # How often the committer looked at the clock.
        self.asked = 0
        self.committer = Committer(
            "orders",
            self.engine,
            Clock(self._now, loop.time),
            self.recorder,
            lambda tracker, position: self.confirmed.append(position),
            CommitOutcomes() if facts is None else facts,
        )
        self.committer.consumer = self.broker  # type: ignore[assignment]
        self.began = loop.time()

    def _now(self) -> float:
        self.asked += 1
        assert self.asked < 10_000, "the committer turns without end"
        return asyncio.get_running_loop().time()

    def settle(self, count: int = 1, *, request: bool = False) -> None:
        """Settle the next records, and ask for a commit if a strategy would."""
        self.tracker.settle_range(self.tracker.base, self.tracker.base + count)
        assert self.tracker.committable
        if request:
            self.committer.request()

    def at(self) -> list[float]:
        """When requests were sent, in seconds since the beginning."""
        return [round(when - self.began, 6) for when, _ in self.broker.requests]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """With the committer's task at work."""
        task = asyncio.create_task(self.committer.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def flushed(self, within_s: float) -> tuple[bool, float]:
        """What a flush says, and how long it took in seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        said = await self.committer.flush(began + within_s)
        return said, loop.time() - began
