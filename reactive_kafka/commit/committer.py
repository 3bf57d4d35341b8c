"""The task that asks the engine what is due and calls the broker: the only caller of commit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Consumer
from reactive_kafka.clock import Clock
from reactive_kafka.commit.engine import CommitEngine, CommitRequest
from reactive_kafka.commit.every import CommitEvery
from reactive_kafka.commit.outcomes import CommitOutcomes
from reactive_kafka.commit.strategy import NoCommits
from reactive_kafka.errors import (
    BrokerError,
    CommitStrategyError,
    FatalBrokerError,
    MetadataTooLargeError,
    NotOwnerError,
    OutcomeUnknownError,
    PositionsRefusedError,
    TransientBrokerError,
)
from reactive_kafka.observe.events import CommitFailed, Observer
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import ends_with_others, is_set_within
from reactive_kafka.tracking.tracker import OffsetTracker

FLUSH_RETRY_S = 0.1
MOST_REFUSALS = 2
"""How often a last commit is tried whose rest is refused: the others of the group wait for it, and
it hardly passes.
"""

BACKOFF = Backoff(0.25, 5.0)
"""How soon a failed commit is tried again where no tick does it: doubling, from the first up to the
second.
"""


class Committer:
    """Commits the positions of one client, one request at a time, when the engine's strategy says
    so.
    """

    def __init__(
        self,
        channel: str,
        engine: CommitEngine,
        clock: Clock,
        observer: Observer,
        confirmed: Callable[[OffsetTracker, int], None],
        facts: CommitOutcomes,
        every: CommitEvery | None = None,
    ) -> None:
        self._channel = channel
        self.engine = engine
        self._clock = clock
        self._observer = observer
        # Called with each tracker and the position that the broker has stored for it.
        self._confirmed = confirmed
        # None: nothing but ticks and requests makes a commit due.
        self._every = every
        self._one_at_a_time = asyncio.Lock()
        self._look_again = asyncio.Event()
        self._is_requested = False
        # Somebody waits until their plans are stored.
        self._wanted: list[OffsetTracker] = []
        self._waits = Waits(BACKOFF)
        # After a failure; endless: a tick does it.
        self._retry_at: float | None = None
        # Whoever asks for it then waits so long: the broker is spared.
        self._spared_until = -math.inf
        self.consumer: Consumer | None = None
        self.facts = facts
        # When a commit was stored last; monotonic.
        self.stored_at = -math.inf
        # Why; None: it was stored, nothing is due any more, or it was not ours to make.
        self.failing: str | None = None
        # False: the broker refused the last commit, because the assignment is over.
        self.is_owner = True

    def request(self) -> None:
        """Have the task commit as soon as it can; requests that come before it does are one."""
        self._is_requested = True
        self._look_again.set()

    def records_came(self) -> None:
        """There is more to settle than before."""
        if self._every is not None and self._every.came(self._clock.monotonic()):
            self._look_again.set()

    async def run(self) -> None:
        """Commit what is due at every interval and request, for ever; CommitStrategyError where the
        strategy fails.
        """
        interval_s = self.engine.strategy.interval_s or math.inf
        now = self._clock.monotonic()
        tick = now + ends_with_others(interval_s, now)
        while True:
            await self._until_due(tick)
            # Whatever is due: the loop turns.
            await asyncio.sleep(0)
            # What only a tick commits is tried again with what failed; where there are no ticks,
            # requests are.
            is_tick = (
                self._clock.monotonic() >= tick
                or self._retry_at is not None
                or interval_s == math.inf
            )
            await self.commit(is_tick=is_tick)
            if self.engine.refused is not None:
                raise self.engine.refused
            now = self._clock.monotonic()
            if now >= tick:
                # Ticks that passed are left out.
                tick += interval_s * max(1, -(-(now - tick) // interval_s))

    async def _until_due(self, tick: float) -> None:
        while (due := self._due(tick)) > (now := self._clock.monotonic()):
            self._look_again.clear()
            await is_set_within(self._look_again, None if due == math.inf else due - now)

    def _due(self, tick: float) -> float:
        if self.consumer is None:
            # Nothing can be sent, however long it has been due.
            return tick
        if self._retry_at is not None:
            return min(tick, self._retry_at, self._spared_until if self._is_requested else math.inf)
        if self._is_requested:
            return -math.inf
        early = math.inf if self._every is None else self._every.due_at(self._clock.monotonic())
        repeat_at = self.engine.repeat_at
        # However long the interval is: nothing more may be fetched of a partition until its
        # position is stored.
        refused_at = self.engine.refused_at
        return min(tick, early, refused_at, math.inf if repeat_at is None else repeat_at)

    @property
    def _has_ticks(self) -> bool:
        """Whether what was not stored waits for a tick, and nobody waits for it."""
        strategy = self.engine.strategy
        return not (
            strategy.commits_at_ack or strategy.interval_s is None or self._every is not None
        )

    @property
    def not_stored(self) -> str | None:
        """Why positions are not stored: of all partitions, or of those that it names; None: they
        are.
        """
        refused = self.engine.refused_reasons
        reasons = [] if self.failing is None else [self.failing]
        reasons += [
            f"commit of {partition}: {reason}" for partition, reason in sorted(refused.items())
        ]
        return "; ".join(reasons) or None

    async def flush(self, deadline: float, going: Collection[TopicPartition] | None = None) -> bool:
        """Commit until nothing is due any more: the assignment of the partitions that are *going*
        is about to end.

        False if that could not be done by *deadline* (monotonic), or the partitions are not ours
        any more.
        """
        is_repeated = False
        refusals = 0
        while True:
            if self.consumer is None:
                return not self.engine.unstored(
                    one for one in self.engine.table if one.live is not None
                )
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                    error = await self._try(is_last=True, going=going)
            except TimeoutError:
                # On its way: it may be stored all the same.
                return False
            if error is None:
                if is_repeated or self.engine.repeat_at is None:
                    return True
                # Once more, for what may have landed late; not for ever.
                is_repeated = True
            elif isinstance(error, PositionsRefusedError):
                refusals += 1
                if refusals == MOST_REFUSALS:
                    return False
            if not self.is_owner or self._clock.monotonic() + FLUSH_RETRY_S >= deadline:
                return False
            await asyncio.sleep(FLUSH_RETRY_S)

    async def store_plans(self, trackers: Collection[OffsetTracker]) -> bool:
        """Commit until the group has the plans of these trackers, at the position that it has or a
        newer one.

        A plan that this position lies inside of is divided there. One before it is not stored:
        nobody goes on there. Cancelling is safe: what is on its way counts as of unknown outcome.
        False as soon as one is not ours any more.
        """
        if isinstance(self.engine.strategy, NoCommits):
            # Nothing is ever committed.
            return True
        self._wanted += trackers
        try:
            return await self._store_plans(trackers)
        finally:
            for tracker in trackers:
                self._wanted.remove(tracker)

    async def _store_plans(self, trackers: Collection[OffsetTracker]) -> bool:
        table = self.engine.table
        retry_at = -math.inf
        waits = Waits(BACKOFF)
        while all(table.has(tracker) for tracker in trackers):
            ours = [
                (one, tracker) for tracker in trackers if (one := table.of(tracker)) is not None
            ]
            if not any(one.lacks_plans(tracker) for one, tracker in ours):
                divided = [one.divide_plan(tracker) for one, tracker in ours]
                if not any(divided):
                    return True
                # The part from the group's position on is to be stored.
                continue
            if self.consumer is not None and self._clock.monotonic() >= retry_at:
                if await self.commit():
                    continue
                if not self.is_owner:
                    return False
                retry_at = self._clock.monotonic() + waits.next_s()
            await asyncio.sleep(FLUSH_RETRY_S)
        return False

    async def commit(
        self,
        *,
        is_last: bool = False,
        going: Collection[TopicPartition] | None = None,
        is_tick: bool = True,
    ) -> bool:
        """Send one request if something is due; True if nothing is left to commit as far as this
        attempt knows.
        """
        return await self._try(is_last=is_last, going=going, is_tick=is_tick) is None

    async def _try(
        self,
        *,
        is_last: bool = False,
        going: Collection[TopicPartition] | None = None,
        is_tick: bool = True,
    ) -> BrokerError | None:
        """As :meth:`commit`; returns why not all of it was stored."""
        async with self._one_at_a_time:
            return await self._commit(is_last=is_last, going=going, is_tick=is_tick)

    async def commit_now(self) -> None:
        """Commit what is settled, for somebody who is told where that was not stored.

        BrokerError: it was not, or nobody knows; NotOwnerError also for what is in the midst of a
        rebalance. TransientBrokerError also where an open transaction is to store the position of a
        partition. CommitStrategyError: the strategy raised, or its answer is no position.
        """
        async with self._one_at_a_time:
            if self.consumer is None:
                raise self._not_connected()
            error = await self._commit(is_asked=True)
            if error is not None:
                raise _about(self._channel, error)
            if self.engine.refused is not None:
                raise self.engine.refused
            if left := self.engine.left_unstored():
                names = ", ".join(map(str, left))
                raise NotOwnerError(
                    f"channel {self._channel!r}: a rebalance has {names}: nothing of it was committed"
                )
            if open_ones := self.engine.left_to_transactions():
                names = ", ".join(map(str, open_ones))
                raise TransientBrokerError(
                    f"channel {self._channel!r}: {names}: a transaction is open, and stores the position when it ends"
                )

    def _not_connected(self) -> TransientBrokerError:
        return TransientBrokerError(
            f"channel {self._channel!r} is not connected to the broker: nothing was committed"
        )

    async def _commit(
        self,
        *,
        is_last: bool = False,
        going: Collection[TopicPartition] | None = None,
        is_tick: bool = True,
        is_asked: bool = False,
    ) -> BrokerError | None:
        """Send what is due, if anything is and a client is there. Why it was not stored; None: it
        was.
        """
        self._is_requested = False
        consumer = self.consumer
        if consumer is None:
            return None

        def plan() -> CommitRequest | None:
            refused = self.engine.refused
            now = self._clock.monotonic()
            planned = self.engine.plan(
                now,
                is_last=is_last,
                going=going,
                wanted=self._wanted,
                is_tick=is_tick,
                is_asked=is_asked,
            )
            if self.engine.refused is not None and self.engine.refused is not refused:
                self._tell_refused(self.engine.refused)
            return planned

        planned = plan()
        if planned is None and self.engine.refused is None:
            self._is_well()
        return None if planned is None else await self._sent(consumer, planned, plan)

    async def commit_positions(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit exactly these positions, now; what the group has already needs no request.

        Raises what :meth:`CommitEngine.check_positions` does; BrokerError: they were not stored, or
        nobody knows.
        """
        async with self._one_at_a_time:
            planned = self.engine.plan_positions(offsets)
            consumer = self.consumer
            if planned is None:
                return
            if consumer is None:
                self.engine.fail(planned, is_unknown=False)
                raise self._not_connected()
            error = await self._sent(consumer, planned, lambda: self.engine.plan_positions(offsets))
            if error is not None:
                raise error

    def _is_well(self) -> None:
        self.failing = self._retry_at = None
        self._waits = Waits(BACKOFF)

    async def _sent(
        self, consumer: Consumer, plan: CommitRequest, again: Callable[[], CommitRequest | None]
    ) -> BrokerError | None:
        """Send it; where the broker takes less beside a position, with less. Why it was not stored;
        None: it was.
        """
        error = await self._send(consumer, plan)
        while isinstance(error, MetadataTooLargeError) and self.engine.takes_less(
            plan, error.partitions
        ):
            self.facts.outcomes["failed"] += 1
            if (shorter := again()) is None:
                return None
            plan = shorter
            error = await self._send(consumer, shorter)
        if error is not None and not isinstance(error, PositionsRefusedError):
            self._failed(plan, error)
        return error

    async def _send(self, consumer: Consumer, plan: CommitRequest) -> BrokerError | None:
        started = self._clock.monotonic()
        try:
            await consumer.commit(plan.offsets, plan.generation)
        except PositionsRefusedError as error:
            self._stored(plan, started, error)
            return error
        except BrokerError as error:
            return error
        except BaseException:
            # Cancelled on its way: nobody knows.
            self.engine.fail(plan, is_unknown=True)
            raise
        self._stored(plan, started)
        return None

    def _stored(
        self, plan: CommitRequest, started: float, refusal: PositionsRefusedError | None = None
    ) -> None:
        """The broker has answered: all is stored, but for what it refuses."""
        now = self._clock.monotonic()
        refused = {} if refusal is None else refusal.refused
        self.facts.durations.observe(now - started)
        self.facts.outcomes["failed" if refused else "ok"] += 1
        if len(refused) < len(plan.due):
            self.stored_at = now
        self.is_owner = True
        self._is_well()
        for tracker, position in self.engine.confirm(plan, now, refused):
            self._confirmed(tracker, position)
        if refusal is not None:
            self._tell("failed", frozenset(refused), str(refusal))
        # It may be one to repeat.
        self._look_again.set()

    def _failed(self, plan: CommitRequest, error: BrokerError) -> None:
        outcome: Literal["failed", "unknown"] = (
            "unknown" if isinstance(error, OutcomeUnknownError) else "failed"
        )
        self.engine.fail(plan, is_unknown=outcome == "unknown")
        self.is_owner = not isinstance(error, NotOwnerError)
        self.facts.outcomes[outcome] += 1
        self._retry_at = math.inf
        self._spared_until = self._clock.monotonic() + self._waits.next_s()
        if not self._has_ticks:
            self._retry_at = self._spared_until
        self.failing = str(error) if self.is_owner else None
        self._tell(outcome, frozenset(plan.offsets), str(error))

    def _tell_refused(self, refused: CommitStrategyError) -> None:
        self.failing = str(refused)
        self._tell("failed", frozenset({refused.partition}), str(refused))
        # At once: the task fails the channel, whoever has asked.
        self._retry_at = -math.inf

    def _tell(
        self,
        outcome: Literal["failed", "unknown"],
        partitions: frozenset[TopicPartition],
        reason: str,
    ) -> None:
        self._look_again.set()
        self._observer.on(
            CommitFailed(
                channel=self._channel, outcome=outcome, partitions=partitions, reason=reason
            )
        )


def _about(channel: str, error: BrokerError) -> BrokerError:
    """An error of the broker's with the channel's name: of the same kind, as far as its caller can
    act on that.
    """
    errors = list(error.refused.values()) if isinstance(error, PositionsRefusedError) else [error]
    kinds = (NotOwnerError, OutcomeUnknownError, FatalBrokerError, TransientBrokerError)
    kind = next(
        (kind for kind in kinds if all(isinstance(one, kind) for one in errors)), BrokerError
    )
    told = kind(f"channel {channel!r}: {error}")
    told.__cause__ = error
    return told
