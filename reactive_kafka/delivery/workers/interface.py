"""What a channel and the workers that handle its records know of each other."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.clock import Clock
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.current import RecordPlace, itself
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.observe.events import AlsoFailed, HandlerRetried
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery, failure_of
from reactive_kafka.verdicts.delivery_hook import Call, DeliveryHook


class ChannelWorkers:
    """Whatever handles the records in the lanes of a channel.

    There are three: :class:`NoWorkers`, where the application iterates over the channel; the pool
    of a channel with handlers; and that of a Spark channel. What a method does here is right for
    those that do not override it.
    """

    # A call takes records of several lanes, and frees the room of many records at once.
    takes_batches: bool = False
    # Ranges of records run outside of this process. So no partition may go before that is over,
    # even if its lane was dropped. A record that is not due holds back those behind it, because
    # ranges would have holes otherwise.
    works_elsewhere: bool = False

    @property
    def idle(self) -> int:
        """How many workers have nothing to do, or may be started."""
        return 0

    def work_is_there(self) -> None:
        """Note that records were put into the lanes, or that lanes were retained."""

    def keep(self, partition: TopicPartition, records: Any) -> Any:
        """Return what is kept of the records while they are queued: here the records themselves."""
        return records

    def wants(self, lane: Lane, records: int) -> int:
        """Return how many records one poll should bring for a lane with room for *records*."""
        return records

    def payload_of(self, record: RawRecord) -> Any:
        """Decode a record as for its handler. Raises what the decoder raises."""
        return record.value

    def tell_calls(self) -> None:
        """Give each call from now on a context of its own that says what the call has."""

    def handed_out(self, message: Delivery) -> None:
        """Note that the application has got a message by iterating over the channel."""

    def has(self, tracker: OffsetTracker, index: int) -> bool:
        """Return whether a handler may have a record; True where that is not known."""
        return True

    def roots(self, delivery: Delivery) -> Iterable[RecordPlace]:
        """Return the records of Kafka that a delivery was made of."""
        return itself(delivery)

    def left_unsettled(self) -> Iterable[Held]:
        """Return the records whose handlers returned without a verdict, by partition."""
        return ()

    def blocks_on(self, tracker: OffsetTracker, index: int, verdict: Future[bool]) -> None:
        """Hold a record's lane until its nack is carried out."""

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Cancel the handler that has a record, and do not wait for it.

        Returns:
            The unsettled messages of its call, or of a handler that has returned without a verdict.
        """
        return []

    @property
    def waits_for_outage(self) -> bool:
        """Whether a handler failed because a service is away, and waits for its next call."""
        return False

    def not_ready(self, now: float) -> Iterable[str]:
        """Return why records have waited long for the next call of their handler."""
        return ()

    def resumed(self) -> None:
        """Make the attempts that have waited for the end of a pause."""

    def suspended(self) -> None:
        """End the waits for another attempt in suspended lanes, and put their records back."""

    def abandon(self, lane: Lane) -> None:
        """Stop counting workers that are still busy with a lane; replacements may start."""

    def stop_retrying(self) -> None:
        """End the waits between attempts; their records stay unsettled."""

    def close(self) -> None:
        """End idle workers, and busy ones as soon as they are done: no work will come."""

    def reserve_s(self, most_s: float) -> float:
        """Return how many of the *most_s* seconds of a stop :meth:`cut_off` needs."""
        return 0.0

    async def cut_off(self) -> None:
        """End what runs outside of this process, in suspended lanes; return when it has ended."""

    async def over(self) -> None:
        """Return when nothing runs outside of this process any more."""


class NoWorkers(ChannelWorkers):
    """A channel without a handler: an application iterates over it and settles messages itself."""

    def __init__(self) -> None:
        self._handed_out = ReturnedUnsettled()

    def handed_out(self, message: Delivery) -> None:
        """Keep the message until it has its verdict: a dead letter needs its bytes."""
        self._handed_out.add(message)

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Return the message of a record that has no verdict. There is no handler to cancel."""
        return self._handed_out.find(tracker, index)


@dataclass(slots=True)
class HandlerTotals:
    """Counters of handler calls; they outlive a restart of the channel."""

    # Calls after the first one.
    retries: int = 0
    # Handlers that were cancelled for poison, and did not end.
    abandoned: int = 0
    durations: DurationHistogram = field(default_factory=DurationHistogram)


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a channel session offers to whoever makes its workers."""

    settings: IncomingSettings
    lanes: LaneQueue
    clock: Clock
    spawn: Spawn
    # The channel's checkpoint store.
    hook: DeliveryHook
    totals: HandlerTotals = field(default_factory=HandlerTotals)
    # Returns True while every task is being cancelled, as at the end of ``asyncio.run``.
    is_ending: Callable[[], bool] = lambda: False
    # Wraps each call of a handler. The wrapped call takes a message or a batch.
    around: Callable[[Call], Call] | None = None
    # Returns the records of Kafka that a delivery was made of: records age, and values do not.
    roots: Callable[[Delivery], Iterable[RecordPlace]] = itself
    # Returns the trackers of the partitions that hold records, if the application may keep
    # messages without a verdict.
    trackers: Callable[[], Iterable[OffsetTracker]] = tuple
    # Each worker runs in a copy of it.
    context: Context = field(default_factory=copy_context)


class WorkerSignals:
    """What workers tell their channel. Verdicts go to the channel's acknowledger."""

    def __init__(
        self,
        parts: ChannelContext,
        acknowledger: Acknowledger,
        exit: Callable[[BaseException], None],
        store_plans: Callable[..., Coroutine[Any, Any, bool]],
    ) -> None:
        self._parts = parts
        self._awaited_by = acknowledger.awaited_by
        self.fail = parts.fail
        # Call it when a handler asked the process to end (SystemExit, KeyboardInterrupt).
        self.exit = exit
        # Commits until the group has the plans of these trackers. Returns False if one of the
        # partitions is not ours any more.
        self.store_plans = store_plans
        # The handler of a message failed for good.
        self.nack = acknowledger.failed
        self.verdict_of = acknowledger.verdict_of
        self.settled = acknowledger.settled
        self.skip = acknowledger.skips.skip
        self.raised_after_ack = acknowledger.raised_after_ack

    def progress(self, lane: Lane) -> None:
        """Note that a worker turned away from a lane.

        There may be room for new records, or a drain may be over.
        """
        if self._awaited_by and (lane.revoked or lane.waiting <= lane.low_water):
            self._parts.progress()

    def will_retry(
        self, message: Delivery, reason: BaseException, attempt: int, wait_s: float
    ) -> None:
        """Report that call number *attempt* failed, and that another one follows.

        Args:
            message: That of the call; for a batch its first message.
        """
        about = failure_of(self._parts.settings.name, message, reason)
        self._parts.observer.on(HandlerRetried(**about, attempt=attempt, wait_s=wait_s))

    def also_failed(self, message: Delivery, reason: BaseException) -> None:
        """Report that a further handler of a broadcast failed for good.

        The record will be nacked with the error of the first one that failed.
        """
        about = failure_of(self._parts.settings.name, message, reason)
        self._parts.observer.on(AlsoFailed(**about))
