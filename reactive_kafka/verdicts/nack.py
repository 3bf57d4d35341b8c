"""Carries out what the failure strategies decide about nacked records."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from reactive_kafka.clock import Clock
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ChannelClosedError, HandlerError, RetryLaterError
from reactive_kafka.failure.decision import Decision, FailedRecord, Skip, Stop, Write
from reactive_kafka.failure.headers import delay_of
from reactive_kafka.observe.events import (
    Event,
    Observer,
    RecordDeadLettered,
    RecordDelayed,
    RecordIgnored,
    RecordLeft,
    RecordPutOff,
)
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.records import RawRecord, Record, TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.delivery import Delivery, failure_of
from reactive_kafka.verdicts.futures import AckFutures
from reactive_kafka.verdicts.hook import DeliveryHook
from reactive_kafka.verdicts.partition import verdicts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictParts:
    """What a channel gives to the objects that take its verdicts."""

    settings: IncomingSettings
    clock: Clock
    observer: Observer
    totals: Callable[[TopicPartition], PartitionTotals]
    spawn: Spawn
    hook: DeliveryHook
    # Stops the channel; False if it was stopping or had failed before.
    fail: Callable[[BaseException], bool]
    # Called after a verdict while somebody waits for room, or for the end of a drain.
    progress: Callable[[], None]
    # Of a tracker's partition; the position that would be committed.
    request_commit: Callable[[OffsetTracker], int]
    # Told of nacks that take time; True: it took effect.
    blocks_on: Callable[[OffsetTracker, int, Future[bool]], None]
    # An ack requests a commit.
    commits_at_ack: bool = False
    # Of ``key_deserializer``; None: keys stay bytes.
    decode_key: Callable[[RawRecord], Any] | None = None
    # Records may be CloudEvents.
    has_events: bool = False


class Strategies(Protocol):
    """The failure strategies of a channel, and the writer of dead letters and delayed retries."""

    def strategy_of(self, reason: BaseException) -> str:
        """The name of the strategy for a reason."""

    def decide(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        """Decide about a nacked record. Raises nothing."""

    def dead_letter(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        """The dead letter of a poison record. Raises nothing."""

    def later(self, failed: FailedRecord, topic: str) -> Decision:
        """The delayed retry that a handler asks for. Raises nothing."""

    async def write(
        self, write: Write, settle: Callable[[Any], Awaitable[None]] | None = None
    ) -> bool:
        """Write it. Returns when the broker has it, however long that takes; True: *settle* has
        written it.

        Raises:
            ChannelClosedError: The channel stopped meanwhile.
        """

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps dead letters and delayed retries from being written."""


class FailureRunner:
    """Carries out what the failure strategies of one channel decide."""

    def __init__(
        self,
        parts: VerdictParts,
        strategies: Strategies,
        futures: AckFutures,
        settled: Callable[[OffsetTracker], None],
    ) -> None:
        self._parts = parts
        self._channel = parts.settings.name
        self._strategies = strategies
        self._futures = futures
        # Called with the tracker of a record that a strategy has settled.
        self._settled = settled
        # The dead letters of poison records that are being written.
        self._poison: list[str] = []

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps records from being settled."""
        return (*self._strategies.not_ready, *self._poison)

    def carry_out(
        self, delivery: Delivery, reason: BaseException, record: Record | None
    ) -> Future[bool]:
        """Apply the failure strategy for *reason*. The future is True if the nack took effect."""
        self.count(delivery, self._strategies.strategy_of(reason))
        return self._apply(
            delivery, reason, self._strategies.decide(self._failed(delivery, reason, record))
        )

    def retry_later(self, delivery: Delivery, topic: str) -> Future[bool]:
        """Write a record to a retry topic, whatever the strategy for failures is."""
        reason = RetryLaterError("asked for by its handler")
        self.count(delivery, "delayed-retry-topic")
        return self._apply(
            delivery, reason, self._strategies.later(self._failed(delivery, reason, None), topic)
        )

    def dead_letter(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        """Write the dead letter of a poison record, whatever the channel's strategy is."""
        self.count(delivery, "dead-letter-queue")
        decision = self._strategies.dead_letter(self._failed(delivery, reason, None))
        written = self._apply(delivery, reason, decision)
        if not written.done():
            where = f"{delivery.topic_partition} offset {delivery.offset}"
            waiting = f"the dead letter of {where}, which is poison, is not written yet"
            self._poison.append(waiting)
            written.add_done_callback(lambda _: self._poison.remove(waiting))
        return written

    def _failed(
        self, delivery: Delivery, reason: BaseException, replacement: Record | None
    ) -> FailedRecord:
        record = delivery.record
        return FailedRecord(
            channel=self._channel,
            group_id=self._parts.settings.group_id,
            partition=delivery.topic_partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
            timestamp_ms=record.timestamp,
            reason=reason,
            replacement=replacement,
            now_ms=int(self._parts.clock.wall() * 1000),
        )

    def _apply(
        self, delivery: Delivery, reason: BaseException, decision: Decision | Awaitable[Decision]
    ) -> Future[bool]:
        if isinstance(decision, Write):
            return self._in_a_task(delivery, lambda: self._write(delivery, reason, decision))
        if not isinstance(decision, Stop | Skip):
            return self._in_a_task(delivery, lambda: self._decided(delivery, reason, decision))
        if isinstance(decision, Stop):
            self._stop(delivery, reason if decision.error is None else decision.error)
            return self._futures.yes
        if not delivery.tracker.settle_nacked(delivery.index):
            return self._futures.no
        self._parts.observer.on(RecordIgnored(**failure_of(self._channel, delivery, reason)))
        self._settled(delivery.tracker)
        return self._futures.yes

    def _stop(self, delivery: Delivery, reason: BaseException) -> None:
        error = HandlerError(self._channel, delivery.topic_partition, delivery.offset, reason)
        error.__cause__ = reason
        if not self._parts.fail(error):
            self._parts.observer.on(RecordLeft(**failure_of(self._channel, delivery, reason)))

    def _in_a_task(self, delivery: Delivery, work: Callable[[], Awaitable[bool]]) -> Future[bool]:
        """Carry it out in a task, which is cancelled when the partition goes. False if the nack had
        no effect.
        """
        tracker = delivery.tracker
        index = delivery.index
        partition = verdicts_of(tracker)
        answer = partition.nacks[index] = self._futures.pending()

        async def run() -> None:
            task = asyncio.current_task()
            # For the type checker.
            assert task is not None  # noqa: S101
            partition.writing.add(task)
            settled = False
            try:
                if not tracker.is_closed:
                    settled = await work()
            except ChannelClosedError:
                # The channel stopped: the record is left for the next owner.
                pass
            except asyncio.CancelledError:
                if not tracker.is_closed:
                    raise
            finally:
                del partition.nacks[index]
                partition.writing.discard(task)
                if not answer.done():
                    answer.set_result(settled)

        # In this order: the worker has to hold back its lane before anything else can run, or the
        # next record of the partition would be handled before this one's dead letter is written.
        self._parts.blocks_on(tracker, index, answer)
        self._parts.spawn(run, f"failure of {delivery.topic_partition} offset {delivery.offset}")
        return answer

    async def _decided(
        self, delivery: Delivery, reason: BaseException, decision: Awaitable[Decision]
    ) -> bool:
        made = await decision
        if delivery.tracker.is_closed:
            # The partition went meanwhile: its next owner decides about the record.
            return False
        if isinstance(made, Write):
            return await self._write(delivery, reason, made)
        return await self._apply(delivery, reason, made)

    async def _write(self, delivery: Delivery, reason: BaseException, write: Write) -> bool:
        is_settled = await self._strategies.write(write, self._parts.hook.writes_letter(delivery))
        if not is_settled and not delivery.tracker.settle_nacked(delivery.index):
            return False
        self._parts.observer.on(self._written(delivery, reason, write))
        self._settled(delivery.tracker)
        return True

    def _written(self, delivery: Delivery, reason: BaseException, write: Write) -> Event:
        """Count a written record; returns the event."""
        totals = self._parts.totals(delivery.topic_partition)
        delay_ms = delay_of(write.topic)
        about = failure_of(self._channel, delivery, reason)
        if write.kind == "retry":
            totals.delayed += 1
            delay_s = (delay_ms or 0) / 1000
            if isinstance(reason, RetryLaterError):
                about = {**about, "reason": str(reason), "error": None}
                return RecordPutOff(**about, to=write.topic, delay_s=delay_s)
            return RecordDelayed(**about, to=write.topic, delay_s=delay_s)
        totals.dead_lettered += 1
        return RecordDeadLettered(**about, to=write.topic)

    def count(self, delivery: Delivery, strategy: str) -> None:
        """Count a nack by the strategy that answers for it, or by the ack mode that has settled its
        record.
        """
        nacked = self._parts.totals(delivery.topic_partition).nacked
        nacked[strategy] = nacked.get(strategy, 0) + 1
