"""Puts the workers of a channel with handlers together."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass

from reactive_kafka.delivery.invocation import Invocation
from reactive_kafka.delivery.long_calls import LongCalls
from reactive_kafka.delivery.retry import RetriedHandler, Retries
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.delivery.runners.batches import BatchHandler, BatchRunner
from reactive_kafka.delivery.runners.choosing import Branch, Broadcast, FirstMatch, RecordChoice
from reactive_kafka.delivery.runners.record_runner import RecordHandler, RecordRunner, SingleHandler
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.delivery.workers.interface import LaneProgress, WorkerSetup
from reactive_kafka.delivery.workers.isolation import Isolation
from reactive_kafka.delivery.workers.places import WorkerPlaces
from reactive_kafka.delivery.workers.pool import Runner, WorkerPool
from reactive_kafka.delivery.workers.waits import WorkerWaits


def record_workers(setup: WorkerSetup, context: Context, invocation: Invocation) -> WorkerPool:
    """Return workers that call one handler with each record.

    Args:
        context: Each worker runs in a copy of it.
    """
    parts = _PoolParts.of(setup, context, invocation)
    handler = SingleHandler(
        invocation, setup.settings, setup.acknowledger.hook, parts.isolation, parts.kept_for_letters
    )
    return parts.pool(parts.record_runner(handler))


def first_match_workers(
    setup: WorkerSetup, context: Context, branches: Sequence[Branch], skipping: Skipping
) -> WorkerPool:
    """Return workers that call, for each record, the first handler that takes it."""
    # What concerns the channel is the same in all of its invocations.
    parts = _PoolParts.of(setup, context, branches[0].invocation)
    choice = RecordChoice(setup.settings, setup.acknowledger, skipping)
    handler = FirstMatch(
        branches, choice, setup.acknowledger.hook, parts.isolation, parts.kept_for_letters
    )
    return parts.pool(parts.record_runner(handler))


def broadcast_workers(
    setup: WorkerSetup, context: Context, branches: Sequence[Branch], skipping: Skipping
) -> WorkerPool:
    """Return workers that call, for each record, every handler that takes it."""
    parts = _PoolParts.of(setup, context, branches[0].invocation)
    choice = RecordChoice(setup.settings, setup.acknowledger, skipping)
    handler = Broadcast(branches, choice, setup.channel, parts.isolation)
    return parts.pool(parts.record_runner(handler))


def batch_workers(
    setup: WorkerSetup,
    context: Context,
    invocation: Invocation,
    skipping: Skipping | None = None,
) -> WorkerPool:
    """Return workers that call one handler with batches.

    Args:
        skipping: What is left out of batches; None: nothing.
    """
    parts = _PoolParts.of(setup, context, invocation)
    handler = BatchHandler(
        invocation, setup.settings, setup.acknowledger.hook, parts.isolation, parts.kept_for_letters
    )
    runner = BatchRunner(
        handler,
        parts.retries(handler),
        skipping,
        setup.channel,
        setup.acknowledger,
        lanes=setup.lanes,
    )
    return parts.pool(runner)


@dataclass(frozen=True, slots=True)
class _PoolParts:
    """The parts that the pool, its runner and its retries share."""

    setup: WorkerSetup
    context: Context
    progress: LaneProgress
    invocation: Invocation
    isolation: Isolation
    places: WorkerPlaces
    waits: WorkerWaits
    returned: ReturnedUnsettled
    long_calls: LongCalls

    @classmethod
    def of(cls, setup: WorkerSetup, context: Context, invocation: Invocation) -> _PoolParts:
        isolation = Isolation(setup.is_ending)
        if invocation.is_blocking:
            # A thread may outlive its call, so its context has to say what the call has.
            isolation.tell_calls()
        places = WorkerPlaces(setup.settings.concurrency, isolation, setup.slots)
        return cls(
            setup,
            context,
            LaneProgress(setup.channel, setup.acknowledger),
            invocation,
            isolation,
            places,
            WorkerWaits(places),
            ReturnedUnsettled(),
            LongCalls(setup.channel),
        )

    @property
    def kept_for_letters(self) -> ReturnedUnsettled | None:
        """Where messages without a verdict are kept, if they may become dead letters."""
        if self.setup.settings.on_poison == "dead-letter-queue":
            return self.returned
        return None

    def retries(self, handler: RetriedHandler) -> Retries:
        return Retries(
            handler,
            self.setup.channel,
            self.setup.acknowledger,
            exit=self.setup.exit,
            totals=self.setup.totals,
            isolation=self.isolation,
            waits=self.waits,
            hold=self.setup.hold,
            long_calls=self.long_calls,
        )

    def record_runner(self, handler: RecordHandler) -> RecordRunner:
        return RecordRunner(
            handler,
            self.retries(handler),
            lanes=self.setup.lanes,
            clock=self.setup.channel.clock,
            durations=self.setup.totals.durations,
            progress=self.progress,
            isolation=self.isolation,
            places=self.places,
            long_calls=self.long_calls,
        )

    def pool(self, runner: Runner) -> WorkerPool:
        return WorkerPool(
            runner,
            self.setup,
            self.context,
            self.progress,
            isolation=self.isolation,
            places=self.places,
            waits=self.waits,
            returned=self.returned,
            long_calls=self.long_calls,
            may_keep=self.invocation.ack == "manual",
        )
