"""What a channel asks of whatever handles its records, and what it hands to that."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.clock import Clock
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.lane import Lane
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.delivery.worker import ReturnedUnsettled
from reactive_kafka.observe.events import HandlerRetried
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.delivery import Delivery, failure_of
from reactive_kafka.verdicts.hook import DeliveryHook
from reactive_kafka.verdicts.nack import VerdictParts


@dataclass(slots=True)
class HandlerTotals:
    """Counters of handler calls; they outlive a restart of the channel."""

    retries: int = 0  # calls after the first one
    abandoned: int = 0  # handlers that were cancelled for poison, and did not end
    durations: DurationHistogram = field(default_factory=DurationHistogram)


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a channel session hands to its workers."""

    settings: IncomingSettings
    lanes: Lanes
    clock: Clock
    spawn: Spawn
    hook: DeliveryHook  # the channel's checkpoint store
    totals: HandlerTotals = field(default_factory=HandlerTotals)
    is_ending: Callable[[], bool] = lambda: False  # every task is being cancelled, as at the end of ``asyncio.run``


class WorkerSignals:
    """What workers tell their channel and ask of it; verdicts go to its acknowledger."""

    def __init__(
        self,
        parts: VerdictParts,
        acknowledger: Acknowledger,
        exit: Callable[[BaseException], None],
        store_plans: Callable[..., Coroutine[Any, Any, bool]],
    ) -> None:
        self._parts = parts
        self._awaited_by = acknowledger.awaited_by
        self.fail = parts.fail
        self.exit = exit  # a handler asked the process to end (SystemExit, KeyboardInterrupt)
        self.store_plans = store_plans  # commits until the group has the trackers' plans; False: one is not ours
        self.nack = acknowledger.failed  # the handler of a message failed for good
        self.verdict_of = acknowledger.verdict_of
        self.settled = acknowledger.settled
        self.raised_after_ack = acknowledger.raised_after_ack

    def progress(self, lane: Lane) -> None:
        """A worker turned away from a lane: there may be room for new records, or a drain may be over."""
        if self._awaited_by and (lane.revoked or lane.waiting <= lane.low_water):
            self._parts.progress()

    def will_retry(self, message: Delivery, reason: BaseException, attempt: int, wait_s: float) -> None:
        """Call number *attempt* for a message (for a batch: its first one) failed, and another one follows."""
        about = failure_of(self._parts.settings.name, message, reason)
        self._parts.observer.on(HandlerRetried(**about, attempt=attempt, wait_s=wait_s))


class Workers:
    """What handles the records in the lanes. This one does nothing: an application iterates over the channel."""

    takes_batches = False  # a call takes records of several lanes, and frees the room of many records at once
    # Ranges of records run outside of this process. So no partition may go before that is over, even where its lane was
    # dropped; and a record that is not due holds back those behind it, or ranges would have holes.
    works_elsewhere = False

    def __init__(self) -> None:
        self.returned = ReturnedUnsettled()

    @property
    def has_room(self) -> bool:
        """Whether a worker has nothing to do, or may be started."""
        return False

    def work_is_there(self) -> None:
        """Records were put into the lanes, or lanes were retained."""

    def stop_retrying(self) -> None:
        """End the waits between attempts; their records stay unsettled."""

    def suspended(self) -> None:
        """Lanes were suspended: end the waits for another attempt in them, and put their records back."""

    def abandon(self, lane: Lane) -> None:
        """Stop counting workers still busy with this lane; replacements may start."""

    def blocks_on(self, tracker: OffsetTracker, index: int, verdict: Future[bool]) -> None:
        """A nack is being carried out: hold its lane until *verdict*, even if the handler returns before."""

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Cancel the handler that has a record, and await it no more; the unsettled messages of its call, if any."""
        return self.returned.find(tracker, index)

    def close(self) -> None:
        """No work will come any more: idle workers end, and busy ones as soon as they are done."""

    def keep(self, partition: TopicPartition, records: Any) -> Any:
        """What to keep of the records while they are queued: here the records themselves."""
        return records

    def wants(self, lane: Lane, records: int) -> int:
        """How many records one poll should bring for a lane with room for *records* (possibly none)."""
        return records

    def reserve_s(self, most_s: float) -> float:
        """How many of the *most_s* seconds that a stop may take have to be left for :meth:`cut_off`."""
        return 0.0

    async def over(self) -> None:
        """Returns when nothing runs outside of this process any more."""

    async def cut_off(self) -> None:
        """The time of what runs outside of this process, in suspended lanes, is over; returns when it has ended."""
