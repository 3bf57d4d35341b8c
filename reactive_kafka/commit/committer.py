"""The committing task: asks the engine what is due, and sends it. Nothing else commits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.broker.client import Consumer
from reactive_kafka.clock import Clock
from reactive_kafka.commit.commit_engine import CommitEngine, CommitRequest
from reactive_kafka.commit.every import CommitEvery
from reactive_kafka.commit.outcomes import CommitOutcomes
from reactive_kafka.commit.strategy import NoCommits
from reactive_kafka.errors import (
    BrokerError,
    CheckpointRefusedError,
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
from reactive_kafka.tasks import Flag, aligned_wait_s, is_set_within
from reactive_kafka.tracking.tracker import OffsetTracker

FLUSH_RETRY_S = 0.1

MOST_REFUSALS = 2
"""How often a last commit is tried that the broker refuses in part. The other members of the group
wait for it, and another attempt hardly helps."""

BACKOFF = Backoff(0.25, 5.0)
"""How soon a failed commit is tried again, by a tick, a request, or where there are no ticks."""


class Committer:
    """Commits the positions of one client, one request at a time, when they are due.

    Args:
        confirmed: Called with each tracker and the position that the broker has stored for it.
        every: Says when the number of settled offsets makes a commit due; None: only ticks and
            requests do.
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
        self._confirmed = confirmed
        self._every = every
        self._one_at_a_time = asyncio.Lock()
        self._look_again = Flag()
        self._is_requested = False
        # Trackers whose plans are to be stored, and that is waited for.
        self._wanted: list[OffsetTracker] = []
        self._waits = Waits(BACKOFF)
        # When to try again after a failure; infinite: the next tick does it. None: nothing failed.
        self._retry_at: float | None = None
        # Ticks and requests are not followed before, to spare the broker after a failure.
        self._spared_until = -math.inf
        self.consumer: Consumer | None = None
        self.facts = facts
        # When a commit was stored last; monotonic.
        self.stored_at = -math.inf
        # Why the last commit was not stored; None: it was, nothing is due any more, or the
        # partitions were not ours.
        self.failing: str | None = None
        # False: the broker refused the last commit, because the assignment is over.
        self.is_owner = True

    def begin_assignment(self) -> None:
        """The group has answered: what it refused before is no reason to wait any longer."""
        self.is_owner = True
        self._waits.progressed()
        self._spared_until = -math.inf
        if self._retry_at is not None and not self._has_ticks:
            self._retry_at = -math.inf
        self._look_again.set()

    # -- the task

    def request(self) -> None:
        """Have the task commit as soon as it can; requests until then are one."""
        self._is_requested = True
        self._look_again.set()

    def records_came(self) -> None:
        """There is more to settle than before."""
        if self._every is not None and self._every.came(self._clock.monotonic()):
            self._look_again.set()

    async def run(self) -> None:
        """Commit what is due at every interval and request, for ever.

        Raises:
            CommitStrategyError: The strategy fails.
        """
        interval_s = self.engine.strategy.interval_s or math.inf
        now = self._clock.monotonic()
        tick = now + aligned_wait_s(interval_s, now)
        while True:
            await self._until_due(tick)
            # The loop has to turn even if a commit is always due.
            await asyncio.sleep(0)
            # What only a tick commits is tried again with what has failed. Where there are no
            # ticks, requests commit it.
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
                # Ticks that have passed are left out.
                intervals = max(1, math.ceil((now - tick) / interval_s))
                tick += interval_s * intervals

    async def _until_due(self, tick: float) -> None:
        while True:
            now = self._clock.monotonic()
            due = self._due(tick)
            if due <= now:
                return
            self._look_again.clear()
            await is_set_within(self._look_again, None if due == math.inf else due - now)

    def _due(self, tick: float) -> float:
        if self.consumer is None:
            # Nothing can be sent, however long it has been due.
            return tick
        if self._retry_at is not None:
            # However short the interval is.
            if self._is_requested:
                return self._spared_until
            return max(self._spared_until, min(tick, self._retry_at))
        if self._is_requested:
            return -math.inf
        due = min(tick, self.engine.refused_at)
        if self._every is not None:
            due = min(due, self._every.due_at(self._clock.monotonic()))
        # However long the interval is: a commit of unknown outcome may move the position back.
        repeat_at = self.engine.repeat_at
        return due if repeat_at is None else min(due, repeat_at)

    @property
    def _has_ticks(self) -> bool:
        """Whether what was not stored can wait for a tick."""
        strategy = self.engine.strategy
        if strategy.commits_at_ack or strategy.interval_s is None:
            return False
        return self._every is None

    @property
    def not_stored(self) -> str | None:
        """Why positions are not stored, of all partitions or of some; None: they are."""
        reasons = [] if self.failing is None else [self.failing]
        for name, reason in sorted(self.engine.refused_reasons.items()):
            reasons.append(f"commit of {name}: {reason}")
        return "; ".join(reasons) or None

    # -- commits that are waited for

    async def flush(self, deadline: float, going: Collection[TopicPartition] | None = None) -> bool:
        """Commit until nothing is due any more, because an assignment is about to end.

        Args:
            deadline: Monotonic.
            going: The partitions whose assignment ends; None: all.

        Returns:
            False if that could not be done by the deadline, or the partitions are not ours any
            more.
        """
        is_repeated = False
        refusals = 0
        while True:
            if self.consumer is None:
                live = [partition for partition in self.engine.table if partition.live is not None]
                return not self.engine.unstored(live)
            try:
                async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                    error = await self._try(is_last=True, going=going)
            except TimeoutError:
                # The request is on its way, and may be stored all the same.
                return False
            if error is None:
                if is_repeated or self.engine.repeat_at is None:
                    return True
                # A commit of unknown outcome may have landed later. Send it once more, not for
                # ever.
                is_repeated = True
            elif isinstance(error, PositionsRefusedError):
                refusals += 1
                if refusals == MOST_REFUSALS:
                    return False
            if not self.is_owner or self._clock.monotonic() + FLUSH_RETRY_S >= deadline:
                return False
            await asyncio.sleep(FLUSH_RETRY_S)

    async def store_plans(self, trackers: Collection[OffsetTracker]) -> bool:
        """Commit until the group has the plans of these trackers.

        They are stored with the position that the group has, or a newer one. A plan that this
        position lies inside of is divided there. One before it is not stored: no reader starts
        there.

        Cancellation: Safe. What is on its way counts as of unknown outcome.

        Returns:
            False as soon as a tracker is not ours any more.
        """
        if isinstance(self.engine.strategy, NoCommits):
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
                (partition.commits, tracker)
                for tracker in trackers
                if (partition := table.partition_of(tracker)) is not None
            ]
            if not any(commits.lacks_plans(tracker) for commits, tracker in ours):
                divided = [commits.divide_plan(tracker) for commits, tracker in ours]
                if not any(divided):
                    return True
                # Now the part from the group's position on has to be stored.
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
        """Send one request if something is due; True if all of it was stored."""
        return await self._try(is_last=is_last, going=going, is_tick=is_tick) is None

    async def commit_now(self) -> None:
        """Commit what is settled, for a caller who has to hear if it was not stored.

        Raises:
            BrokerError: It was not stored, or that is not known.
            NotOwnerError: Also for partitions in the midst of a rebalance.
            TransientBrokerError: Also if an open transaction is to store the position of a
                partition.
            CommitStrategyError: The strategy raised, or its answer is no position.
        """
        async with self._one_at_a_time:
            if self.consumer is None:
                raise self._not_connected()
            error = await self._commit(is_asked=True)
            if error is not None:
                raise _named_after(self._channel, error)
            if self.engine.refused is not None:
                raise self.engine.refused
            left = self.engine.left_unstored()
            if left:
                names = ", ".join(map(str, left))
                raise NotOwnerError(
                    f"channel {self._channel!r}: a rebalance has {names}: "
                    "nothing of it was committed"
                )
            in_transactions = self.engine.left_to_transactions()
            if in_transactions:
                names = ", ".join(map(str, in_transactions))
                raise TransientBrokerError(
                    f"channel {self._channel!r}: {names}: a transaction is open, "
                    "and stores the position when it ends"
                )

    async def commit_positions(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit exactly these positions now; what the group has already needs no request.

        Raises:
            BrokerError: They were not stored, or that is not known. And as
                :meth:`CommitEngine.check_positions` does.
        """
        async with self._one_at_a_time:
            request = self.engine.plan_positions(offsets)
            consumer = self.consumer
            if request is None:
                return
            if consumer is None:
                self.engine.fail(request, is_unknown=False)
                raise self._not_connected()
            error = await self._send_fitting(
                consumer, request, lambda: self.engine.plan_positions(offsets)
            )
            if error is not None:
                raise error

    def _not_connected(self) -> TransientBrokerError:
        return TransientBrokerError(
            f"channel {self._channel!r} is not connected to the broker: nothing was committed"
        )

    # -- one request

    async def _try(
        self,
        *,
        is_last: bool = False,
        going: Collection[TopicPartition] | None = None,
        is_tick: bool = True,
    ) -> BrokerError | None:
        """Commit as :meth:`commit` does; returns why not all of it was stored."""
        async with self._one_at_a_time:
            return await self._commit(is_last=is_last, going=going, is_tick=is_tick)

    async def _commit(
        self,
        *,
        is_last: bool = False,
        going: Collection[TopicPartition] | None = None,
        is_tick: bool = True,
        is_asked: bool = False,
    ) -> BrokerError | None:
        """Send what is due, if the client is connected.

        Args:
            is_last: The assignment of *going* ends, so all that is settled is due.
            going: The partitions whose assignment ends; None: all.
            is_tick: What only a tick commits is due, too.
            is_asked: Somebody waits for this commit.

        Returns:
            Why not all of it was stored. None: it was, nothing was due, or the commit strategy has
            failed, which ``engine.refused`` says and :meth:`run` raises.
        """
        # This commit answers every request so far.
        self._is_requested = False
        consumer = self.consumer
        if consumer is None:
            return None

        def plan() -> CommitRequest | None:
            known = self.engine.refused
            planned = self.engine.plan(
                self._clock.monotonic(),
                is_last=is_last,
                going=going,
                wanted=self._wanted,
                is_tick=is_tick,
                is_asked=is_asked,
            )
            refused = self.engine.refused
            if refused is not None and refused is not known:
                self._report_refused(refused)
            return planned

        request = plan()
        if request is not None:
            return await self._send_fitting(consumer, request, plan)
        if self.engine.refused is None:
            # Nothing is due, so nothing is left of an earlier failure.
            self._succeeded()
        return None

    async def _send_fitting(
        self,
        consumer: Consumer,
        request: CommitRequest,
        plan_again: Callable[[], CommitRequest | None],
    ) -> BrokerError | None:
        """Send a request, with shorter strings if the broker finds them too long.

        Returns:
            Why not all of it was stored; None: it was.
        """
        error = await self._send(consumer, request)
        while isinstance(error, MetadataTooLargeError):
            if not self.engine.takes_less(request, error.partitions):
                break
            self.facts.outcomes["failed"] += 1
            shorter = plan_again()
            if shorter is None:
                return None
            request = shorter
            error = await self._send(consumer, request)
        if error is not None and not isinstance(error, PositionsRefusedError):
            self._failed(request, error)
        return error

    async def _send(self, consumer: Consumer, request: CommitRequest) -> BrokerError | None:
        started = self._clock.monotonic()
        try:
            await consumer.commit(request.offsets, request.generation)
        except PositionsRefusedError as error:
            self._stored(request, started, error)
            return error
        except BrokerError as error:
            return error
        except BaseException:
            # It was cancelled on its way, so its outcome is not known.
            self.engine.fail(request, is_unknown=True)
            raise
        self._stored(request, started)
        return None

    # -- outcomes

    def _stored(
        self,
        request: CommitRequest,
        started: float,
        refusal: PositionsRefusedError | None = None,
    ) -> None:
        """The broker has answered: all is stored, but for what it refuses."""
        now = self._clock.monotonic()
        refused = {} if refusal is None else refusal.refused
        self.facts.durations.observe(now - started)
        self.facts.outcomes["failed" if refused else "ok"] += 1
        if len(refused) < len(request.due):
            self.stored_at = now
        self.is_owner = True
        self._succeeded()
        for tracker, position in self.engine.confirm(request, now, refused):
            self._confirmed(tracker, position)
        if refusal is not None:
            self._report("failed", frozenset(refused), str(refusal))
        # It may have to be repeated.
        self._look_again.set()

    def _succeeded(self) -> None:
        self.failing = None
        self._retry_at = None
        self._waits = Waits(BACKOFF)

    def _failed(self, request: CommitRequest, error: BrokerError) -> None:
        is_unknown = isinstance(error, OutcomeUnknownError)
        outcome: Literal["failed", "unknown"] = "unknown" if is_unknown else "failed"
        self.engine.fail(request, is_unknown=is_unknown)
        is_refused = isinstance(error, NotOwnerError)
        # A store refuses single rows, which says nothing about the other partitions. The answer may
        # be late: it says nothing about an assignment that has come since.
        is_of_group = not isinstance(error, CheckpointRefusedError)
        if is_of_group and request.generation == self.engine.table.generation:
            self.is_owner = not is_refused
        self.facts.outcomes[outcome] += 1
        self._spared_until = self._clock.monotonic() + self._waits.next_s()
        self._retry_at = math.inf if self._has_ticks else self._spared_until
        self.failing = None if is_refused else str(error)
        self._report(outcome, frozenset(request.offsets), str(error))

    def _report_refused(self, refused: CommitStrategyError) -> None:
        self.failing = str(refused)
        self._report("failed", frozenset({refused.partition}), str(refused))
        # The task fails the channel at once, whichever caller has asked for the commit.
        self._retry_at = -math.inf
        self._spared_until = -math.inf

    def _report(
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


def _named_after(channel: str, error: BrokerError) -> BrokerError:
    """The broker's error with the channel's name, of the kind that the caller can act on."""
    errors = list(error.refused.values()) if isinstance(error, PositionsRefusedError) else [error]
    kinds = (NotOwnerError, OutcomeUnknownError, FatalBrokerError, TransientBrokerError)
    fitting = [kind for kind in kinds if all(isinstance(each, kind) for each in errors)]
    kind = fitting[0] if fitting else BrokerError
    named = kind(f"channel {channel!r}: {error}")
    named.__cause__ = error
    return named
