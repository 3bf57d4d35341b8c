"""The task that asks the engine what is due and calls the broker: the only caller of commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from reactive_kafka.broker.client import Consumer
from reactive_kafka.clock import Clock
from reactive_kafka.commit.engine import CommitEngine, CommitPlan
from reactive_kafka.commit.offsets import OffsetTracker
from reactive_kafka.errors import BrokerError, NotOwnerError, OutcomeUnknownError
from reactive_kafka.observe.events import CommitFailed, Observer
from reactive_kafka.observe.facts import DurationHistogram

FLUSH_RETRY_S = 0.1


@dataclass(slots=True)
class CommitFacts:
    """What became of the commit requests of a channel."""

    outcomes: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    durations: DurationHistogram = field(default_factory=DurationHistogram)
    failing: str | None = None  # why the last one was not stored; None: it was


class Committer:
    """Commits one channel's positions, one request at a time.

    Args:
        commits: False: nothing is ever due (``commit_strategy = "ignore"``).
        confirmed: Called with each tracker and the position that the broker has stored for it.
    """

    def __init__(
        self,
        channel: str,
        engine: CommitEngine,
        interval_s: float,
        clock: Clock,
        observer: Observer,
        confirmed: Callable[[OffsetTracker, int], None],
        *,
        commits: bool = True,
    ) -> None:
        self._channel = channel
        self._engine = engine
        self._interval_s = interval_s
        self._clock = clock
        self._observer = observer
        self._confirmed = confirmed
        self._commits = commits
        self._one_at_a_time = asyncio.Lock()
        self.consumer: Consumer | None = None
        self.facts = CommitFacts()
        self.is_owner = True  # False: the broker refused the last commit, because the assignment is over

    async def run(self) -> None:
        """Commit what is due at every interval, for ever; a failed commit is tried again at the next tick."""
        due = self._clock.monotonic() + self._interval_s
        while True:
            await asyncio.sleep(max(0.0, due - self._clock.monotonic()))
            await self.commit()
            now = self._clock.monotonic()
            due += self._interval_s * max(1, -(-(now - due) // self._interval_s))  # ticks that passed are left out

    async def flush(self, deadline: float) -> bool:
        """Commit until nothing is due any more.

        Returns:
            False if that could not be done by *deadline* (monotonic), or the partitions are not ours any more.
        """
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                    if await self.commit():
                        return True
            except TimeoutError:
                return False  # on its way: it may be stored all the same
            if not self.is_owner or self._clock.monotonic() + FLUSH_RETRY_S >= deadline:
                return False
            await asyncio.sleep(FLUSH_RETRY_S)

    async def commit(self) -> bool:
        """Send one request if something is due; True if nothing is left to commit as far as this attempt knows."""
        async with self._one_at_a_time:
            consumer = self.consumer if self._commits else None
            plan = self._engine.plan() if consumer is not None else None
            if consumer is None or plan is None:
                return True
            return await self._send(consumer, plan)

    async def _send(self, consumer: Consumer, plan: CommitPlan) -> bool:
        started = self._clock.monotonic()
        try:
            await consumer.commit(plan.offsets, plan.generation)
        except BrokerError as error:
            self._failed(plan, error)
            return False
        except BaseException:
            self._engine.fail(plan)  # cancelled on its way: nobody knows
            raise
        self.facts.durations.observe(self._clock.monotonic() - started)
        self.facts.outcomes["ok"] += 1
        self.is_owner = True
        self.facts.failing = None
        for tracker, position in self._engine.confirm(plan):
            self._confirmed(tracker, position)
        return True

    def _failed(self, plan: CommitPlan, error: BrokerError) -> None:
        self._engine.fail(plan)
        self.is_owner = not isinstance(error, NotOwnerError)
        is_unknown = isinstance(error, OutcomeUnknownError)
        self.facts.outcomes["unknown" if is_unknown else "failed"] += 1
        self.facts.failing = str(error)
        self._observer.on(
            CommitFailed(
                channel=self._channel,
                outcome="unknown" if is_unknown else "failed",
                partitions=frozenset(plan.offsets),
                reason=str(error),
            )
        )
