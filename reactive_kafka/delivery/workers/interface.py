"""What a channel and the workers that handle its records know of each other."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.ages import RecordTimes
from reactive_kafka.delivery.current import RecordPlace, itself
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.returned import ReturnedUnsettled
from reactive_kafka.delivery.workers.slots import ChannelSlots
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.records import RawRecord, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import Acknowledger
from reactive_kafka.verdicts.ageing import Held
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.delivery_hook import Call
from reactive_kafka.verdicts.value_origins import call_off_values

StorePlans = Callable[[Iterable[OffsetTracker]], Coroutine[Any, Any, bool]]
"""Commits until the group has the plans of these trackers.

It returns False if one of the partitions is not ours any more.
"""


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

    def deliveries_of(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Return the unsettled messages of the call that has a record, or that has returned."""
        return []

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Cancel the handler that has a record, and do not wait for it.

        Returns:
            The unsettled messages of its call, or of a handler that has returned without a verdict.
        """
        return []

    def give_up(self, tracker: OffsetTracker, index: int) -> None:
        """Do not wait for the handler that has a record: others get its lane and its place."""

    @property
    def waits_for_outage(self) -> bool:
        """Whether a handler failed because a service is away, and waits for its next call."""
        return False

    def not_ready(self, now: float) -> Iterable[str]:
        """Return why records have waited long for the next call of their handler."""
        return ()

    def warnings(self, now: float) -> Iterable[str]:
        """Return what is wrong with the calls and does not make the channel unready."""
        return ()

    def postponed(self, now: float) -> Iterable[str]:
        """Return which records wait because their handlers have asked for that (``Later``)."""
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

    def deliveries_of(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Return the message of a record that has no verdict."""
        return self._handed_out.find(tracker, index)

    def interrupt(self, tracker: OffsetTracker, index: int) -> list[Delivery]:
        """Return the message of a record that has no verdict. There is no handler to cancel."""
        call_off_values(tracker, index)
        return self.deliveries_of(tracker, index)


def _holds_nothing(partitions: Iterable[TopicPartition] | None) -> Callable[[], None]:
    """Hold nothing: a record that waits holds back all others by its order."""
    return lambda: None


@dataclass(slots=True)
class HandlerTotals:
    """Counters of handler calls; they outlive a restart of the channel."""

    # Calls after the first one.
    retries: int = 0
    # Handlers that were cancelled for poison, and did not end.
    abandoned: int = 0
    # Results that were not sent, because the partition of their record was gone.
    stale_results: int = 0
    durations: DurationHistogram = field(default_factory=DurationHistogram)


@dataclass(frozen=True, slots=True)
class DeliveryOrigins:
    """Which records of Kafka the deliveries of a channel were made of: those that they are.

    Only a memory channel has others: records age, and its values do not.
    """

    of: Callable[[Delivery], Iterable[RecordPlace]] = itself
    # Wraps each call of a handler. The wrapped call takes a message or a batch. None: nothing does.
    around: Callable[[Call], Call] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """What a session of a channel has for its workers. Each object gets what it uses of it."""

    channel: ChannelContext
    # Takes their verdicts.
    acknowledger: Acknowledger
    lanes: LaneQueue
    # Called when a handler asked the process to end (SystemExit, KeyboardInterrupt).
    exit: Callable[[BaseException], None]
    store_plans: StorePlans
    totals: HandlerTotals = field(default_factory=HandlerTotals)
    # Delays and ages of its records.
    times: RecordTimes = field(default_factory=RecordTimes)
    # Returns True while every task is being cancelled, as at the end of ``asyncio.run``.
    is_ending: Callable[[], bool] = lambda: False
    # Returns the trackers of the partitions that hold records, if the application may keep
    # messages without a verdict.
    trackers: Callable[[], Iterable[OffsetTracker]] = tuple
    origins: DeliveryOrigins = DeliveryOrigins()
    # Lets no record of these partitions start, or with None none of the channel, until what it
    # returns is called.
    hold: Callable[[Iterable[TopicPartition] | None], Callable[[], None]] = _holds_nothing
    # What the channel has of the limit that it shares with others. None: it shares none.
    slots: ChannelSlots | None = None

    @property
    def settings(self) -> IncomingSettings:
        """The settings of the channel."""
        return self.channel.settings


class LaneProgress:
    """Tells the channel that a lane has moved on, if that is awaited."""

    def __init__(self, channel: ChannelContext, acknowledger: Acknowledger) -> None:
        self._awaited_by = acknowledger.awaited_by
        self._tell_channel = channel.progress

    def left(self, lane: Lane) -> None:
        """Note that a worker has turned away from a lane.

        There may be room for new records, or a drain may be over.
        """
        if self._awaited_by and (lane.revoked or lane.waiting <= lane.low_water):
            self._tell_channel()
