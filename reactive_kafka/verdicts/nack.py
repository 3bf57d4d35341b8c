"""What becomes of nacked records: the failure strategy decides, and this carries it out."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from reactive_kafka.clock import Clock
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.errors import ChannelClosedError, HandlerError, describe
from reactive_kafka.failure.decision import Decision, FailedRecord, Skip, Stop, Write
from reactive_kafka.failure.delays import delay_of
from reactive_kafka.observe.events import Event, Observer, RecordDeadLettered, RecordDelayed, RecordIgnored, RecordLeft
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.records import Record, TopicPartition
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.delivery import Delivery
from reactive_kafka.verdicts.futures import AckFutures

Owes = Callable[[OffsetTracker, int, Future[bool]], None]
"""Told of each nack that takes its time: the record, and what the nack will come to."""


class Strategies(Protocol):
    """The failure strategies of a channel, and who writes what they decide to write."""

    def strategy_of(self, reason: BaseException) -> str:
        """The name of the strategy that a reason meets."""

    def decide(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        """What becomes of a record. Raises nothing."""

    def dead_letter(self, failed: FailedRecord) -> Decision | Awaitable[Decision]:
        """The dead letter of a poison record. Raises nothing."""

    async def write(self, write: Write) -> None:
        """Write it; returns when the broker has it, however long that takes.

        Raises:
            ChannelClosedError: The channel stopped meanwhile.
        """

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps dead letters and delayed retries from being written."""


class FailureRunner:
    """Carries out what the failure strategies of one channel decide.

    Args:
        fail: Stops the channel, for the reason given; False if it was stopping or had failed before.
        settled: Called with the tracker of a record that a strategy has settled.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        strategies: Strategies,
        verdicts: AckFutures,
        clock: Clock,
        observer: Observer,
        totals: Callable[[TopicPartition], PartitionTotals],
        spawn: Spawn,
        *,
        fail: Callable[[BaseException], bool],
        settled: Callable[[OffsetTracker], None],
    ) -> None:
        self._settings = settings
        self._strategies = strategies
        self._verdicts = verdicts
        self._clock = clock
        self._observer = observer
        self._totals = totals
        self._spawn = spawn
        self._fail = fail
        self._settled = settled
        self.owes: Owes = _nobody_waits
        self._pending: dict[OffsetTracker, dict[int, Future[bool]]] = {}
        self._writing: dict[OffsetTracker, set[asyncio.Task[Any]]] = {}
        self._poison: dict[tuple[OffsetTracker, int], str] = {}  # whose dead letters are on their way

    def pending(self, tracker: OffsetTracker, index: int) -> Future[bool] | None:
        """What a nack that is being carried out will come to; None if there is none."""
        return self._pending.get(tracker, {}).get(index)

    def pending_up_to(self, tracker: OffsetTracker, index: int) -> list[Future[bool]]:
        """What the nacks come to that are being carried out, of records up to this one."""
        return [verdict for at, verdict in self._pending.get(tracker, {}).items() if at <= index]

    def carrying_out(self, tracker: OffsetTracker) -> int:
        """How many nacks of a partition's records are being carried out."""
        return len(self._pending.get(tracker, ()))

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps records from being settled."""
        return (*self._strategies.not_ready, *self._poison.values())

    def carry_out(self, message: Delivery, reason: BaseException, record: Record | None) -> Future[bool]:
        """Do what the strategy for *reason* decides; whether the record was settled, or left as it decided."""
        self._count(message, self._strategies.strategy_of(reason))
        return self._apply(message, reason, self._strategies.decide(self._failed(message, reason, record)))

    def dead_letter(self, message: Delivery, reason: BaseException) -> Future[bool]:
        """Write the dead letter of a poison record, whatever the channel's strategy is."""
        self._count(message, "dead-letter-queue")
        decision = self._strategies.dead_letter(self._failed(message, reason, None))
        written = self._apply(message, reason, decision)
        if not written.done():
            at, where = (message.tracker, message.index), f"{message.topic_partition} offset {message.offset}"
            self._poison[at] = f"the dead letter of {where}, which is poison, is not written yet"
            written.add_done_callback(lambda _: self._poison.pop(at))
        return written

    def gone(self, tracker: OffsetTracker) -> None:
        """The partition is not ours any more: its records are somebody else's to settle."""
        for task in self._writing.get(tracker, ()):
            task.cancel()

    def _failed(self, message: Delivery, reason: BaseException, replacement: Record | None) -> FailedRecord:
        record = message.record
        return FailedRecord(
            channel=self._settings.name,
            group_id=self._settings.group_id,
            partition=message.topic_partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
            timestamp_ms=record.timestamp,
            reason=reason,
            replacement=replacement,
            now_ms=int(self._clock.wall() * 1000),
        )

    def _apply(
        self, message: Delivery, reason: BaseException, decision: Decision | Awaitable[Decision]
    ) -> Future[bool]:
        if isinstance(decision, Write):
            return self._in_a_task(message, lambda: self._write(message, reason, decision))
        if not isinstance(decision, Stop | Skip):
            return self._in_a_task(message, lambda: self._decided(message, reason, decision))
        if isinstance(decision, Stop):
            self._stop(message, reason if decision.error is None else decision.error)
            return self._verdicts.yes
        if not message.tracker.settle_nacked(message.index):
            return self._verdicts.no
        self._observer.on(
            RecordIgnored(
                channel=self._settings.name,
                partition=message.topic_partition,
                offset=message.offset,
                reason=describe(reason),
                error=reason,
            )
        )
        self._settled(message.tracker)
        return self._verdicts.yes

    def _stop(self, message: Delivery, reason: BaseException) -> None:
        error = HandlerError(self._settings.name, message.topic_partition, message.offset, reason)
        error.__cause__ = reason
        if not self._fail(error):
            self._observer.on(
                RecordLeft(
                    channel=self._settings.name,
                    partition=message.topic_partition,
                    offset=message.offset,
                    reason=describe(reason),
                    error=reason,
                )
            )

    def _in_a_task(self, message: Delivery, work: Callable[[], Awaitable[bool]]) -> Future[bool]:
        """Carry it out beside the worker; given up when the partition goes. False if it came to nothing."""
        tracker, index = message.tracker, message.index
        answer: Future[bool] = self._verdicts.pending()
        self._pending.setdefault(tracker, {})[index] = answer

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101  # for the type checker
            self._writing.setdefault(tracker, set()).add(task)
            settled = False
            try:
                if not tracker.is_closed:
                    settled = await work()
            except ChannelClosedError:
                pass  # the channel stopped, and the record stays for the next owner
            except asyncio.CancelledError:
                if not tracker.is_closed:
                    raise
            finally:
                self._is_over(tracker, index, task)
                if not answer.done():
                    answer.set_result(settled)

        self.owes(tracker, index, answer)
        self._spawn(run, f"failure of {message.topic_partition} offset {message.offset}")
        return answer

    def _is_over(self, tracker: OffsetTracker, index: int, task: asyncio.Task[Any]) -> None:
        del self._pending[tracker][index]
        self._writing[tracker].discard(task)
        if not self._pending[tracker]:
            del self._pending[tracker], self._writing[tracker]

    async def _decided(self, message: Delivery, reason: BaseException, decision: Awaitable[Decision]) -> bool:
        made = await decision
        if message.tracker.is_closed:
            return False  # the partition went meanwhile: what becomes of the record is another's to decide
        if isinstance(made, Write):
            return await self._write(message, reason, made)
        return await self._apply(message, reason, made)

    async def _write(self, message: Delivery, reason: BaseException, write: Write) -> bool:
        await self._strategies.write(write)
        if not message.tracker.settle_nacked(message.index):
            return False
        self._observer.on(self._written(message, reason, write))
        self._settled(message.tracker)
        return True

    def _written(self, message: Delivery, reason: BaseException, write: Write) -> Event:
        """Count it, and say so."""
        totals, delay_ms = self._totals(message.topic_partition), delay_of(write.topic)
        about: dict[str, Any] = {
            "channel": self._settings.name,
            "partition": message.topic_partition,
            "offset": message.offset,
            "to": write.topic,
            "reason": describe(reason),
            "error": reason,
        }
        if write.kind == "retry":
            totals.delayed += 1
            return RecordDelayed(**about, delay_s=(delay_ms or 0) / 1000)
        totals.dead_lettered += 1
        return RecordDeadLettered(**about)

    def _count(self, message: Delivery, strategy: str) -> None:
        nacked = self._totals(message.topic_partition).nacked
        nacked[strategy] = nacked.get(strategy, 0) + 1


def _nobody_waits(tracker: OffsetTracker, index: int, verdict: Future[bool]) -> None:
    """Where no worker has the record."""
