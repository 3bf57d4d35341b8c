"""Hands the values of a memory channel to its handlers, as a channel of Kafka its records."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, cast

from reactive_kafka.channel.blueprint import MakeWorkers
from reactive_kafka.channel.run_services import RunServices
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.current import RecordPlace
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.workers.interface import DeliveryOrigins, WorkerSetup
from reactive_kafka.errors import EncodeError
from reactive_kafka.failure.strategies import retry_topic_for
from reactive_kafka.memory_channels.memory_target import MemoryRecord, MemoryTarget
from reactive_kafka.observe.events import RecordHandedBack
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.outgoing.target import CalledOffError, LeftError
from reactive_kafka.records import Record, TopicPartition
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import Acknowledger, verdicts_of
from reactive_kafka.verdicts.batch import Batch
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery, failure_of, is_open
from reactive_kafka.verdicts.delivery_hook import Call, NoHook
from reactive_kafka.verdicts.message import Message, new_message
from reactive_kafka.verdicts.value_origins import ValueOrigin

GIVEN_UP_S = 1.0
"""How long the handler of a value may run on after the partitions of its records have gone.

After that the channel does not wait for it any more.
"""


class MemoryChannel:
    """Has the values of a memory channel handled, one after the other.

    Args:
        target: Where the values come from. It gets each verdict.
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
        # The application settles values after their handlers have returned.
        self._keeps = settings.ack == "manual"
        # The number of each call that runs -> its messages.
        self._calls: dict[int, Sequence[Message[Any]]] = {}
        self._call_numbers = count()
        # Values have been called off.
        self._has_called_off = False
        # Gives up the calls whose partitions have gone. None: no partition has gone lately.
        self._giving_up: asyncio.TimerHandle | None = None
        clock = services.clock
        self._clock = clock
        self._exit = services.exit
        self._tracker = _Tracker(TopicPartition(settings.name, 0), target.settled)
        self._lanes = LaneQueue(shared=False)
        self._lane = self._lanes.new(self._tracker)
        totals = PartitionTotals()
        channel = ChannelContext(
            settings=settings,
            clock=clock,
            observer=services.observer,
            totals=lambda _: totals,
            spawn=services.tasks.of(target.fail),
            fail=self._fail,
            progress=lambda: None,
        )
        self._hands_back = _HandsBack(channel, target)
        acknowledger = Acknowledger(channel, self._hands_back, NoHook(settings.name))
        acknowledger.begins(self._tracker, settings.name)
        setup = WorkerSetup(
            channel=channel,
            acknowledger=acknowledger,
            lanes=self._lanes,
            exit=self._end,
            store_plans=_plans_nothing,
            is_ending=services.tasks.is_ending,
            origins=DeliveryOrigins(_roots, self._around),
        )
        self._workers = make(setup)
        target.handled_by(self)

    def _around(self, call: Call) -> Call:
        """Return a call during which the records that the values were made of grow older.

        Otherwise these records would age while their values wait here.
        """

        async def called(given: Message[Any] | Batch[Any]) -> Any:
            messages = self._wanted(given)
            if not messages:
                return None
            if isinstance(given, Batch) and len(messages) < len(given):
                given = Batch(messages)
            now = self._clock.monotonic()
            for message in messages:
                for origin in _origins(message):
                    origin.begin(now)
            call_number = next(self._call_numbers)
            self._calls[call_number] = messages
            if _are_gone(messages):
                self.partition_gone()
            kept: Sequence[Message[Any]] = ()
            try:
                result = await call(given)
                if self._keeps:
                    kept = [message for message in messages if is_open(message)]
                return result
            finally:
                del self._calls[call_number]
                self._returned(messages, kept)

        return called

    def _wanted(self, given: Message[Any] | Batch[Any]) -> Sequence[Message[Any]]:
        """Return the messages of a call, without those that were called off."""
        messages = tuple(given) if isinstance(given, Batch) else (given,)
        if not self._has_called_off:
            return messages
        for message in messages:
            if _is_called_off([message]):
                self._hand_back(message)
        return [message for message in messages if not _is_called_off([message])]

    def _returned(self, messages: Sequence[Message[Any]], kept: Sequence[Message[Any]]) -> None:
        """Note the end of a call. The records of messages that are *kept* age on."""
        now = self._clock.monotonic()
        kept_indexes = {message.index for message in kept}
        for message in messages:
            if message.index in kept_indexes:
                cast(MemoryRecord, message.record).is_kept = True
                continue
            for origin in _origins(message):
                origin.end(now)

    def values_called_off(self) -> None:
        """Cancel the handlers whose values were called off, and hand these back."""
        self._has_called_off = True
        self._look_at_calls()
        kept: list[Message[Any]] = [
            new_message(None, value, self._tracker, value.offset) for value in self._target.kept()
        ]
        self._hand_back_soon([message for message in kept if _is_called_off([message])])

    def partition_gone(self) -> None:
        """Soon give up the calls whose values all come from partitions that have gone."""
        if self._giving_up is None and not self._tracker.is_closed:
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(GIVEN_UP_S, self._give_up_calls)

    def _give_up_calls(self) -> None:
        self._giving_up = None
        self._look_at_calls()

    def _look_at_calls(self) -> None:
        """End the calls of which no value is wanted: none may keep the others waiting for ever."""
        for messages in tuple(self._calls.values()):
            if not _are_gone(messages):
                continue
            first = messages[0]
            if _is_called_off(messages):
                self._workers.interrupt(first.tracker, first.index)
            else:
                # Its partitions are others' now. It may end, as any handler of such a record.
                self._workers.give_up(first.tracker, first.index)
            self._hand_back_soon(messages)

    def _hand_back_soon(self, messages: Sequence[Message[Any]]) -> None:
        # Later, because the code that called the values off has yet to settle their record.
        loop = asyncio.get_running_loop()
        for message in messages:
            loop.call_soon(self._hand_back, message)

    def _hand_back(self, message: Message[Any]) -> None:
        if is_open(message):
            self._hands_back.failed(message, CalledOffError(self._target.name))

    def take(self, value: MemoryRecord) -> None:
        """Have a value handled when those before it are."""
        offset = value.offset
        index = self._tracker.deliver(range(offset, offset + 1), offset + 1)
        self._lanes.add(self._lane, (value,), index, self._clock.monotonic())
        self._workers.work_is_there()

    def stop_taking(self) -> None:
        """Handle no more values."""
        self._lane.change("drop")
        self._tracker.close()
        self._workers.close()
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def not_ready(self) -> Iterable[str]:
        """Return why values have waited long for the next call of their handler."""
        return self._workers.not_ready(self._clock.monotonic())

    def postponed(self) -> Iterable[str]:
        """Return which values wait because their handlers have asked for that."""
        return self._workers.postponed(self._clock.monotonic())

    def _fail(self, error: BaseException) -> bool:
        self._target.fail(error)
        return True

    def _end(self, reason: BaseException) -> None:
        """End the process, because a handler asked for it. No value behind its own is handled."""
        self._target.leave(reason)
        self._exit(reason)


def _are_gone(messages: Sequence[Message[Any]]) -> bool:
    """Return whether all records are gone that these values were made of."""
    for message in messages:
        origins = _origins(message)
        if not origins or not all(origin.is_gone for origin in origins):
            return False
    return True


def _is_called_off(messages: Sequence[Message[Any]]) -> bool:
    """Return whether all records are gone that these values were made of, one by a verdict."""
    return _are_gone(messages) and any(
        origin.is_called_off for message in messages for origin in _origins(message)
    )


def _origins(delivery: Delivery) -> list[ValueOrigin]:
    return cast(MemoryRecord, delivery.record).origins


def _roots(delivery: Delivery) -> Iterable[RecordPlace]:
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


class _HandsBack:
    """Hands a nacked value back to its sender, whose failure strategy decides.

    A memory channel has no failure strategy, no failed writes, and no delayed retries.
    """

    not_ready = ()

    def __init__(self, channel: ChannelContext, target: MemoryTarget) -> None:
        self._channel = channel
        self._target = target

    def nack(
        self, delivery: Delivery, reason: BaseException, record: Record | None = None
    ) -> Future[bool]:
        if not isinstance(reason, BaseException):
            raise TypeError(f"nack() takes an exception, not {type(reason).__name__}")
        if record is not None:
            raise EncodeError(
                f"channel {self._channel.settings.name!r}: a nack goes back to the sender, "
                "which has no use for record="
            )
        futures = verdicts_of(delivery.tracker).channel.futures
        if not futures.is_here:
            return futures.from_thread(lambda: self._hand_back(delivery, reason))
        return self._hand_back(delivery, reason)

    def retry_later(self, delivery: Delivery, delay: float | str | timedelta) -> Future[bool]:
        retry_topic_for(self._channel.settings.name, delay, ())
        raise AssertionError("a channel without retry topics has one")

    def failed(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        if delivery.tracker.is_closed or delivery.tracker.is_open(delivery.index):
            return self._hand_back(delivery, reason)
        acknowledger = verdicts_of(delivery.tracker).channel
        acknowledger.report_late_failure(delivery, reason)
        return acknowledger.futures.no

    def left(self, delivery: Delivery, why: BaseException) -> None:
        if isinstance(why, CalledOffError):
            # The values behind it are still handled.
            self._hand_back(delivery, why)
        elif delivery.tracker.nack(delivery.index):
            self._target.settled(delivery.index, why)

    def _hand_back(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        tracker = delivery.tracker
        index = delivery.index
        futures = verdicts_of(tracker).channel.futures
        if not tracker.nack(index):
            return futures.no
        tracker.settle_nacked(index)
        if not isinstance(reason, LeftError):
            about = failure_of(self._channel.settings.name, delivery, reason)
            self._channel.observer.on(RecordHandedBack(**about))
        self._target.settled(index, reason)
        return futures.yes


async def _plans_nothing(*_: object) -> bool:
    return True
