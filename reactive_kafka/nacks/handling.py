"""Handles nacks: takes the verdict, asks the failure strategy, carries out its decision."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum
from typing import Any

from reactive_kafka.errors import BrokerError, ChannelClosedError, HandlerError, RetryLaterError
from reactive_kafka.failure.decision import Decision, FailedRecord, Skip, Stop, WriteLetter
from reactive_kafka.failure.headers import delay_of
from reactive_kafka.failure.strategies import (
    DEAD_LETTER_QUEUE,
    DELAYED_RETRY,
    ChannelStrategies,
    check_decision,
    check_replacement,
    retry_topic_for,
    stop_for_bug,
)
from reactive_kafka.nacks.letter_writer import LetterWriter
from reactive_kafka.observe.events import (
    Event,
    RecordDeadLettered,
    RecordDelayed,
    RecordIgnored,
    RecordLeft,
    RecordPutOff,
)
from reactive_kafka.observe.wording import and_more
from reactive_kafka.records import Record
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.verdicts.acknowledger import verdicts_of
from reactive_kafka.verdicts.channel_context import ChannelContext
from reactive_kafka.verdicts.delivery import Delivery, failure_of, is_open
from reactive_kafka.verdicts.delivery_hook import DeliveryHook
from reactive_kafka.verdicts.futures import follow, when_done


class NackState(Enum):
    """How far a nack has come."""

    OPEN = (
        "the record has no verdict; if a transaction may have stored it, "
        "the checkpoint store is asked first"
    )
    NACKED = (
        "the nack counts: the record holds back the position and takes no other verdict; "
        "in a rebalance the nack waits here for the next assignment, "
        "and ends here if the partition goes"
    )
    DECIDING = "the failure strategy decides"
    WRITING = "the dead letter or the retry is being written"
    SETTLED = "the position may pass the record"
    STOPPED = "the strategy stops the channel; the record stays unsettled"
    LEFT = "the partition or the channel went first; the record is its next owner's"


_S = NackState
NACK_TRANSITIONS: dict[NackState, dict[str, NackState]] = {
    _S.OPEN: {"nack": _S.NACKED},
    _S.NACKED: {"decide": _S.DECIDING},
    _S.DECIDING: {
        "write": _S.WRITING,
        "skip": _S.SETTLED,
        "stop": _S.STOPPED,
        "task_ended": _S.LEFT,
    },
    _S.WRITING: {"written": _S.SETTLED, "task_ended": _S.LEFT},
    _S.SETTLED: {"task_ended": _S.SETTLED},
    _S.STOPPED: {"task_ended": _S.STOPPED},
    _S.LEFT: {"task_ended": _S.LEFT},
}
"""State -> event -> next state.

``nack``: the tracker has taken the verdict; ``decide``: the failure strategy is asked; ``write``:
it wants the record written elsewhere; ``skip``: it wants the record ignored, and the tracker has
settled it; ``stop``: it wants the channel stopped; ``written``: the broker has the letter, and the
record is settled; ``task_ended``: the task that carries it out has ended, done or not."""


class Nack:
    """One nack, from the verdict until the record is settled or left.

    Attributes:
        reason: Why the record failed.
        strategy: The name of the failure strategy that answers for it.
        replacement: What is to be written instead of the record's own content.
        retry_topic: The topic of a retry that the handler has asked for. No strategy is asked then.
        is_poison: The record was unsettled for too long.
        partition: The verdicts of the record's partition.
    """

    __slots__ = (
        "delivery",
        "is_poison",
        "partition",
        "reason",
        "replacement",
        "retry_topic",
        "state",
        "strategy",
    )

    def __init__(
        self,
        delivery: Delivery,
        reason: BaseException,
        strategy: str,
        *,
        replacement: Record | None = None,
        retry_topic: str | None = None,
        is_poison: bool = False,
    ) -> None:
        self.delivery = delivery
        self.reason = reason
        self.strategy = strategy
        self.replacement = replacement
        self.retry_topic = retry_topic
        self.is_poison = is_poison
        self.partition = verdicts_of(delivery.tracker)
        self.state = NackState.OPEN

    def change(self, event: str) -> None:
        """Go to the next state; an event that the state has no row for is a bug of ours."""
        self.state = NACK_TRANSITIONS[self.state][event]

    @property
    def took_effect(self) -> bool:
        """Whether it has been carried out, which is what ``Message.nack`` answers."""
        return self.state in (NackState.SETTLED, NackState.STOPPED)

    @property
    def place(self) -> str:
        """Partition and offset of its record, for people."""
        return f"{self.delivery.topic_partition} offset {self.delivery.offset}"


class FailureHandling:
    """Takes the nacks of one Kafka channel, from any thread, and carries out what becomes of them.

    Args:
        blocks_on: Told of each nack that takes time, with the tracker, the arrival number and the
            answer: the worker that has the record waits for it.
    """

    def __init__(
        self,
        channel: ChannelContext,
        hook: DeliveryHook,
        strategies: ChannelStrategies,
        letters: LetterWriter,
        blocks_on: Callable[[OffsetTracker, int, Future[bool]], None],
    ) -> None:
        self._name = channel.settings.name
        self._channel = channel
        self._hook = hook
        self._strategies = strategies
        self._letters = letters
        self._blocks_on = blocks_on
        # The poison records whose dead letters are being written, in their order.
        self._poison: dict[Nack, None] = {}

    @property
    def not_ready(self) -> tuple[str, ...]:
        """What keeps nacked records from being settled, for people."""
        lines = self._letters.not_ready
        oldest = next(iter(self._poison), None)
        if oldest is None:
            return lines
        line = f"the dead letter of {oldest.place}, which is poison, is not written yet"
        return (*lines, and_more(line, len(self._poison) - 1))

    # Those who nack.

    def nack(
        self, delivery: Delivery, reason: BaseException, record: Record | None = None
    ) -> Future[bool]:
        """The application nacks a record. Raises as ``Message.nack`` does."""
        if not isinstance(reason, BaseException):
            raise TypeError(f"nack() takes an exception, not {type(reason).__name__}")
        if record is not None:
            check_replacement(self._name, record)
        strategy = self._strategies.name_for(reason)
        return self._nack_by_hand(Nack(delivery, reason, strategy, replacement=record))

    def retry_later(self, delivery: Delivery, delay: float | str | timedelta) -> Future[bool]:
        """The application puts a record off. Raises as ``Message.retry_later`` does."""
        retries = self._channel.settings.delayed_retry
        topics = () if retries is None else retries.topics
        topic = retry_topic_for(self._name, delay, topics)
        reason = RetryLaterError("asked for by its handler")
        return self._nack_by_hand(Nack(delivery, reason, DELAYED_RETRY, retry_topic=topic))

    def failed(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        """The handler failed for good. An open transaction of the record stores nothing.

        If the record already has its verdict, also one that a transaction has stored, the failure
        is only reported. It is not even reported if the partition has gone: the record is another
        owner's to handle.
        """
        had_its_verdict = not (is_open(delivery) or delivery.tracker.is_closed)
        if had_its_verdict or self._hook.has_stored(delivery):
            channel = verdicts_of(delivery.tracker).channel
            channel.report_late_failure(delivery, reason)
            return channel.futures.no
        return self._nack_failed(Nack(delivery, reason, self._strategies.name_for(reason)))

    def dead_letter(self, delivery: Delivery, reason: BaseException) -> Future[bool]:
        """The record is poison: write its dead letter, whatever its handler does from now on."""
        return self._nack_failed(Nack(delivery, reason, DEAD_LETTER_QUEUE, is_poison=True))

    def left(self, delivery: Delivery, why: BaseException) -> None:
        """Note that the application ends before the record is settled, because of *why*.

        It is nacked, and that is not carried out. So it holds back the position, and the next owner
        of the partition handles it again.
        """
        delivery.tracker.nack(delivery.index)
        verdicts_of(delivery.tracker).channel.made_progress()

    # From OPEN to NACKED.

    def _nack_by_hand(self, nack: Nack) -> Future[bool]:
        futures = nack.partition.channel.futures
        if not futures.is_here:
            return futures.from_thread(lambda: self._nack_on_loop(nack))
        # The caller may cancel its future. Others wait for the verdict, too.
        return futures.follow(self._nack_on_loop(nack))

    def _nack_on_loop(self, nack: Nack) -> Future[bool]:
        """Nack a record for the application, which may be in a transaction with it.

        The application may not nack a record of its own open transaction: it can raise an error in
        the block instead. A batch transaction takes nacks of single records until its end.
        """
        delivery = nack.delivery
        at_end = self._hook.nack_at_end(delivery, lambda: self._take(nack))
        if at_end is not None:
            # Answered now: code that awaits this in the block must not wait for the block's end.
            futures = nack.partition.channel.futures
            return futures.yes if at_end == "taken" else futures.no
        self._hook.check(delivery.tracker, delivery.index)
        return self._take_unless_stored(nack)

    def _nack_failed(self, nack: Nack) -> Future[bool]:
        """Nack a record for a failure or poison. An open transaction of the record is refused.

        It cannot wait for the end of the transaction's block, which may never come.
        """
        futures = nack.partition.channel.futures
        if not futures.is_here:
            return futures.from_thread(lambda: self._nack_failed(nack))
        self._hook.refuse(nack.delivery)
        return self._take_unless_stored(nack)

    def _take_unless_stored(self, nack: Nack) -> Future[bool]:
        if is_open(nack.delivery) and self._hook.may_have_stored(nack.delivery):
            return self._take_when_store_answers(nack)
        return self._take(nack)

    def _take_when_store_answers(self, nack: Nack) -> Future[bool]:
        """Nack a record once its store says that no transaction stored it: it is never both."""
        delivery = nack.delivery
        nacks = nack.partition.nacks
        index = delivery.index
        if index in nacks:
            # The record is open, so this is another nack that waits for the store.
            return nacks[index]
        futures = nack.partition.channel.futures
        answer = futures.pending()
        nacks[index] = answer

        async def run() -> None:
            verdict = futures.no
            try:
                await self._hook.find_out(delivery)
                # The nack that is now carried out takes this place.
                del nacks[index]
                verdict = self._take(nack)
            except BrokerError:
                # The partition or the channel goes. Its next owner reads in the store whether the
                # record is stored.
                pass
            finally:
                if nacks.get(index) is answer:
                    del nacks[index]
                follow(verdict, answer)

        self._blocks_on(delivery.tracker, index, answer)
        self._channel.spawn(run, f"outcome of {nack.place}")
        return answer

    def _take(self, nack: Nack) -> Future[bool]:
        """Give the record its verdict, and carry it out if it is the first one."""
        delivery = nack.delivery
        channel = nack.partition.channel
        if not delivery.tracker.nack(delivery.index):
            return channel.futures.no
        nack.change("nack")
        self._hook.on_nack(delivery)
        channel.made_progress()
        answer = self._carry_out_or_hold(nack)
        if self._channel.watch is not None:
            self._channel.watch.nacked(delivery, nack.strategy, answer)
        return answer

    def _carry_out_or_hold(self, nack: Nack) -> Future[bool]:
        """Carry out a nack, now or at the next assignment."""
        delivery = nack.delivery
        partition = nack.partition
        channel = partition.channel
        # Between a revocation and the next assignment nothing is carried out. The record may have
        # another owner by now, whose dead letter would be a second one.
        if partition.is_held:
            answer = partition.answer_later(lambda: self._carry_out(nack))
            # The worker waits, even though it is not known yet whether the nack counts.
            self._blocks_on(delivery.tracker, delivery.index, answer)
            return answer
        answer = self._carry_out(nack)
        if not answer.done():
            # A drain waits until the nack is carried out.
            when_done(answer, lambda _: channel.made_progress())
        return answer

    # From NACKED to SETTLED, STOPPED or LEFT.

    def _carry_out(self, nack: Nack) -> Future[bool]:
        """Have the strategy decide. Stop and Skip are carried out at once, all else in a task."""
        totals = self._channel.totals(nack.delivery.topic_partition)
        totals.nacked[nack.strategy] = totals.nacked.get(nack.strategy, 0) + 1
        nack.change("decide")
        failed = self._failed_record(nack)
        if nack.retry_topic is None:
            decision = self._strategies.decide(nack.strategy, failed)
        else:
            decision = self._strategies.retry_into(nack.retry_topic, failed)
        if isinstance(decision, Stop | Skip):
            self._stop_or_skip(nack, decision)
            futures = nack.partition.channel.futures
            return futures.yes if nack.took_effect else futures.no
        answer = self._finish_in_task(nack, failed, decision)
        if nack.is_poison:
            self._poison[nack] = None
            when_done(answer, lambda _: self._poison.pop(nack))
        return answer

    def _failed_record(self, nack: Nack) -> FailedRecord:
        record = nack.delivery.record
        return FailedRecord(
            channel=self._name,
            group_id=self._channel.settings.group_id,
            partition=nack.delivery.topic_partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
            timestamp_ms=record.timestamp,
            reason=nack.reason,
            replacement=nack.replacement,
            now_ms=int(self._channel.clock.wall() * 1000),
        )

    def _stop_or_skip(self, nack: Nack, decision: Stop | Skip) -> None:
        delivery = nack.delivery
        if isinstance(decision, Stop):
            nack.change("stop")
            self._stop(nack, nack.reason if decision.error is None else decision.error)
        elif delivery.tracker.settle_nacked(delivery.index):
            nack.change("skip")
            self._channel.observer.on(RecordIgnored(**self._about(nack)))
            nack.partition.channel.settled_without_ack(delivery.tracker)
        else:
            nack.change("task_ended")

    def _stop(self, nack: Nack, cause: BaseException) -> None:
        delivery = nack.delivery
        error = HandlerError(self._name, delivery.topic_partition, delivery.offset, cause)
        error.__cause__ = cause
        if not self._channel.fail(error):
            # The channel is stopping already: this record is not why, and is only reported.
            self._channel.observer.on(RecordLeft(**failure_of(self._name, delivery, cause)))

    def _finish_in_task(
        self, nack: Nack, failed: FailedRecord, decision: WriteLetter | Awaitable[object]
    ) -> Future[bool]:
        """Carry out what takes time, in a task that is cancelled when the partition goes."""
        delivery = nack.delivery
        tracker = delivery.tracker
        index = delivery.index
        partition = nack.partition
        answer = partition.channel.futures.pending()
        partition.nacks[index] = answer

        async def run() -> None:
            task = asyncio.current_task()
            # For the type checker.
            assert task is not None  # noqa: S101
            partition.writing[index] = task
            try:
                if not tracker.is_closed:
                    await self._finish(nack, failed, decision)
            except ChannelClosedError:
                # The channel stopped: the record is left for the next owner.
                pass
            except asyncio.CancelledError:
                if not tracker.is_closed:
                    raise
            finally:
                nack.change("task_ended")
                del partition.nacks[index]
                partition.writing.pop(index, None)
                if not answer.done():
                    answer.set_result(nack.took_effect)

        # First the worker, then the task: the worker has to hold back its lane before anything else
        # can run, or the partition's next record would be handled before this letter is written.
        self._blocks_on(tracker, index, answer)
        self._channel.spawn(run, f"failure of {nack.place}")
        return answer

    async def _finish(
        self, nack: Nack, failed: FailedRecord, decision: WriteLetter | Awaitable[object]
    ) -> None:
        """Carry out a decision that takes time: await it, or write its letter.

        A nack that is neither written, skipped nor stopped by then is left for the next owner.
        """
        if not isinstance(decision, WriteLetter):
            decided = await awaited_decision(nack.strategy, decision, failed)
            if nack.delivery.tracker.is_closed:
                # The partition went, and the strategy has swallowed the cancellation of this task.
                # The next owner decides about the record.
                return
            if not isinstance(decided, WriteLetter):
                self._stop_or_skip(nack, decided)
                return
            decision = decided
        nack.change("write")
        await self._write(nack, decision)

    async def _write(self, nack: Nack, letter: WriteLetter) -> None:
        """Write the letter, then settle the record: in this order, or a crash would lose it."""
        delivery = nack.delivery
        settle_in_transaction = self._hook.writes_letter(delivery)
        is_settled = await self._letters.write(letter, settle_in_transaction)
        if not is_settled and not delivery.tracker.settle_nacked(delivery.index):
            return
        nack.change("written")
        self._channel.observer.on(self._count_letter(nack, letter))
        nack.partition.channel.settled_without_ack(delivery.tracker)

    def _count_letter(self, nack: Nack, letter: WriteLetter) -> Event:
        """Count a letter that was written; returns the event that reports it."""
        totals = self._channel.totals(nack.delivery.topic_partition)
        about = self._about(nack)
        if letter.kind == "dead-letter":
            totals.dead_lettered += 1
            return RecordDeadLettered(**about, to=letter.topic)
        totals.delayed += 1
        delay_s = (delay_of(letter.topic) or 0) / 1000
        if isinstance(nack.reason, RetryLaterError):
            # The handler asked for it: this is no failure, and reported without an error.
            about["reason"] = str(nack.reason)
            about["error"] = None
            return RecordPutOff(**about, to=letter.topic, delay_s=delay_s)
        return RecordDelayed(**about, to=letter.topic, delay_s=delay_s)

    def _about(self, nack: Nack) -> dict[str, Any]:
        return failure_of(self._name, nack.delivery, nack.reason)


async def awaited_decision(
    strategy: str, decision: Awaitable[object], failed: FailedRecord
) -> Decision:
    """Await what an async strategy decides; an error in it becomes a Stop.

    Cancellation:
        The strategy is cancelled, too, and nothing is decided.
    """
    task = asyncio.current_task()
    cancellations_before = 0 if task is None else task.cancelling()
    try:
        return check_decision(strategy, await decision)
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling() > cancellations_before:
            # Our own task is cancelled: the partition has gone, or the application ends.
            raise
        # Something that the strategy awaited was cancelled. That is a bug of the strategy.
        return stop_for_bug(error, failed)
    except BaseException as error:
        return stop_for_bug(error, failed)
