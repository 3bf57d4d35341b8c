"""Hands the values of a memory channel to its handlers, as a channel of Kafka its records."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable
from typing import Any, cast

from reactive_kafka.channel.blueprint import MakeWorkers
from reactive_kafka.channel.run_services import RunServices
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.delivery.current import Place
from reactive_kafka.delivery.lanes import Lanes
from reactive_kafka.delivery.workers import WorkerSetup, WorkerSignals
from reactive_kafka.errors import EncodeError
from reactive_kafka.observe.events import RecordHandedBack
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.outgoing.memory import LeftError, MemoryRecord, MemoryTarget
from reactive_kafka.records import Record, TopicPartition
from reactive_kafka.verdicts.acknowledge import Acknowledger
from reactive_kafka.verdicts.ageing import Origin
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.delivery import Delivery, failure_of
from reactive_kafka.verdicts.hook import Call, NoHook
from reactive_kafka.verdicts.message import Message
from reactive_kafka.verdicts.nack import Strategies, VerdictParts


class MemoryChannel:
    """Has the values of a memory channel handled, one after the other.

    Args:
        target: Where the values come from. It is told each verdict.
        make: Makes workers that settle each record by itself when its handler has returned, and
            not several at once: the sender waits for each ack.
    """

    def __init__(
        self,
        settings: IncomingSettings,
        target: MemoryTarget,
        services: RunServices,
        make: MakeWorkers,
    ) -> None:
        self._target = target
        clock = services.clock
        self._clock = clock
        self._exit = services.exit
        self._tracker = _Tracker(TopicPartition(settings.name, 0), target.settled)
        self._lanes = Lanes(shared=False)
        self._lane = self._lanes.new(self._tracker)
        totals = PartitionTotals()
        hook = NoHook(settings.name)
        spawn = services.tasks.of(target.fail)
        parts = VerdictParts(
            settings=settings,
            clock=clock,
            observer=services.observer,
            totals=lambda _: totals,
            spawn=spawn,
            hook=hook,
            fail=self._fail,
            progress=lambda: None,
            request_commit=lambda _: 0,
            # No nack takes time.
            blocks_on=lambda *_: None,
        )
        verdicts = _Verdicts(parts, target)
        verdicts.begins(self._tracker, settings.name)
        signals = WorkerSignals(parts, verdicts, self._end, _plans_nothing)
        setup = WorkerSetup(
            settings,
            self._lanes,
            clock,
            spawn,
            hook,
            is_ending=services.tasks.is_ending,
            around=self._around,
            roots=_roots,
        )
        self._workers = make(signals, setup)
        target.handled_by(self._take, self._stop_taking)

    def _around(self, call: Call) -> Call:
        """Return a call during which the records that the values were made of grow older.

        Otherwise these records would age while their values wait here.
        """

        async def called(given: Message[Any] | Batch[Any]) -> Any:
            messages = given if isinstance(given, Batch) else (given,)
            origins = [origin for message in messages for origin in _origins(message)]
            now = self._clock.monotonic()
            for origin in origins:
                origin.begin(now)
            try:
                return await call(given)
            finally:
                now = self._clock.monotonic()
                for origin in origins:
                    origin.end(now)

        return called

    def _take(self, value: MemoryRecord) -> None:
        offset = value.offset
        index = self._tracker.deliver(range(offset, offset + 1), offset + 1)
        self._lanes.add(self._lane, (value,), index, self._clock.monotonic())
        self._workers.work_is_there()

    def _stop_taking(self) -> None:
        self._lane.change("drop")
        self._tracker.close()
        self._workers.close()

    def _fail(self, error: BaseException) -> bool:
        self._target.fail(error)
        return True

    def _end(self, reason: BaseException) -> None:
        """End the process, because a handler asked for it. No value behind its own is handled."""
        self._target.leave(reason)
        self._exit(reason)


def _origins(delivery: Delivery) -> list[Origin]:
    return cast(MemoryRecord, delivery.record).origins


def _roots(delivery: Delivery) -> Iterable[Place]:
    return [origin.place for origin in _origins(delivery)]


class _Tracker(OffsetTracker):
    """Reports each ack at once. The sender waits for it, and there is no commit to come."""

    __slots__ = ("_acked",)

    def __init__(self, partition: TopicPartition, acked: Callable[[int], None]) -> None:
        super().__init__(partition, 0)
        self._acked = acked

    def settle(self, index: int) -> bool:
        if not super().settle(index):
            return False
        # Values are numbered from 0 as they arrive, so the offset is the index.
        self._acked(index)
        return True

    def settle_range(self, start: int, stop: int) -> int:
        return sum(self.settle(index) for index in range(start, stop))


class _Verdicts(Acknowledger):
    """Passes each nack back to the sender of the value, whose failure strategy decides."""

    def __init__(self, parts: VerdictParts, target: MemoryTarget) -> None:
        super().__init__(parts, cast("Strategies", None))
        self._target = target
        self._observer = parts.observer

    def nack(
        self, delivery: Delivery, reason: BaseException, record: Record | None = None
    ) -> Future[bool]:
        if not isinstance(reason, BaseException):
            raise TypeError(f"nack() takes an exception, not {type(reason).__name__}")
        if record is not None:
            raise EncodeError(
                f"channel {self.name!r}: a nack goes back to the sender, which has no use for "
                "record="
            )
        if not self.futures.is_here:
            return self.futures.from_thread(lambda: self.nack(delivery, reason))
        return self._hand_back(delivery, reason)

    def failed(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        if delivery.tracker.is_closed or delivery.tracker.is_open(delivery.index):
            return self._hand_back(delivery, reason)
        # The record has a verdict already. The failure is reported all the same.
        return super().failed(delivery, reason)

    def left(self, delivery: Delivery, why: BaseException) -> None:
        if delivery.tracker.nack(delivery.index):
            self._target.settled(delivery.index, why)

    def _hand_back(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        tracker = delivery.tracker
        index = delivery.index
        if not tracker.nack(index):
            return self.futures.no
        tracker.settle_nacked(index)
        if not isinstance(reason, LeftError):
            self._observer.on(RecordHandedBack(**failure_of(self.name, delivery, reason)))
        self._target.settled(index, reason)
        return self.futures.yes


async def _plans_nothing(*_: object) -> bool:
    return True
