"""The verdicts of one channel: its nacks, and what its partitions share."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Sequence

from reactive_kafka.config.values import TIME, parse_duration
from reactive_kafka.errors import BrokerError
from reactive_kafka.failure.strategies import check_replacement, topic_for
from reactive_kafka.formats.names import EVENTS
from reactive_kafka.observe.events import HandlerFailed, OutputLost
from reactive_kafka.records import Record
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import D, Delivery, failure_of, is_open
from reactive_kafka.verdicts.futures import AckFutures, follow
from reactive_kafka.verdicts.nack import FailureRunner, Strategies, VerdictParts
from reactive_kafka.verdicts.partition import PartitionVerdicts, verdicts_of
from reactive_kafka.verdicts.skips import Skips

LOST_TOLD_S = 300.0
"""For how long readiness tells of an output that was lost: nothing but a replay brings it back."""


class Acknowledger:
    """Takes the verdicts of one channel's deliveries, from any thread."""

    def __init__(self, parts: VerdictParts, strategies: Strategies) -> None:
        self.name = parts.settings.name
        self.hook = parts.hook
        self.decode_key = parts.decode_key
        self.has_events = parts.has_events
        self.has_events_only = parts.settings.value_deserializer == EVENTS
        self.commits_at_ack = parts.commits_at_ack
        # An ack is complete when its commit is.
        self.awaits_commits = parts.settings.commit_strategy == "latest"
        self.commits_nothing = parts.settings.commit_strategy == "ignore"
        self.request_commit = parts.request_commit
        self.futures = AckFutures()
        # Who waits for progress: while there is somebody, each verdict tells.
        self.awaited_by: set[object] = set()
        # What the channel has failed for.
        self.failure: BaseException | None = None
        self._parts = parts
        # When the last output was lost, and of which record.
        self._lost: tuple[float, OutputLost] | None = None
        self.skips = Skips(parts, self._settled_by_strategy)
        self._failures = FailureRunner(parts, strategies, self.futures, self._settled_by_strategy)

    def begins(self, tracker: OffsetTracker, owner: str) -> None:
        """The client *owner* reads a partition with this tracker from now on."""
        tracker.owner = PartitionVerdicts(tracker, self)
        self.hook.begins(tracker, owner)

    def tell(self) -> None:
        """A record was settled or nacked."""
        if self.awaited_by:
            self._parts.progress()

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps nacked records from being settled, and what was lost lately."""
        return (*self._failures.not_ready, *self._lost_lately())

    def settled(self, tracker: OffsetTracker) -> None:
        """Workers have settled records of a partition by themselves."""
        if self.commits_at_ack and not tracker.is_closed:
            self.request_commit(tracker)

    def _settled_by_strategy(self, tracker: OffsetTracker) -> None:
        self.tell()
        self.settled(tracker)

    def count_acks(self, tracker: OffsetTracker) -> None:
        """Add the acks since the last count to the partition's totals. Acks are not counted one by
        one.
        """
        self._parts.totals(tracker.partition).acked += tracker.newly_acked()

    def each(self, deliveries: Sequence[D], settle: Callable[[D], Future[bool]]) -> Future[bool]:
        """Give each delivery the same verdict, or none of them. True if at least one took
        effect.
        """
        if not self.futures.is_here:
            return self.futures.from_thread(lambda: self.each(deliveries, settle))
        for delivery in deliveries:
            self.hook.check(delivery.tracker, delivery.index)
        return self.futures.any_of([settle(delivery) for delivery in deliveries])

    def nack(
        self, delivery: Delivery, reason: BaseException, record: Record | None = None
    ) -> Future[bool]:
        """Apply the failure strategy for *reason*, from any thread. Raises as ``Message.nack``
        does.
        """
        if not isinstance(reason, BaseException):
            raise TypeError(f"nack() takes an exception, not {type(reason).__name__}")
        if record is not None:
            check_replacement(self.name, record)
        verdict = self._nack(
            delivery, lambda: self._failures.carry_out(delivery, reason, record), is_by_hand=True
        )
        return self.futures.follow(verdict) if self.futures.is_here else verdict

    def retry_later(self, delivery: Delivery, delay: float | str) -> Future[bool]:
        """Have a record come again later, from any thread. Raises as ``Message.retry_later``
        does.
        """
        topic = self._retry_topic(delay)
        verdict = self._nack(
            delivery, lambda: self._failures.retry_later(delivery, topic), is_by_hand=True
        )
        return self.futures.follow(verdict) if self.futures.is_here else verdict

    def _retry_topic(self, delay: float | str) -> str:
        who = f"channel {self.name!r}: retry_later({delay!r})"
        settings = self._parts.settings.delayed_retry
        delay_s = parse_duration(delay)
        if delay_s is None:
            raise ValueError(f"{who}: expected {TIME.expects}")
        if settings is None:
            raise ValueError(
                f'{who}: neither failure_strategy nor a route is "delayed-retry-topic"'
            )
        if (topic := topic_for(delay_s, settings.topics)) is None:
            raise ValueError(
                f"{who}: no retry topic is as late; there are {', '.join(settings.topics)}"
            )
        return topic

    def failed(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        """The handler failed for good. A transaction of the delivery that is still open stores
        nothing.

        If the delivery already has its verdict, also one that a transaction has stored, the failure
        is only reported. It is not even reported if the partition has gone, since the record is
        another owner's to handle.
        """
        had_its_verdict = not (is_open(delivery) or delivery.tracker.is_closed)
        if had_its_verdict or self.hook.has_stored(delivery):
            self._raised_too_late(delivery, reason)
            return self.futures.no
        return self._nack(delivery, lambda: self._failures.carry_out(delivery, reason, None))

    def output_lost(self, delivery: Delivery, reason: BaseException) -> None:
        """What was made of a delivery was not written. If that is settled already, it is not
        handled again: tell it.

        A transaction with a checkpoint store settles it before, and so does an ack by hand or one
        before the handler.
        """
        tracker = delivery.tracker
        index = delivery.index
        if tracker.is_closed or not tracker.is_settled(index):
            return
        self._parts.totals(tracker.partition).outputs_lost += 1
        event = OutputLost(**failure_of(self.name, delivery, reason))
        self._lost = (self._parts.clock.monotonic(), event)
        self._parts.observer.on(event)

    def _lost_lately(self) -> Iterator[str]:
        """For people: the last output that was lost, for some time."""
        if self._lost is not None:
            at, event = self._lost
            ago_s = self._parts.clock.monotonic() - at
            if ago_s < LOST_TOLD_S:
                yield (
                    f"outputs of settled records are lost: the last one {ago_s:.0f} s ago, of {event.partition} offset "
                    f"{event.offset}: {event.reason}"
                )

    def left(self, delivery: Delivery, why: BaseException) -> None:
        """Nobody settles it here any more, for the application ends: it is the next owner's to
        handle.
        """
        delivery.tracker.nack(delivery.index)
        self.tell()

    def dead_letter(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        """The record is poison: write its dead letter, whatever its handler does from now on."""
        return self._nack(delivery, lambda: self._failures.dead_letter(delivery, reason))

    def _nack(
        self, delivery: Delivery, carry_out: Callable[[], Future[bool]], *, is_by_hand: bool = False
    ) -> Future[bool]:
        if not self.futures.is_here:
            return self.futures.from_thread(
                lambda: self._nack(delivery, carry_out, is_by_hand=is_by_hand)
            )
        # The application may not nack a record of its own open transaction: it can raise an error
        # in the block. A failure or poison cannot wait for that, since the block may never end: the
        # transaction loses.
        if is_by_hand:
            later = self.hook.nack_at_end(delivery, lambda: self._nack_now(delivery, carry_out))
            if later is not None:
                # Who awaits this in the block must not wait for the block's end.
                return self.futures.yes if later == "taken" else self.futures.no
            self.hook.check(delivery.tracker, delivery.index)
        else:
            self.hook.refuse(delivery)
        if is_open(delivery) and self.hook.may_have_stored(delivery):
            return self._nack_when_told(delivery, carry_out)
        return self._nack_now(delivery, carry_out)

    def _nack_now(self, delivery: Delivery, carry_out: Callable[[], Future[bool]]) -> Future[bool]:
        tracker = delivery.tracker
        index = delivery.index
        if not tracker.nack(index):
            return self.futures.no
        self.hook.on_nack(delivery)
        self.tell()
        partition = verdicts_of(tracker)
        # Between a revocation and the next assignment nothing is carried out: a dead letter that is
        # written for a record of another owner by now would be a second one.
        if partition.is_held:
            verdict = partition.answer_later(carry_out)
            # Even though it is not known yet whether it counts.
            self._parts.blocks_on(tracker, index, verdict)
            return verdict
        verdict = carry_out()
        if not verdict.done():
            # A drain waits until the nack is carried out.
            verdict.add_done_callback(lambda _: self.tell())
        return verdict

    def _nack_when_told(
        self, delivery: Delivery, carry_out: Callable[[], Future[bool]]
    ) -> Future[bool]:
        """Nack a record once the store has told that no transaction has stored it, so that it is
        never both.
        """
        index = delivery.index
        nacks = verdicts_of(delivery.tracker).nacks
        if index in nacks:
            # An open record has no other nack than one that waits here.
            return nacks[index]
        answer = nacks[index] = self.futures.pending()

        async def run() -> None:
            verdict = self.futures.no
            try:
                await self.hook.find_out(delivery)
                # What carries it out takes the place.
                del nacks[index]
                verdict = self._nack_now(delivery, carry_out)
            except BrokerError:
                # The partition or the channel goes: the next owner learns from the row whether it
                # is stored.
                pass
            finally:
                if nacks.get(index) is answer:
                    del nacks[index]
                follow(verdict, answer)

        self._parts.blocks_on(delivery.tracker, index, answer)
        self._parts.spawn(run, f"outcome of {delivery.topic_partition} offset {delivery.offset}")
        return answer

    def verdict_of(self, delivery: Delivery) -> Future[bool] | None:
        """What a nack that is being carried out will come to; None if there is none."""
        return verdicts_of(delivery.tracker).nacks.get(delivery.index)

    def raised_after_ack(self, delivery: Delivery, reason: BaseException) -> None:
        """A handler raised for a record that was settled before the call (``ack = "pre"``): only
        report it.
        """
        self._failures.count(delivery, self._parts.settings.ack)
        self._raised_too_late(delivery, reason)

    def _raised_too_late(self, delivery: Delivery, reason: BaseException) -> None:
        self._parts.observer.on(HandlerFailed(**failure_of(self.name, delivery, reason)))
